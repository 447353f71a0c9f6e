/* Which switch carries each circuit: Koenig edge colouring, one colour for each switch.
 *
 * Inputs are the vertices 0 .. N-1, outputs N .. 2N-1, circuits edges between them. A circuit takes a
 * colour that is free at both its ends. If none is, colour a is free at one end x, b at the other end
 * y, and the path of alternating colours that starts at y with a ends before it reaches x (the graph is
 * bipartite): exchanging its two colours frees a at y. Hence as many colours as circuits at the fullest
 * port are always enough (Koenig 1916).
 *
 * With a previous plan, circuits that are still wanted start on their old switch; among all paths that
 * make room for a new one, the path that moves the fewest of them is taken.
 */
#include "ocs.h"

#include <stdlib.h>

typedef struct colouring {
    int32_t gpus, switches;
    int32_t words;    /* 64-bit words in a set of colours */
    int32_t *mate;    /* [switches, 2 gpus] the vertex joined to each vertex, or OCS_DARK */
    uint64_t *unused; /* [2 gpus, words] colours free at each vertex */
    int32_t *path;    /* [2 gpus + 1] scratch */
    const int32_t *previous;
} colouring;

static void colouring_free(colouring *c)
{
    free(c->mate);
    free(c->unused);
    free(c->path);
}

static int colouring_new(colouring *c, const ocs_problem *problem, const int32_t *previous)
{
    const size_t vertices = 2 * (size_t)problem->gpus, switches = (size_t)problem->switches;
    const size_t words = (switches + 63) / 64;

    c->gpus = problem->gpus;
    c->switches = problem->switches;
    c->words = (int32_t)words;
    c->previous = previous;
    c->mate = malloc(switches * vertices * sizeof *c->mate);
    c->unused = calloc(vertices * words, sizeof *c->unused);
    c->path = malloc((vertices + 1) * sizeof *c->path);
    if (!c->mate || !c->unused || !c->path) {
        colouring_free(c);
        return OCS_ENOMEM;
    }
    for (size_t k = 0; k < switches * vertices; k++)
        c->mate[k] = OCS_DARK;
    for (size_t v = 0; v < vertices; v++)
        for (size_t q = 0; q < switches; q++)
            c->unused[v * words + q / 64] |= (uint64_t)1 << (q % 64);
    return 0;
}

static int32_t *mate_of(const colouring *c, int32_t colour, int32_t vertex)
{
    return &c->mate[(size_t)colour * 2 * (size_t)c->gpus + (size_t)vertex];
}

static uint64_t *unused_at(const colouring *c, int32_t vertex)
{
    return &c->unused[(size_t)vertex * (size_t)c->words];
}

static void toggle(const colouring *c, int32_t vertex, int32_t colour)
{
    unused_at(c, vertex)[colour / 64] ^= (uint64_t)1 << (colour % 64);
}

static int32_t lowest_bit(uint64_t word)
{
#ifdef __GNUC__
    return __builtin_ctzll(word);
#else
    int32_t bit = 0;

    while (!(word >> bit & 1))
        bit++;
    return bit;
#endif
}

/* The lowest colour from `start` on that is free at both vertices, or -1. */
static int32_t common_colour(const colouring *c, int32_t x, int32_t y, int32_t start)
{
    const uint64_t *fx = unused_at(c, x), *fy = unused_at(c, y);
    uint64_t mask = ~(uint64_t)0 << (start % 64);

    for (int32_t w = start / 64; w < c->words; w++, mask = ~(uint64_t)0) {
        const uint64_t both = fx[w] & fy[w] & mask;

        if (both)
            return 64 * w + lowest_bit(both);
    }
    return -1;
}

static void join(const colouring *c, int32_t colour, int32_t x, int32_t y)
{
    *mate_of(c, colour, x) = y;
    *mate_of(c, colour, y) = x;
    toggle(c, x, colour);
    toggle(c, y, colour);
}

/* Was this edge on this switch in the previous plan? */
static int was_on(const colouring *c, int32_t colour, int32_t x, int32_t y)
{
    const int32_t input = x < y ? x : y, output = (x < y ? y : x) - c->gpus;

    return c->previous[(size_t)colour * (size_t)c->gpus + (size_t)input] == output;
}

/* Write into c->path the vertices from `start` along colours a, b, a, ... Returns its number of edges. */
static int32_t walk(const colouring *c, int32_t start, int32_t a, int32_t b)
{
    int32_t edges = 0, colour = a, vertex = start;

    c->path[0] = start;
    while ((vertex = *mate_of(c, colour, vertex)) >= 0) {
        c->path[++edges] = vertex;
        colour = a + b - colour;
    }
    return edges;
}

/* Circuits that would leave the switch they were on, less those that would return to it. */
static int32_t disturbance(const colouring *c, int32_t edges, int32_t a, int32_t b)
{
    int32_t moved = 0;

    for (int32_t k = 0; k < edges; k++) {
        const int32_t now = k % 2 ? b : a, then = k % 2 ? a : b;

        moved += was_on(c, now, c->path[k], c->path[k + 1]);
        moved -= was_on(c, then, c->path[k], c->path[k + 1]);
    }
    return moved;
}

