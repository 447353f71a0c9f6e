/* engine: compute tasks, barriers and transfers of one job, run over links shared max-min fairly.
 *
 * Nodes 0 .. tasks-1 are compute tasks and barriers, tasks .. tasks+transfers-1 are transfers. A node becomes
 * ready when every node that lists it as a successor has ended.
 *
 * One instant. All events within one part in 1e12 of the earliest take effect together, at its time; then each free
 * GPU takes its lowest ready task by (priority, id), each free queue its lowest transfer by (priority, time of
 * joining, id); then rates are shared out. So the order of events inside an instant changes nothing.
 *
 * A transfer of rate x takes weight * x of each link on its route. Rates x are the max-min fair ones of the active
 * transfers, kept up incrementally: every transfer has a bottleneck, i.e. a full link on which no other is faster. A
 * link of capacity 0 carries nothing, and transfers on it wait without an event.
 *
 * Memory. engine_new allocates everything, in proportion to nodes, pairs, links and GPUs, and engine_free releases
 * it; no other function allocates, except engine_watch, which adds to it, and engine_critical_path, which frees what it
 * took. The arrays in engine_graph, engine_network and engine_output belong to the caller and must outlive the engine.
 * Nothing prints, there are no globals. Functions that return int return an engine_state (>= 0) or an
 * engine_error (< 0).
 */
#ifndef SIPML_ENGINE_H
#define SIPML_ENGINE_H

#include <stdint.h>

enum engine_state {
    ENGINE_DONE = 0,   /* every node has ended; the time is that of the last event */
    ENGINE_PAUSED = 1, /* the time asked for is reached */
    ENGINE_BUDGET = 2, /* the number of events asked for is reached */
    ENGINE_STALLED = 3, /* nodes remain and nothing will ever happen by itself */
    ENGINE_REACHED = 4 /* the last of the nodes of engine_await has ended */
};

enum engine_error {
    ENGINE_E_NULL = -1,   /* a pointer that must be given is NULL */
    ENGINE_E_MEMORY = -2, /* out of memory */
    ENGINE_E_SIZE = -3,   /* a count is negative or beyond 2^31 - 1 */
    ENGINE_E_INDEX = -4,  /* a GPU, node, pair or link is out of range */
    ENGINE_E_VALUE = -5,  /* a time, size or capacity is negative or not a number */
    ENGINE_E_CYCLE = -6,  /* the graph has a dependency cycle */
    ENGINE_E_RATES = -7   /* engine_watch found rates that are not max-min fair: a fault of the engine */
};

enum engine_queue {
    ENGINE_QUEUE_PAIR = 0,  /* one active transfer for each ordered pair */
    ENGINE_QUEUE_SOURCE = 1 /* one active transfer for each sending GPU */
};

/* Transfers that are passed on from GPU to GPU. Such a transfer takes the legs of its way one after the other, each as
 * a transfer of all its bytes would that waits for nothing but the leg before: the same events at the same times, and
 * with priorities of their own. It starts when it joins the queue of its last leg, and ends when that does. */
typedef struct engine_relays {
    int64_t ways;
    int64_t legs;
    int64_t places;               /* transfers if each leg were one */
    const int32_t *way;           /* [transfers] -1: it is not passed on */
    const int32_t *way_start;     /* [ways + 1] first leg of each way, in the order in which they are taken */
    const int32_t *leg_pair;      /* [legs] */
    const int32_t *leg_place;     /* [legs] place of the leg, counted from that of the transfer */
    const int32_t *place;         /* [transfers] */
    const int32_t *priority;      /* [places] of legs */
} engine_relays;

typedef struct engine_graph {
    int64_t gpus;
    int64_t tasks;
    int64_t transfers;
    int64_t marks;
    const int32_t *gpu;           /* [tasks] GPU, or -1 for a barrier */
    const double *duration_us;    /* [tasks] of a barrier: how long after its predecessors it ends */
    const int32_t *priority;      /* [tasks + transfers] lowest first */
    const double *size_bytes;     /* [transfers] */
    const float *hops;            /* [transfers] times the latency of the pair is paid */
    const double *startup_us;     /* [transfers] paid besides, once; NULL: none is */
    double slowdown;              /* part of its speed that a GPU loses while a transfer from it is active */
    const uint8_t *slows;         /* [transfers] which of them do that; NULL: all */
    const int32_t *succ_start;    /* [tasks + transfers + 1] */
    const int32_t *successors;    /* [succ_start[tasks + transfers]] */
    const int32_t *mark;          /* [marks] nodes below `tasks` at whose end the accounts are copied */
    const struct engine_relays *relays; /* NULL: no transfer is passed on */
} engine_graph;

typedef struct engine_network {
    int64_t pairs;
    int64_t links;
    int64_t first_circuit;        /* links from here on are circuits */
    const int32_t *pair_src;      /* [pairs] */
    const int32_t *pair_dst;      /* [pairs] */
    const int64_t *pair_start;    /* [pairs + 1] */
    const int32_t *pair_link;     /* [pair_start[pairs]] links; one that comes twice counts with both weights */
    const double *pair_weight;    /* [pair_start[pairs]] a transfer of rate x takes weight * x of the link */
    const double *pair_latency_us;/* [pairs] */
    const int32_t *transfer_pair; /* [transfers] */
    const double *link_gbps;      /* [links] capacity at the start */
} engine_network;

