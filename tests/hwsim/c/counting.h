/* Included ahead of the bank's sources in the test build: every allocation is counted. */
#ifndef COUNTING_H
#define COUNTING_H

#include <stdlib.h>

void *counting_calloc(size_t count, size_t size);
void *counting_malloc(size_t size);
void *counting_realloc(void *pointer, size_t size);

#ifndef COUNTING_SELF
#define calloc counting_calloc
#define malloc counting_malloc
#define realloc counting_realloc
#endif

#endif
