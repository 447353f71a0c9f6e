/* Random input of the C tests, the same on every machine, in arrays whose ends the sanitizers see. */
#ifndef SIPML_TESTS_DRAW_H
#define SIPML_TESTS_DRAW_H

#include <stdint.h>
#include <stdlib.h>

/* Knuth's MMIX generator; the high bits are good enough for tests. */
static int below(uint64_t *seed, int stop)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((*seed >> 33) % (uint64_t)stop);
}

/* An array of exactly this length; of none at all, null. */
static void *array(int64_t length, size_t size)
{
    void *a = length ? calloc((size_t)length, size) : NULL;
    if (length && !a) exit(2);
    return a;
}

#endif
