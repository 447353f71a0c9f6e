/* Checks of the C tests: a failed one is printed and counted. */
#ifndef SIPML_TESTS_EXPECT_H
#define SIPML_TESTS_EXPECT_H

#include <stdio.h>

static int failures;

static void expect(int true_so, const char *what, int line)
{
    if (!true_so) {
        printf("line %d: %s\n", line, what);
        failures++;
    }
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

#endif
