/* Inside of the planner: the state of one ring while circuits are placed. */
#ifndef SIPRING_NET_H
#define SIPRING_NET_H

#include <stddef.h>

#include "ring.h"
#include "row.h"

typedef struct {
    const sipring_ring *ring;
    int32_t n;     /* segments: those of one period */
    int32_t reach; /* segments that a circuit may span */
    int32_t words, rows, flexible; /* flexible: demanded rows that may use either direction */
    int continuous;
    int past; /* the previous plan has circuits: some bit of `before` is set */
    row_t *row;
    uint64_t *free_mask[DIRECTIONS]; /* [n][words] idle wavelengths of each segment (continuous) */
    int32_t *owner[DIRECTIONS];      /* [n][64 words] the row on each segment and index that is not idle; NULL: large ring */
    int32_t *room[DIRECTIONS];       /* [n] how many (converted) */
    uint64_t *held, *before;         /* [rows][2][words] indices now, and in the previous plan (NULL: there is none) */
    int32_t *by_start[DIRECTIONS];   /* rows that may use the direction, by (start, -hops) */
    int32_t *from[DIRECTIONS];       /* [n + 1] where each start begins in by_start */
    rank_t rank;                     /* kept by net_climb alone */
    void *memory;                    /* all of the above */
} net_t;

/* Position of the lowest set bit of a mask that is not 0 (gcc and clang). */
static inline int32_t lowest_bit(uint64_t bits) { return __builtin_ctzll(bits); }
static inline int32_t count_bits(uint64_t bits) { return __builtin_popcountll(bits); }
static inline int32_t hops_to(int32_t n, int32_t a, int32_t b) { return b >= a ? b - a : b - a + n; }
static inline uint64_t *mask_of(const net_t *net, uint64_t *masks, int32_t row, int d)
{
    return masks + ((size_t)row * DIRECTIONS + (size_t)d) * (size_t)net->words;
}

/* net.c: building, and single circuits */
int net_build(net_t *net, const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *previous,
              int64_t *bad);
void net_free(net_t *net);
void net_clear(net_t *net); /* no circuits */
void net_clear_direction(net_t *net, int d);
int net_add(net_t *net, int32_t row, int d);  /* 1 if a wavelength was found and taken */
int32_t net_find(const net_t *net, int32_t row, int d); /* an idle index (continuous), or -1 */
void net_take(net_t *net, int32_t row, int d, int32_t index);
void net_drop(net_t *net, int32_t row, int d, int32_t index);
int net_idle(const net_t *net, int32_t row, int d, int32_t index);
void net_occupy(net_t *net); /* room left by the rows' counts (converted) */
int net_room(const net_t *net, int32_t row, int d); /* 1 if every segment has some (converted) */
void net_shift(net_t *net, int32_t row, int d, int32_t by); /* circuits more or fewer (converted) */
double net_minimum(const net_t *net); /* over served rows */

/* allocate.c: how many circuits each pair gets, whatever their wavelengths */
int net_allocate(net_t *net, double *throughput); /* sets need and count; *throughput 0: not all pairs can be served */

/* cut.c: 0 only if no distribution gives every row `need` [rows] circuits; some that do not fit pass, too */
int net_may_fit(const net_t *net, const int32_t *need);

/* colour.c: indices for the rows' counts; those without one are taken off the counts. Returns a status. */
int net_colour(net_t *net);

/* fill.c */
int net_admit(net_t *net);                        /* who is served when not all can be: one circuit each */
int net_lift(net_t *net, int32_t row, double floor); /* one more circuit for `row`, moving others but none below floor */
int net_climb(net_t *net, double ceiling);        /* raise the minimum while others can make way */
int net_fill(net_t *net);                         /* nothing idle that a demanded pair can use */

/* keep.c */
void net_keep(net_t *net, const int32_t *target); /* what the previous plan and [rows][2] target have in common */
int net_relabel(net_t *net);         /* permute indices towards the previous plan (continuous) */
int net_assign_senders(net_t *net);  /* indices at the sender (converted) */
void net_restore(net_t *net);        /* idle circuits of pairs that nobody asked for now */

#endif
