/* Circuits of a flat optical network: N GPUs, each with one port on every one of Q switches.
 *
 * A plan gives each ordered pair of GPUs a number of circuits and each circuit a switch, so that every
 * switch joins an input to at most one output and an output to at most one input.
 *
 * All arrays belong to the caller. Nothing is kept between calls, nothing is printed. Every function
 * returns 0 or one of the negative OCS_E codes; after an error the outputs are undefined.
 */
#ifndef SIPML_OCS_H
#define SIPML_OCS_H

#include <stdint.h>

#define OCS_ENOMEM (-1)  /* out of memory */
#define OCS_ECROWDED (-2) /* a GPU has more peers than switches */
#define OCS_EOVERFULL (-3) /* circuits of a GPU exceed the switches */
#define OCS_EORDER (-4) /* pairs are not sorted, or name a GPU outside 0 .. gpus - 1 */

/* A port of a port map that is connected to nothing. */
#define OCS_DARK (-1)

typedef struct ocs_problem {
    int32_t gpus;
    int32_t switches;
    /* Demanded ordered pairs, sorted by (src, dst), each once. */
    int64_t pairs;
    const int32_t *src;
    const int32_t *dst;
    /* Positive, finite; in any unit. */
    const double *demand;
} ocs_problem;

/* Refuse pairs that are out of order or out of range. */
int ocs_check(const ocs_problem *problem);

/* Choose pairs where a GPU has more peers than switches: walk `order` (a permutation of the pairs) and
 * admit a pair while both its ends have admitted fewer than `switches`. */
int ocs_admit(const ocs_problem *problem, const int64_t *order, uint8_t *admitted);

/* The fewest circuits [pairs] that maximise min(circuits / demand), each pair having at least one.
 * OCS_ECROWDED if some GPU has more peers than switches. */
int ocs_maxmin(const ocs_problem *problem, int32_t *circuits);

/* Add circuits until no pair has a free port at both ends, the pair with the least circuits / demand
 * first. Ties go to pairs that have fewer circuits than in `previous` [switches, gpus] (may be null),
 * then to the first pair. */
int ocs_fill(const ocs_problem *problem, const int32_t *previous, int32_t *circuits);

/* Circuits that each pair [pairs] has in a port map [switches, gpus]; with `also` (may be null), only
 * those that are on the same switch in both maps. */
void ocs_count(const ocs_problem *problem, const int32_t *port_map, const int32_t *also, int32_t *counts);

/* Give each circuit a switch. port_map[q * gpus + i] is the output that input i has on switch q, or
 * OCS_DARK. Where `previous` (may be null) has a circuit that is still wanted, it stays on its switch
 * unless no room can be made otherwise; ports that nobody wants keep what they had.
 * kept [pairs] counts the circuits that stayed; *retained the circuits of pairs without demand. */
int ocs_colour(const ocs_problem *problem, const int32_t *circuits, const int32_t *previous,
               int32_t *port_map, int32_t *kept, int64_t *retained);

/* Give each piece of demand a configuration in which no other piece leaves the same GPU or enters the same.
 *
 * Pieces [pieces] come in order, the largest first: `src`, `dst`. They are the edges of a bipartite multigraph; `colours`
 * must be at least its largest degree, which always suffices (Koenig). A piece gets the first configuration that
 * is free at both its ends, so that large ones are together; where there is none, two configurations that are close to each
 * other exchange their pieces along a path. OCS_EOVERFULL if some GPU has more pieces than colours. */
int ocs_match(int32_t gpus, int64_t pieces, const int32_t *src, const int32_t *dst, int32_t colours,
              int32_t *colour);

/* From `start` a switch is set to a configuration, is dark for the delay, and carries until `end`. */
typedef struct ocs_slice {
    int32_t on; /* switch */
    int32_t configuration;
    double start;
    double end;
} ocs_slice;

/* Put configurations, sorted by duration [configurations], the longest first, on switches that are dark for `delay` before
 * each: longest first, each where it ends soonest; or, where that ends sooner, one switch after the other is filled, and
 * what is over is cut and goes on on the next. `slices` has room for configurations + switches; durations of 0 have none. */
int ocs_spread(int32_t configurations, const double *duration, int32_t switches, double delay, ocs_slice *slices,
               int64_t *count);

/* When the last slice ends; 0 of none. */
double ocs_end(const ocs_slice *slices, int64_t count);

/* A schedule of permutations; its arrays are allocated by `ocs_decompose` and freed by `ocs_schedule_free`. */
typedef struct ocs_schedule {
    int32_t configurations;
    int64_t slices;
    int32_t *port_map; /* [configurations, gpus] output of each input, or OCS_DARK */
    double *duration;  /* [configurations] on all switches together, the longest first */
    ocs_slice *slice;  /* [slices] */
} ocs_schedule;

/* A short schedule that serves every pair of a problem for its `demand`, a time on one switch; `delay` in the same unit.
 * Demands above a limit are divided into pieces of that size, and pieces, the longest first, are given configurations by
 * `ocs_match`, so that those of one are of like length: a configuration lasts as long as its longest piece. Several limits
 * are tried. After an error there is nothing to free. */
int ocs_decompose(const ocs_problem *problem, double delay, ocs_schedule *made);

/* Free the arrays of a schedule; it is empty afterwards. */
void ocs_schedule_free(ocs_schedule *made);

/* A sentence for a status code. */
const char *ocs_strerror(int status);

#endif