/* What became of one transfer between joining its queue (start_us) and arriving (end_us). Times are NaN until then. */
typedef struct engine_record {
    double head_us;   /* it had its queue to itself */
    double moved_us;  /* its first byte moved: later where links were dark */
    double left_us;   /* its last byte left */
    int32_t held_by;  /* link that held it back when that happened, -1: none */
    int32_t unused;
} engine_record;

typedef struct engine_output {
    double *start_us;             /* [tasks + transfers] NaN until it starts; a transfer starts when it joins */
    double *end_us;               /* [tasks + transfers] NaN until it ends */
    double *snapshot_us;          /* [marks + 1] the last row is written by engine_report */
    double *compute_us;           /* [(marks + 1) * gpus] */
    double *exposed_us;           /* [(marks + 1) * gpus] */
    double *dark_us;              /* [(marks + 1) * gpus] */
    double *link_bytes;           /* [links] written by engine_report */
    double *link_busy_us;         /* [links] written by engine_report */
    engine_record *record;        /* [transfers], or NULL: nothing is recorded */
    double *sample_bytes;         /* [samples * links] or NULL: what each link had carried, see engine_samples */
    int64_t samples;              /* rows, an even number */
    double sample_us;             /* time between two rows, at first */
} engine_output;

typedef struct engine engine;

/* A run at time 0, before anything started. On failure *made is NULL. */
int engine_new(const engine_graph *graph, const engine_network *network, const engine_output *output, int queue,
               engine **made);
void engine_free(engine *run);

/* Go on until every node has ended, until_us is passed (events at until_us included), or max_events more events
 * have happened. until_us may be infinite; only then can the answer be ENGINE_STALLED. */
int engine_run(engine *run, double until_us, int64_t max_events);

/* Make engine_run come back, with ENGINE_REACHED and once, at the end of the instant in which the last of `count` nodes
 * ends: at once if all have. It replaces the nodes of the call before; none: it comes back for nothing. */
int engine_await(engine *run, int64_t count, const int32_t *nodes);

/* Give `count` links new capacities, now. */
int engine_set_capacity(engine *run, int64_t count, const int32_t *link, const double *gbps);

double engine_now_us(const engine *run);
int64_t engine_events(const engine *run); /* tasks ended, transfers joined, last bytes sent, arrivals, barriers */
int64_t engine_ended(const engine *run);  /* nodes, a relayed transfer as many as it has legs */
int engine_is_moving(engine *run);  /* 1: some event lies ahead; 0: only new capacities can cause one */

/* Transfers that are active now and their rates; returns how many. Arrays have room for [pairs]. */
int64_t engine_active(const engine *run, int32_t *transfer, double *gbps);

/* The leg that each transfer is on, or the transfer itself: place (see engine_relays; without relays its number) and
 * pair. [transfers] */
void engine_places(const engine *run, int32_t *place, int32_t *pair);

/* Bytes each link has carried up to now, [links]. */
void engine_carried(const engine *run, double *bytes);

/* Bytes not yet sent of transfers that have joined, summed over the pairs that cross each link, [links]. */
void engine_backlog(const engine *run, double *bytes);

/* Both, and what links have carried since they had carried `before`, never below 0; [links] each. Returns 1 if a circuit has
 * carried some since, plus 2 if bytes wait for one. */
int engine_traffic(const engine *run, const double *before, double *carried, double *sent, double *backlog);

/* Demands of circuits, rounded to 36 binary digits: those that are above 0 one after the other in `values` [circuits]; returns
 * how many. `asked` [circuits] says which they were the last time, and afterwards, which they are; *same: 1 if the same. */
int64_t engine_asked(int64_t circuits, const double *demand, uint8_t *asked, double *values, int32_t *same);

/* Predecessors that each node still waits for, [tasks + transfers]. */
void engine_waits(const engine *run, int32_t *waits);

/* From now on look after every change whether rates are max-min fair and all that is kept up is right; engine_run and
 * engine_set_capacity answer ENGINE_E_RATES once something is not. Slow, for tests. Allocates room for each link. */
int engine_watch(engine *run);

/* Rows of sample_bytes so far, row k as of (k + 1) * *interval_us. When all rows are full, every second is kept and the
 * interval doubles: a run of any length fills between half of them and all. */
int64_t engine_samples(const engine *run, double *interval_us);

/* Write the last row of the accounts, and the links' totals, as of now. */
void engine_report(engine *run);

/* Longest chain of the graph when node i takes node_us[i] (barriers too); gpus and marks are not read. A transfer that is
 * passed on takes, on each leg, the latency of its pair as often as `hops` says, its start-up, and its bytes at the
 * pair's rate: pair_latency_us and pair_bytes_per_us [pairs], read for such transfers only. */
int engine_critical_path(const engine_graph *graph, const double *node_us, const double *pair_latency_us,
                         const double *pair_bytes_per_us, double *longest_us);

const char *engine_strerror(int status);

#endif
