/* Few configurations for all pieces of a traffic matrix: first fit by size, and Kempe chains between near ones. */
#include "ocs.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, BITS = 64, NEAR = 4 };

/* Who has which port in each configuration, and which configurations each port has free. Port i is input i, port gpus + j
 * output j. Rows are configurations: a chain between two of them stays in two rows. */
typedef struct table {
    int32_t gpus;
    int32_t ports;
    int32_t colours;
    int32_t words;
    int32_t *mate;   /* [colours, ports] the port at the other end; NONE: free */
    int32_t *piece;  /* [colours, gpus] piece of each input that has a mate */
    uint64_t *free;  /* [ports, words] */
    int32_t *first;  /* word before which nothing is free, of each port */
} table;

static int table_new(table *t, int32_t gpus, int32_t colours)
{
    const size_t ports = 2 * (size_t)gpus, rows = (size_t)colours;

    memset(t, 0, sizeof *t);
    t->gpus = gpus;
    t->ports = (int32_t)ports;
    t->colours = colours;
    t->words = (colours + BITS - 1) / BITS;
    t->mate = malloc((ports * rows + 1) * sizeof *t->mate);
    t->piece = malloc(((size_t)gpus * rows + 1) * sizeof *t->piece);
    t->free = malloc((ports * (size_t)t->words + 1) * sizeof *t->free);
    t->first = calloc(ports + 1, sizeof *t->first);
    if (!t->mate || !t->piece || !t->free || !t->first)
        return OCS_ENOMEM;
    memset(t->mate, 0xff, ports * rows * sizeof *t->mate);  /* NONE */
    memset(t->free, 0xff, ports * (size_t)t->words * sizeof *t->free);
    if (colours % BITS)
        for (size_t port = 0; port < ports; port++)
            t->free[(port + 1) * (size_t)t->words - 1] = ((uint64_t)1 << (colours % BITS)) - 1;
    return 0;
}

static void table_free(table *t)
{
    free(t->mate);
    free(t->piece);
    free(t->free);
    free(t->first);
}

static int32_t *mates(const table *t, int32_t colour)
{
    return &t->mate[(size_t)colour * (size_t)t->ports];
}

static int32_t *pieces_of(const table *t, int32_t colour)
{
    return &t->piece[(size_t)colour * (size_t)t->gpus];
}

static uint64_t *bits(const table *t, int32_t port)
{
    return &t->free[(size_t)port * (size_t)t->words];
}

static void occupy(table *t, int32_t port, int32_t colour)
{
    bits(t, port)[colour / BITS] &= ~((uint64_t)1 << (colour % BITS));
}

static void release(table *t, int32_t port, int32_t colour)
{
    bits(t, port)[colour / BITS] |= (uint64_t)1 << (colour % BITS);
    if (colour / BITS < t->first[port])
        t->first[port] = colour / BITS;
}

static void put(table *t, int32_t one, int32_t two, int32_t colour, int32_t piece)
{
    int32_t *mate = mates(t, colour);

    mate[one] = two;
    mate[two] = one;
    pieces_of(t, colour)[one] = piece;
    occupy(t, one, colour);
    occupy(t, two, colour);
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

/* Of two ports that have no configuration free together, the first two free ones whose numbers are `apart`, 1 to NEAR; 0
 * where there are none. */
static int at_distance(const table *t, int32_t one, int32_t two, int32_t apart, int32_t *at_one, int32_t *at_two)
{
    const uint64_t *a = bits(t, one), *b = bits(t, two);

    for (int32_t w = 0; w < t->words; w++) {
        const uint64_t next_a = w + 1 < t->words ? a[w + 1] : 0, next_b = w + 1 < t->words ? b[w + 1] : 0;
        const uint64_t later_a = a[w] >> apart | next_a << (BITS - apart);
        const uint64_t later_b = b[w] >> apart | next_b << (BITS - apart);
        const uint64_t found = (a[w] & later_b) | (b[w] & later_a);
        if (found) {
            const int32_t k = lowest(found), colour = w * BITS + k;
            const int own = (int)(a[w] >> k & 1);
            *at_one = own ? colour : colour + apart;
            *at_two = own ? colour + apart : colour;
            return 1;
        }
    }
    return 0;
}

/* Of the configurations free at one port and those free at another, none of them at both, the first two that are closest in
 * number. Returns 0 where one of them has none. */
static int closest(table *t, int32_t one, int32_t two, int32_t *at_one, int32_t *at_two)
{
    for (int32_t apart = 1; apart <= NEAR; apart++)
        if (at_distance(t, one, two, apart, at_one, at_two))
            return 1;

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

/* Free `colour` at `port`, where `other` is free: the pieces along the path from it that alternates between the two change
 * places. Each step looks at one port: what it has in one row goes to the other, and what was there comes back with the
 * next step. */
static void exchange(table *t, int32_t port, int32_t colour, int32_t other)
{
    int32_t *mate[2] = {mates(t, colour), mates(t, other)};
    int32_t *piece[2] = {pieces_of(t, colour), pieces_of(t, other)};
    int32_t here = port, side = 0, there = mate[0][port];
    int32_t moving = there == NONE ? NONE : piece[0][port < t->gpus ? port : there];

    if (there == NONE)
        return;
    mate[0][here] = NONE;
    occupy(t, here, other);
    release(t, here, colour);
    while (there != NONE) {
        /* The piece between `here` and `there` leaves row `side` for the other, where `there` may have another. */
        const int32_t next = mate[1 - side][there];
        const int32_t left = next == NONE ? NONE : piece[1 - side][there < t->gpus ? there : next];
        mate[1 - side][here] = there;
        mate[1 - side][there] = here;
        piece[1 - side][here < t->gpus ? here : there] = moving;
        if (next == NONE) {
            mate[side][there] = NONE;
            occupy(t, there, side ? colour : other);
            release(t, there, side ? other : colour);
        }
        here = there;
        there = next;
        moving = left;
        side = 1 - side;
    }
}

int ocs_match(int32_t gpus, int64_t pieces, const int32_t *src, const int32_t *dst, int32_t colours,
              int32_t *colour)
{
    int status = 0;
    table t;

    if (table_new(&t, gpus, colours)) {
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
            exchange(&t, two, chosen, there);
        }
        put(&t, one, two, chosen, k);
    }
    for (int32_t c = 0; c < colours; c++)
        for (int32_t port = 0; port < gpus; port++)
            if (mates(&t, c)[port] != NONE)
                colour[pieces_of(&t, c)[port]] = c;
done:
    table_free(&t);
    return status;
}
