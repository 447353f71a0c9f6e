/* What the engine's source files share. */
#ifndef SIPML_ENGINE_STATE_H
#define SIPML_ENGINE_STATE_H

#include "engine.h"

#include <math.h>

enum { NONE = -1 };

#define BYTES_PER_US_PER_GBPS 125.0

/* Relative width of an instant. */
#define SAME_TIME 1e-12

/* A 4-ary heap of (key, id), lowest first. */
typedef struct item {
    double key;
    int32_t id;
} item;

typedef struct heap {
    int64_t count;
    item *items;
} heap;

void heap_push(heap *h, int32_t id, double key);
int32_t heap_pop(heap *h);

/* lows.c: a key for each id, infinite at first, and which is least. */
enum { LOWS_LEVELS = 7 };

typedef struct lows {
    int32_t used;                  /* ids up to here, since it was new or restarted */
    int32_t levels;                /* that many ids take */
    int32_t tops;                  /* keys of the highest of these levels */
    double *keys[LOWS_LEVELS];     /* keys[0]: of the ids; keys[k]: the least of each block of keys[k - 1] */
    uint32_t *stale[LOWS_LEVELS];  /* [k >= 1]: a word for each block of keys[k], a bit for each that is to be found */
} lows;

void lows_set(lows *of, int32_t id, double key);
double lows_least(lows *of);
int32_t lows_find(const lows *of, double key); /* first id that has the least key, which lows_least gave */
void lows_restart(lows *of); /* once all keys are infinite and lows_least has found that */
int64_t lows_collect(const lows *of, double limit, int32_t *ids); /* ids not above the limit, after lows_least */

/* One active transfer at a time, and those that wait for it. */
typedef struct queue {
    int32_t root;   /* of the transfers that wait */
    int32_t active; /* flow of the one that sends, or NONE */
} queue;

/* A pair of GPUs, and its active transfer if it has one: a flow. The id of a flow is that of its pair. */
typedef struct pair {
    double queued;     /* bytes of transfers that joined and have not sent their last byte */
    double latency_us;
    double left;       /* bytes the active transfer has left, kept up while no link holds it back */
    int32_t first;     /* its crossings of links are first .. stop - 1 */
    int32_t stop;
    int32_t src;
    int32_t dst;
    int32_t transfer;  /* active one; NONE: its last byte has left, and its place on the links may be taken over */
    int32_t at;        /* crossing of that link */
    int32_t waiting;   /* transfers that joined and have not sent their last byte */
    int32_t dark;      /* circuit links on the route that carry nothing, kept up while any waits */
    queue line;        /* ENGINE_QUEUE_PAIR */
} pair;

/* One link on the route of a pair. */
typedef struct crossing {
    int32_t link;
    int32_t slot;  /* place among the link's members while the pair has a flow */
} crossing;

/* A flow on a link. */
typedef struct member {
    double due;       /* in a group: the flow's last byte leaves when the link's `served` reaches this */
    int32_t flow;
    int32_t crossing; /* of this link */
    int32_t first;    /* all crossings of the flow: first .. stop - 1 */
    int32_t stop;
} member;

/* A link. What is read of the links around when rates change comes first. */
typedef struct link {
    double capacity;   /* bytes per us, kept up while it has members; also run->capacity */
    double other;      /* what the closed flows outside its group take of it */
    double rate;       /* of each flow of its group */
    double fastest;    /* no closed flow outside its group is faster */
    double open_weight; /* summed over the open flows outside its group */
    double held_weight; /* summed over its group */
    int32_t open;      /* open flows outside its group */
    int32_t held;      /* flows of its group: members 0 .. held - 1 */
    int32_t count;     /* of its members */
    int32_t place;     /* among the links to look at in this update, or NONE */
    int32_t changes;   /* of `other` since it was summed afresh */
    uint8_t is_open;   /* its group is being shared out again */
    uint8_t listed;    /* among the links without a group that have open flows */
    uint8_t touched;   /* on the list of links where flows came or went or the capacity changed */
    uint8_t inexact;   /* its capacity changed: what rounding left of `other` may count now, so it is summed afresh */
    uint8_t stale;     /* `soonest` is to be found again */
    int32_t first;     /* of its members */
    double served;     /* bytes that each flow of its group was sent up to `since` */
    double since;
    double soonest;    /* least `due` of its group */
    int32_t group;     /* its id among the drain times, while it has a group */
    int32_t flowing;   /* members with a positive rate */
    double busy;
    double busy_since;
} link;

