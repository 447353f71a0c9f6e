/* What the engine's source files share. */
#ifndef SIPML_ENGINE_STATE_H
#define SIPML_ENGINE_STATE_H

#include "engine.h"

enum { NONE = -1 };

#define BYTES_PER_US_PER_GBPS 125.0

/* Relative width of an instant. */
#define SAME_TIME 1e-12

typedef struct item {
    double key;
    int32_t id;
} item;

/* A heap of (key, id), lowest first. With `slot` (where each id stands, NONE: nowhere) keys can be changed. */
typedef struct heap {
    int64_t count;
    item *items;
    int32_t *slot;
} heap;

void heap_push(heap *h, int32_t id, double key);
void heap_set(heap *h, int32_t id, double key); /* needs slot: insert, or change the key */
void heap_remove(heap *h, int32_t id);          /* needs slot: nothing if it is not there */
int32_t heap_pop(heap *h);
void heap_order(heap *h);                       /* after items were appended in any order */

/* Where a flow stands while it is shared out again. */
enum fill_phase { FILL_OPEN, FILL_FIXED, FILL_JOINING };

/* The active transfer of a queue. There are few at a time, so they live in slots that are used again: their
 * crossings of links are [slot * width, slot * width + crossings). */
typedef struct flow {
    double rate;  /* bytes per us */
    double left;  /* bytes left at `since` */
    double since;
    double next_rate;
    int64_t stamp; /* equals engine.stamp while the flow is being shared out again */
    int32_t transfer; /* NONE: its last byte has left, and its place on the links may be taken over */
    int32_t pair;
    int32_t bottleneck;
    int32_t phase;
    int32_t crossings;
} flow;

typedef struct pair {
    double queued; /* bytes of transfers that joined and have not sent their last byte */
    int64_t route; /* first of its links; the next pair's is the end */
    int32_t waiting; /* how many those are */
    int32_t dark;    /* circuit links on the route that carry nothing */
} pair;

/* One active transfer on one link. */
typedef struct member {
    int32_t flow;
    int32_t crossing;
} member;

typedef struct link {
    double capacity; /* bytes per us */
    double used;
    double spare;    /* while sharing out: capacity left for open flows */
    double level;    /* while sharing out: rate of the flows it holds back */
    int64_t stamp;
    int64_t first;   /* of its members */
    int32_t count;   /* of its members */
    int32_t held;    /* flows whose bottleneck it is */
    int32_t open;    /* while sharing out: open flows */
    int32_t inside;  /* while sharing out: flows shared out again */
    int32_t fixed;   /* while sharing out: flows it was found to hold back */
    int32_t flowing; /* members with a positive rate */
    int32_t changes; /* since `used` was summed afresh */
    uint8_t dirty;   /* on the list of links to look at */
    uint8_t refill;  /* its capacity changed: share out all its members */
    double bytes;    /* of transfers whose last byte has left */
    double busy;
    double busy_since;
} link;

enum gpu_time { TIME_COMPUTE, TIME_EXPOSED, TIME_DARK, TIME_IDLE, TIME_KINDS };

typedef struct gpu {
    double since;
    double time[TIME_KINDS];
    int32_t running; /* task, or NONE */
    int32_t ready;   /* root of its ready tasks */
    int32_t pending; /* transfers to or from it that joined and have not ended */
    int32_t lit;     /* of those, the ones that do not wait for a dark circuit */
    uint8_t touched;
} gpu;

typedef struct queue {
    int32_t root;   /* of the transfers that wait */
    int32_t active; /* flow of the one that sends, or NONE */
    uint8_t touched;
} queue;

struct engine {
    engine_graph graph;
    engine_network net;
    engine_output out;
    int queue_mode;
    int started;
    double now;
    int64_t events;
    int64_t ended;
    int64_t nodes;
    int64_t queues;

    int32_t *waits;   /* [nodes] */
    int32_t *child;   /* [nodes] pairing heaps of ready tasks and queued transfers */
    int32_t *sibling; /* [nodes] */
    uint8_t *marked;  /* [tasks] */
    gpu *gpus;
    queue *queue;
    pair *pairs; /* [pairs + 1] */
    flow *flows; /* [pairs], of which flow_count were ever used */
    link *links;

    int32_t *route_link;    /* links of all pairs, without padding */
    int32_t *crossing_link; /* [pairs * width] */
    int32_t *crossing_slot; /* [pairs * width] place among the members of its link */
    member *members;        /* of all links */
    int32_t *spare_flows;   /* [pairs] */
    int64_t flow_count, spare_flow_count;
    int64_t *circuit_first; /* [circuits + 1] */
    int32_t *circuit_pair;  /* pairs that cross each circuit */

    heap ends;   /* tasks and arrivals of transfers, by node */
    heap drains; /* last bytes of active transfers, by flow */
    heap shares; /* links, while sharing out */

    int32_t *touched_gpus;
    int32_t *touched_queues;
    int32_t *fresh; /* flows attached in this instant */
    int32_t *dirty; /* links */
    int32_t *inside; /* flows shared out again */
    int32_t *around; /* links they cross */
    int64_t touched_gpu_count, touched_queue_count, fresh_count, dirty_count, inside_count, around_count;
    int64_t stamp;
    int64_t round;
};

/* build.c */
int engine_check(const engine_graph *graph, const engine_network *network);

/* ready.c: which task or transfer comes next */
void ready_push(engine *run, int32_t *root, int32_t node);
int32_t ready_pop(engine *run, int32_t *root);

/* rates.c: who gets how much of which link */
int32_t rates_attach(engine *run, int32_t pair_id);
void rates_detach(engine *run, int32_t flow_id);
void rates_schedule(engine *run, int32_t flow_id);
void rates_change(engine *run, int32_t link_id, double capacity);
void rates_update(engine *run);

/* accounts.c: where the time of each GPU goes. Call account_gpu before its state changes. */
void account_gpu(engine *run, int32_t g);
void account_snapshot(engine *run, int64_t row);
void account_pending(engine *run, int32_t pair_id, int32_t pending, int32_t lit);
void account_dark(engine *run, int32_t link_id, int32_t change);

#endif
