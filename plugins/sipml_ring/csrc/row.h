/* One ordered pair of GPUs while circuits are placed, and the order of pairs by circuits / demand. */
#ifndef SIPRING_ROW_H
#define SIPRING_ROW_H

#include <stdint.h>

enum { CW = 0, CCW = 1, DIRECTIONS = 2 };

/* One ordered pair. Direction d covers `hops[d]` segments from `start[d]` on; hops 0: the direction is not allowed. */
typedef struct {
    double demand;
    int32_t src, dst;
    int32_t asked; /* row of the demand, or -1: only the previous plan has this pair */
    int32_t start[DIRECTIONS], hops[DIRECTIONS];
    int32_t count[DIRECTIONS];
    int32_t need; /* circuits that the minimum requires of this pair */
    int32_t waited;
    uint8_t first; /* its shorter allowed direction */
    uint8_t served; /* counts for the minimum */
} row_t;

static inline int32_t total(const row_t *r) { return r->count[CW] + r->count[CCW]; }
static inline double ratio(const row_t *r) { return total(r) / r->demand; }

/* 1: circuits / demand is above `least`, which takes no division to say; 0: it may be. The margin is above rounding. */
static inline int surely_above(int32_t circuits, double demand, double least)
{
    return circuits > least * demand * (1 + 1e-12);
}

/* The served row with the lowest ratio, kept while circuits come and go: a tree whose leaves are the rows and whose
 * inner nodes name the lower of their two children, the left one of equals. Rows that have changed are put right when
 * the lowest is asked for: most changes are tried and undone. */
typedef struct {
    const row_t *row;
    int32_t *node, leaves;       /* [2 leaves] rows, or -1; NULL: not kept */
    double *ratio;               /* [rows] as the tree knows them */
    int32_t *changed, changes;   /* [rows] rows that have changed since, each once */
    uint8_t *has_changed;        /* [rows] */
} rank_t;

int rank_open(rank_t *rank, const row_t *row, int32_t rows); /* 0, or -1: out of memory */
int32_t rank_lowest(rank_t *rank);                           /* the first of equals; -1: none is served */
void rank_close(rank_t *rank);

/* The circuits of `row` have changed. */
static inline void rank_note(rank_t *rank, int32_t row)
{
    if (rank->has_changed[row]) return;
    rank->has_changed[row] = 1;
    rank->changed[rank->changes++] = row;
}

#endif