enum gpu_time { TIME_COMPUTE, TIME_EXPOSED, TIME_DARK, TIME_IDLE, TIME_KINDS };

typedef struct gpu {
    double since;
    double time[TIME_KINDS - 1]; /* idle is the rest */
    int32_t running; /* task, or NONE */
    int32_t ready;   /* root of its ready tasks */
    int32_t pending; /* transfers to or from it that joined and have not ended */
    int32_t lit;     /* of those, the ones that do not wait for a dark circuit */
    queue line;      /* ENGINE_QUEUE_SOURCE */
} gpu;

/* Of a GPU whose tasks are slowed while collectives move. */
typedef struct contender {
    double left;    /* time its task had left at `since`, at full speed */
    double since;
    double speed;   /* 1, or less while transfers from it are active that slow it */
    int32_t moving; /* how many of them are */
    int32_t touched; /* that changed in this instant */
} contender;

/* Of a transfer that may be passed on. */
typedef struct relay {
    int32_t leg;   /* that it is on, NONE: it is not passed on */
    int32_t stop;  /* the last leg is the one before */
    int32_t place; /* see engine_relays */
} relay;

enum { TAKEN_MAX = 96 };

struct engine {
    engine_graph graph;
    engine_network net;
    engine_output out;
    int queue_mode;
    int started;
    int fault;        /* what engine_watch found, or 0 */
    double now;
    int64_t sampled;  /* rows of out.sample_bytes that are written */
    int64_t events;
    int64_t ended;
    int64_t nodes;
    int64_t ends_due; /* nodes, a relayed transfer as many as it has legs: `ended` of a run that is done */
    int64_t queues;
    int64_t awaiting; /* nodes that are awaited and have not ended */
    int reached;      /* the last of them has, and engine_run has not yet come back for it */

    const int32_t *priority;      /* [nodes] of a relayed transfer: that of its leg */
    const int32_t *transfer_pair; /* [transfers] likewise */
    relay *relays;          /* [transfers] NULL: none is passed on */
    int32_t *leg_priority;  /* [nodes] and [transfers]: the two above, where some are */
    int32_t *leg_pair;
    int32_t *waits;   /* [nodes] */
    int32_t *child;   /* [nodes] pairing heaps of ready tasks and queued transfers */
    int32_t *sibling; /* [nodes] */
    uint8_t *marked;  /* [tasks] */
    uint8_t *awaited; /* [nodes] engine_run comes back when the last of them has ended */
    uint8_t *touched; /* [gpus] on the list of GPUs that may begin a task */
    gpu *gpus;
    pair *pairs;
    link *links;
    double *capacity;      /* [links] bytes per us */
    double *bytes;         /* [links] of transfers whose last byte has left */
    int32_t *holder;       /* [pairs] link that holds a flow back, NONE: not yet found */
    crossing *crossings;   /* of all pairs */
    double *weights;       /* of all crossings: of a flow of rate x the link carries weight * x; NULL: all are 1 */
    member *members;       /* of all links */
    uint64_t *waiting;     /* [pairs] bits: some transfer waits or sends */
    uint64_t *crossed;     /* [links] bits: has members */
    uint64_t *dark;        /* [links] bits: a circuit that carries nothing; few cache lines, unlike capacities */
    int32_t *circuit_first; /* [circuits + 1] */
    int32_t *circuit_pair;  /* pairs that cross each circuit */

    double next_drain; /* of the groups, as of the last look at what comes next */
    heap ends;   /* tasks and arrivals of transfers, by node */
    lows drains; /* next last byte of each group */
    lows task_ends; /* of the running task of each GPU, where graph.slowdown is above 0 */
    lows shares; /* while sharing out: the level at which to look at a link, by its place */
    int32_t *group_link;  /* [links] link of each group */
    int32_t *free_groups; /* [links] ids of groups that are no more */
    int32_t *place_link;  /* [links] link of each place */
    int32_t *listed;      /* [links] without a group, with open flows */
    int64_t group_count, free_group_count, place_count, listed_count;
    double narrowest;     /* no listed link gives its open flows less */

