/* Few configurations for all pieces of a traffic matrix: first fit by size, and Kempe chains between near ones. */
#include "ocs.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, BITS = 64 };

/* Which piece each port has in each configuration, and which configurations it has free. Port i is input i,
 * port gpus + j output j. */
typedef struct table {
    int32_t colours;
    int32_t words;
    int32_t *piece;  /* [ports, colours] */
    uint64_t *free;  /* [ports, words] */
    int32_t *first;  /* word before which nothing is free, of each port */
} table;

static int table_new(table *t, int32_t gpus, int32_t colours)
{
    const size_t ports = 2 * (size_t)gpus;

    memset(t, 0, sizeof *t);
    t->colours = colours;
    t->words = (colours + BITS - 1) / BITS;
    t->piece = malloc((ports * (size_t)colours + 1) * sizeof *t->piece);
    t->free = calloc(ports * (size_t)t->words + 1, sizeof *t->free);
    t->first = calloc(ports + 1, sizeof *t->first);
    if (!t->piece || !t->free || !t->first)
        return OCS_ENOMEM;
    for (size_t k = 0; k < ports * (size_t)colours; k++)
        t->piece[k] = NONE;
    for (size_t port = 0; port < ports; port++)
        for (int32_t c = 0; c < colours; c++)
            t->free[port * (size_t)t->words + (size_t)(c / BITS)] |= (uint64_t)1 << (c % BITS);
    return 0;
}

static void table_free(table *t)
{
    free(t->piece);
    free(t->free);
    free(t->first);
}

static int32_t *at(const table *t, int32_t port, int32_t colour)
{
    return &t->piece[(size_t)port * (size_t)t->colours + (size_t)colour];
}

static uint64_t *bits(const table *t, int32_t port)
{
    return &t->free[(size_t)port * (size_t)t->words];
}

static void put(table *t, int32_t port, int32_t colour, int32_t piece)
{
    *at(t, port, colour) = piece;
    bits(t, port)[colour / BITS] &= ~((uint64_t)1 << (colour % BITS));
}

static void take(table *t, int32_t port, int32_t colour)
{
    *at(t, port, colour) = NONE;
    bits(t, port)[colour / BITS] |= (uint64_t)1 << (colour % BITS);
    if (colour / BITS < t->first[port])
        t->first[port] = colour / BITS;
}

static int32_t lowest(uint64_t word)
{
#if defined(__GNUC__)
    return (int32_t)__builtin_ctzll(word);
#else
    int32_t k = 0;
    while (!(word >> k & 1)) k++;
    return k;
#endif
}

/* The first word of a port in which something is free; `words` if nothing is. */
static int32_t first_free(table *t, int32_t port)
{
    const uint64_t *word = bits(t, port);
    int32_t w = t->first[port];

    while (w < t->words && !word[w]) w++;
    t->first[port] = w;
    return w;
}

/* The next configuration that a port has free, from `colour` on; `colours` if there is none. */
static int32_t next_free(const table *t, int32_t port, int32_t colour)
{
    const uint64_t *word = bits(t, port);
    int32_t w = colour / BITS;

    if (colour >= t->colours)
        return t->colours;
    uint64_t rest = word[w] & (~(uint64_t)0 << (colour % BITS));
    while (!rest && ++w < t->words) rest = word[w];
    return rest ? w * BITS + lowest(rest) : t->colours;
}

/* The first configuration that two ports both have free; NONE if there is none. */
static int32_t common_free(table *t, int32_t one, int32_t two)
{
    const uint64_t *a = bits(t, one), *b = bits(t, two);
    int32_t from = first_free(t, one), other = first_free(t, two);

    for (int32_t w = from > other ? from : other; w < t->words; w++)
        if (a[w] & b[w])
            return w * BITS + lowest(a[w] & b[w]);
    return NONE;
}

/* Of the configurations free at one port and those free at another, the first two that are closest in number. Returns 0
 * where one of them has none. */
static int closest(table *t, int32_t one, int32_t two, int32_t *at_one, int32_t *at_two)
{
    int32_t a = next_free(t, one, first_free(t, one) * BITS);
    int32_t b = next_free(t, two, first_free(t, two) * BITS);
    int32_t least = t->colours;

    while (a < t->colours && b < t->colours) {
        const int32_t apart = a < b ? b - a : a - b;
        if (apart < least) {
            least = apart;
            *at_one = a;
            *at_two = b;
        }
        if (a < b)
            a = next_free(t, one, a + 1);
        else
            b = next_free(t, two, b + 1);
    }
    return least < t->colours;
}

/* Free `colour` at `port`, where `other` is free: the pieces along the path from it that alternates between
 * the two change places. `path` has room for all ports. */
static void exchange(table *t, int32_t port, int32_t colour, int32_t other, int32_t gpus, const int32_t *src,
                     const int32_t *dst, int32_t *path)
{
    int32_t length = 0, want = colour, here = port;

    for (int32_t piece; (piece = *at(t, here, want)) != NONE; want = want == colour ? other : colour) {
        path[length++] = piece;
        here = here < gpus ? gpus + dst[piece] : src[piece];
    }
    for (int32_t k = 0; k < length; k++) {
        const int32_t old = k % 2 ? other : colour;
        take(t, src[path[k]], old);
        take(t, gpus + dst[path[k]], old);
    }
    for (int32_t k = 0; k < length; k++) {
        const int32_t new = k % 2 ? colour : other;
        put(t, src[path[k]], new, path[k]);
        put(t, gpus + dst[path[k]], new, path[k]);
    }
}

int ocs_match(int32_t gpus, int64_t pieces, const int32_t *src, const int32_t *dst, int32_t colours,
              int32_t *colour)
{
    int status = 0;
    int32_t *path = malloc((2 * (size_t)gpus + 1) * sizeof *path);
    table t;

    if (table_new(&t, gpus, colours) || !path) {
        status = OCS_ENOMEM;
        goto done;
    }
    if (pieces > INT32_MAX) {
        status = OCS_EOVERFULL;
        goto done;
    }
    for (int32_t k = 0; k < (int32_t)pieces; k++) {
        const int32_t one = src[k], two = gpus + dst[k];
        if (one < 0 || one >= gpus || dst[k] < 0 || dst[k] >= gpus) {
            status = OCS_EORDER;
            goto done;
        }
        int32_t chosen = common_free(&t, one, two), there = 0;
        if (chosen == NONE) {
            if (!closest(&t, one, two, &chosen, &there)) {
                status = OCS_EOVERFULL;
                goto done;
            }
            exchange(&t, two, chosen, there, gpus, src, dst, path);
        }
        put(&t, one, chosen, k);
        put(&t, two, chosen, k);
    }
    for (int32_t port = 0; port < gpus; port++)
        for (int32_t c = 0; c < colours; c++)
            if (*at(&t, port, c) != NONE)
                colour[*at(&t, port, c)] = c;
done:
    table_free(&t);
    free(path);
    return status;
}
