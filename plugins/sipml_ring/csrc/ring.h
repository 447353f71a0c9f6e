/* Wavelengths for circuits on a ring of GPUs.
 *
 * N GPUs stand on a ring. Segment s joins GPU s to GPU s+1 mod N and has two fibres, one for each direction:
 * 0 clockwise (s to s+1), 1 counter-clockwise. A circuit of the pair (i, j) occupies one wavelength index on every
 * segment from i to j in its direction. An index carries at most one circuit on a segment and direction.
 *
 * A ring may be given folded: everything repeats every `period` GPUs. Then pairs are those that start at GPU 0 to
 * period - 1 (their other end is anywhere on the ring), and each circuit stands for its images under all turns by
 * `period`. No circuit reaches further than `period`, so it meets every segment of the folded ring at most once; and no
 * pair may have a choice of directions, which are complements of each other on a whole ring only.
 *
 * No function keeps memory, prints, or uses global state. Input is never written. On failure the output is undefined.
 */
#ifndef SIPRING_H
#define SIPRING_H

#include <stdint.h>

enum {
    SIPRING_OK = 0,
    SIPRING_EMEMORY = -1,   /* out of memory */
    SIPRING_ERING = -2,     /* size, period, reach or number of wavelengths out of range */
    SIPRING_EPAIRS = -3,    /* pairs not ascending, out of range, a demand too small, or a wait negative; see `bad` */
    SIPRING_EREACH = -4,    /* a pair out of reach in both directions; see `bad` */
    SIPRING_ECIRCUITS = -5, /* a circuit names no such pair, direction or index; see `bad` */
    SIPRING_ECONFLICT = -6  /* two circuits share an index on a segment; see `bad` */
};

#define SIPRING_MAX_WAVELENGTHS 4096 /* per direction */
#define SIPRING_LEAST_DEMAND 1e-200 /* below, wavelengths / demand would overflow, and bisection on it never end */

typedef struct {
    int32_t gpus;
    int32_t wavelengths[2]; /* clockwise, counter-clockwise */
    int32_t reach_hops;
    int32_t continuous; /* 1: one index from end to end. 0: GPUs on the way convert, `index` is the sender's */
    int32_t period; /* divides gpus; 0 or gpus: not folded. Else at least reach_hops, and gpus > 2 reach_hops */
} sipring_ring;

/* Demands, ascending by (src, dst). */
typedef struct {
    int64_t pairs;
    const int32_t *src, *dst;
    const double *demand;  /* [pairs], at least SIPRING_LEAST_DEMAND, any unit */
    const int32_t *waited; /* [pairs] plans for which the pair has waited, or NULL: none has */
} sipring_demand;

/* Circuits of a valid plan: pairs ascending by (src, dst), circuits in any order. */
typedef struct {
    int64_t pairs;
    const int32_t *src, *dst;
    int64_t circuits;
    const int32_t *pair; /* [circuits] row of src, dst */
    const int32_t *direction; /* 0, 1 */
    const int32_t *index;
} sipring_circuits;

/* Output, allocated by the caller: see sipring_lay_out. Row arrays hold demand.pairs + previous.pairs, circuit arrays
 * period * (wavelengths[0] + wavelengths[1]), `unserved` demand.pairs elements. */
typedef struct {
    int64_t pairs; /* rows that hold at least one circuit, ascending by (src, dst) */
    int32_t *src, *dst;
    double *demand;  /* 0: nobody asked, the pair keeps circuits that nobody needs */
    int32_t *count;  /* [rows][2] circuits in each direction */
    int32_t *kept;   /* [rows] circuits that the previous plan had, same direction and index */
    int64_t circuits; /* ascending by (pair, direction, index) */
    int32_t *pair;
    int32_t *direction;
    int32_t *index;
    int64_t unpaired; /* demands without a circuit */
    int32_t *unserved; /* their rows in the demand */
    int32_t same;     /* 1: the circuits are those of the previous plan; 0: they are not, or there is none */
    double ceiling;   /* largest minimum of circuits / demand without the continuity rule, over the served pairs */
    int64_t bad;      /* row or circuit that an error code speaks of */
} sipring_plan;

/* Room of a plan of so many rows, circuits and demands: `numbers` for sipring_numbers of them, `demand` for the rows. */
int64_t sipring_numbers(int64_t rows, int64_t circuits, int64_t demands);
void sipring_lay_out(sipring_plan *plan, int64_t rows, int64_t circuits, int32_t *numbers, double *demand);

/* What circuits, count [pairs][2] of which kept [pairs] were there before, give each pair: capacity, that of those which
 * were there, and for how long others are dark (0: there are none), if each has `gbps` and a new one is dark for `us`. */
void sipring_capacities(int64_t pairs, const int32_t *count, const int32_t *kept, double gbps, double us,
                        double *pair_gbps, double *kept_gbps, double *dark_us);

/* The plan that maximises the minimum of circuits / demand, then leaves no wavelength idle that a demanded pair can
 * use, then keeps what it can of `previous` (NULL: nothing). */
int sipring_fast(const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *previous,
                 sipring_plan *plan);

/* The same second and third steps for circuits chosen elsewhere: `start` is taken over as it is (its pairs must be
 * demanded; in the continuous mode indices of a direction may be permuted to agree with `previous`), then filled. */
int sipring_complete(const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *start,
                     const sipring_circuits *previous, sipring_plan *plan);

/* Like sipring_complete for given numbers of circuits, [demand.pairs][2], without indices: as many of them as can be
 * coloured, by ascending ratio of circuits to demand, then filled. SIPRING_ECONFLICT: more than a segment holds. */
int sipring_colour(const sipring_ring *ring, const sipring_demand *demand, const int32_t *count,
                   const sipring_circuits *previous, sipring_plan *plan);

/* SIPRING_OK if no index is used twice on a segment of one direction (converted: if no segment carries more circuits
 * than it has wavelengths, and no sender uses an index twice); else a code, and *bad: the offending circuit. */
int sipring_check(const sipring_ring *ring, const sipring_circuits *circuits, int64_t *bad);

/* SIPRING_OK if circuits pass sipring_check, their pairs ascend, and they are what the capacities of the pairs say:
 * [pairs] gbps in all, of which kept_gbps are lit at once and the others dark for dark_us. Else a code. */
int sipring_check_plan(const sipring_ring *ring, const sipring_circuits *circuits, double circuit_gbps, const double *gbps,
                       const double *kept_gbps, const double *dark_us, int64_t *bad);

const char *sipring_strerror(int status);

#endif