/* Exchange colours a and b along the path that starts at `start` with a: frees a there, takes b. */
static void flip(const colouring *c, int32_t start, int32_t a, int32_t b)
{
    const int32_t edges = walk(c, start, a, b), last = c->path[edges];

    if (edges == 0)
        return;
    *mate_of(c, a, start) = OCS_DARK;
    *mate_of(c, edges % 2 ? a : b, last) = OCS_DARK;
    for (int32_t k = 0; k < edges; k++) {
        const int32_t colour = k % 2 ? a : b;

        *mate_of(c, colour, c->path[k]) = c->path[k + 1];
        *mate_of(c, colour, c->path[k + 1]) = c->path[k];
    }
    toggle(c, start, a);
    toggle(c, start, b);
    toggle(c, last, a);
    toggle(c, last, b);
}

typedef struct detour {
    int32_t start, a, b; /* the path to exchange, and its first and second colour */
    int32_t disturbed, edges;
} detour;

static void consider(const colouring *c, int32_t start, int32_t a, int32_t b, detour *best)
{
    const int32_t edges = walk(c, start, a, b);
    const int32_t disturbed = c->previous ? disturbance(c, edges, a, b) : 0;

    if (best->start >= 0 && (disturbed > best->disturbed ||
                             (disturbed == best->disturbed && edges >= best->edges)))
        return;
    best->start = start;
    best->a = a;
    best->b = b;
    best->disturbed = disturbed;
    best->edges = edges;
}

/* Free at x and y a common colour, and return it. Both have some free colour, but none in common. */
static int32_t make_room(const colouring *c, int32_t x, int32_t y)
{
    detour best = {-1, 0, 0, 0, 0};

    for (int32_t a = common_colour(c, x, x, 0); a >= 0; a = common_colour(c, x, x, a + 1))
        for (int32_t b = common_colour(c, y, y, 0); b >= 0; b = common_colour(c, y, y, b + 1)) {
            consider(c, y, a, b, &best);
            if (!c->previous) /* nothing to disturb: any path will do */
                goto found;
            consider(c, x, b, a, &best);
        }
found:
    flip(c, best.start, best.a, best.b);
    return best.a;
}

/* Leave circuits that are still wanted where they were; `left` [pairs] loses as many. */
static void keep_circuits(const colouring *c, const ocs_problem *problem, int32_t *left)
{
    for (int64_t p = 0; p < problem->pairs; p++) {
        const int32_t x = problem->src[p], y = c->gpus + problem->dst[p];

        for (int32_t q = 0; q < c->switches && left[p]; q++)
            if (was_on(c, q, x, y)) {
                join(c, q, x, y);
                left[p]--;
            }
    }
}

static int place_rest(const colouring *c, const ocs_problem *problem, const int32_t *left)
{
    for (int64_t p = 0; p < problem->pairs; p++) {
        const int32_t x = problem->src[p], y = c->gpus + problem->dst[p];

        for (int32_t k = 0; k < left[p]; k++) {
            int32_t colour = common_colour(c, x, y, 0);

            if (colour < 0) {
                if (common_colour(c, x, x, 0) < 0 || common_colour(c, y, y, 0) < 0)
                    return OCS_EOVERFULL;
                colour = make_room(c, x, y);
            }
            join(c, colour, x, y);
        }
    }
    return 0;
}

/* Give ports that are still dark what they had, where both its ends are free. */
static int64_t retain(const colouring *c)
{
    int64_t retained = 0;

    for (int32_t q = 0; q < c->switches; q++)
        for (int32_t i = 0; i < c->gpus; i++) {
            const int32_t j = c->previous[(size_t)q * (size_t)c->gpus + (size_t)i];

            if (j < 0 || *mate_of(c, q, i) >= 0 || *mate_of(c, q, c->gpus + j) >= 0)
                continue;
            join(c, q, i, c->gpus + j);
            retained++;
        }
    return retained;
}

static void write_map(const colouring *c, int32_t *port_map)
{
    for (int32_t q = 0; q < c->switches; q++)
        for (int32_t i = 0; i < c->gpus; i++) {
            const int32_t vertex = *mate_of(c, q, i);

            *port_map++ = vertex < 0 ? OCS_DARK : vertex - c->gpus;
        }
}

int ocs_colour(const ocs_problem *problem, const int32_t *circuits, const int32_t *previous,
               int32_t *port_map, int32_t *kept, int64_t *retained)
{
    const size_t pairs = (size_t)problem->pairs;
    colouring c;
    int32_t *left = NULL;
    int status = colouring_new(&c, problem, previous);

    if (status)
        return status;
    status = OCS_ENOMEM;
    left = malloc((pairs + 1) * sizeof *left);
    if (!left)
        goto done;
    for (size_t p = 0; p < pairs; p++)
        left[p] = circuits[p];
    if (previous)
        keep_circuits(&c, problem, left);
    status = place_rest(&c, problem, left);
    if (status)
        goto done;
    *retained = previous ? retain(&c) : 0;
    write_map(&c, port_map);
    if (previous)
        ocs_count(problem, port_map, previous, kept);
    else
        for (size_t p = 0; p < pairs; p++)
            kept[p] = 0;
done:
    free(left);
    colouring_free(&c);
    return status;
}