    int32_t *touched_gpus;
    int32_t *touched_queues;
    int32_t *touched_links;
    int32_t *fresh;       /* flows attached in this instant */
    int32_t *due_groups;  /* [links] groups of which a last byte leaves in this instant */
    int32_t *due_flows;   /* [pairs] the flows of one of them */
    contender *contenders;       /* [gpus] where graph.slowdown is above 0 */
    int32_t *touched_contenders; /* [gpus] */
    int32_t *due_gpus;           /* [gpus] whose task ends in this instant */
    int64_t touched_contender_count;
    int64_t touched_gpu_count, touched_queue_count, touched_link_count, fresh_count;

    void *taken[TAKEN_MAX]; /* all memory, to be freed */
    int taken_count;

    double *watch; /* [2 * links] room for engine_watch, NULL: rates are not watched */
};

static inline int bit_of(const uint64_t *bits, int64_t at)
{
    return bits[at / 64] >> at % 64 & 1;
}

static inline double weight_of(const engine *run, int32_t crossing_id)
{
    return run->weights ? run->weights[crossing_id] : 1;
}

/* The first byte of the active transfer of a pair moves now. */
static inline void record_moved(const engine *run, int32_t flow)
{
    int32_t t = run->out.record ? run->pairs[flow].transfer : NONE;
    if (t != NONE && isnan(run->out.record[t].moved_us))
        run->out.record[t].moved_us = run->now;
}

/* build.c */
int engine_check(const engine_graph *graph, const engine_network *network);

/* relays.c: transfers that are passed on */
int relays_check(const engine_graph *graph, int64_t pairs);
void relays_set_out(engine *run);
int relays_go_on(engine *run, int32_t transfer); /* to its next leg; 0: there is none */
int relays_expect(const engine *run, int32_t transfer); /* ask for what is known of its next leg; 0: there is none */

/* ready.c: which task or transfer comes next */
void ready_push(engine *run, int32_t *root, int32_t node);
int32_t ready_pop(engine *run, int32_t *root);

/* groups.c: who is held back by which link, and when it has sent its last byte */
double group_rate(const engine *run, int32_t flow);    /* of a flow [bytes per us] */
double group_left(const engine *run, int32_t flow);    /* bytes it has left now */
void group_advance(engine *run, link *l);              /* bring `served` up to now */
void group_enter(engine *run, int32_t link_id, int32_t slot);
void group_leave(engine *run, int32_t flow);
void group_sum_other(const engine *run, link *l);      /* of the closed flows */
void group_schedule(engine *run, int32_t link_id);
void group_attach(engine *run, int32_t flow, int32_t transfer); /* a flow takes its place on its links */
void group_detach(engine *run, int32_t flow);
void group_renew(engine *run, int32_t flow, int32_t transfer);  /* the next transfer takes a flow's place over */
int32_t group_drained(engine *run, int32_t link_id, double limit, int32_t *flows);
void flow_turns(engine *run, int32_t flow, double before, double after); /* it begins or ceases to send */

/* rates.c: how links are shared */
void rates_resize(engine *run, int32_t link_id, double capacity);
void rates_update(engine *run);

/* contention.c: tasks that are slowed while collectives move */
void contention_count(engine *run, int32_t pair_id, int32_t transfer, int32_t by);
void contention_begin(engine *run, int32_t g, int32_t task);
void contention_settle(engine *run);
int64_t contention_ended(engine *run, double limit);

/* watch.c */
void watch_rates(engine *run);

/* accounts.c: where the time of each GPU goes. Call account_gpu before its state changes. */
void account_gpu(engine *run, int32_t g);
void account_snapshot(engine *run, int64_t row);
void account_pending(engine *run, int32_t pair_id, int32_t pending, int32_t lit);
void account_join(engine *run, int32_t pair_id, double size);
void account_leave(engine *run, int32_t pair_id, double size);
int64_t account_next_waiting(const engine *run, int64_t from);
void account_samples(engine *run, double until); /* what links carry up to each sample that is due by then */
void account_dark(engine *run, int32_t link_id, int32_t change);

#endif
