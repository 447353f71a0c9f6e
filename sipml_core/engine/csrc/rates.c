/* Max-min fair rates, kept up incrementally.
 *
 * A set of flows is max-min fair iff each has a bottleneck: a saturated link on which no flow is faster (Bertsekas
 * and Gallager, Data Networks, 6.5.2). When flows come, go, or capacities change, the flows held back by a link that
 * was touched are shared out again by progressive filling, all others keeping their rates. Where that takes away a
 * bottleneck from a flow outside the set, the flow joins and the filling is repeated.
 */
#include "state.h"

#include <math.h>

/* Rates closer than this, relatively, count as equal: far above rounding, far below what anyone can see. */
#define SAME_RATE 1e-11
/* A new rate this close to the old one is not worth a new event. */
#define UNCHANGED 1e-12
/* Spare capacity below this part of a link is what rounding left: none. */
#define NOTHING 1e-12
/* `used` is summed afresh after so many changes, before rounding errors add up. */
enum { CHANGES_MAX = 4096 };

static void touch(engine *run, int32_t link_id)
{
    if (!run->links[link_id].dirty) {
        run->links[link_id].dirty = 1;
        run->dirty[run->dirty_count++] = link_id;
    }
}

static void flow_starts(engine *run, link *l)
{
    if (l->flowing++ == 0)
        l->busy_since = run->now;
}

static void flow_stops(engine *run, link *l)
{
    if (--l->flowing == 0)
        l->busy += run->now - l->busy_since;
}

static void hold_back(engine *run, flow *f, int32_t link_id)
{
    if (f->bottleneck == link_id)
        return;
    if (f->bottleneck != NONE)
        run->links[f->bottleneck].held--;
    if (link_id != NONE)
        run->links[link_id].held++;
    f->bottleneck = link_id;
}

/* A new flow on the links of a pair. */
int32_t rates_attach(engine *run, int32_t pair_id)
{
    int32_t flow_id =
        run->spare_flow_count ? run->spare_flows[--run->spare_flow_count] : (int32_t)run->flow_count++;
    flow *f = &run->flows[flow_id];
    int64_t route = run->pairs[pair_id].route, crossing = flow_id * run->net.width;
    f->rate = 0;
    f->bottleneck = NONE;
    f->pair = pair_id;
    f->crossings = (int32_t)(run->pairs[pair_id + 1].route - route);
    run->fresh[run->fresh_count++] = flow_id;
    for (int32_t k = 0; k < f->crossings; k++, crossing++) {
        int32_t link_id = run->crossing_link[crossing] = run->route_link[route + k];
        link *l = &run->links[link_id];
        run->crossing_slot[crossing] = l->count;
        run->members[l->first + l->count++] = (member){flow_id, (int32_t)crossing};
        touch(run, link_id);
    }
    return flow_id;
}

void rates_detach(engine *run, int32_t flow_id)
{
    flow *f = &run->flows[flow_id];
    int64_t crossing = flow_id * run->net.width;
    hold_back(run, f, NONE);
    for (int32_t k = 0; k < f->crossings; k++, crossing++) {
        int32_t link_id = run->crossing_link[crossing];
        link *l = &run->links[link_id];
        member last = run->members[l->first + --l->count];
        run->members[l->first + run->crossing_slot[crossing]] = last;
        run->crossing_slot[last.crossing] = run->crossing_slot[crossing];
        l->used = l->count ? l->used - f->rate : 0;
        if (f->rate > 0)
            flow_stops(run, l);
        touch(run, link_id);
    }
    run->spare_flows[run->spare_flow_count++] = flow_id;
}

void rates_schedule(engine *run, int32_t flow_id)
{
    const flow *f = &run->flows[flow_id];
    if (f->rate > 0)
        heap_set(&run->drains, flow_id, f->since + f->left / f->rate);
    else
        heap_remove(&run->drains, flow_id);
}

void rates_change(engine *run, int32_t link_id, double capacity)
{
    link *l = &run->links[link_id];
    if (l->capacity == capacity)
        return;
    if ((l->capacity > 0) != (capacity > 0))
        account_dark(run, link_id, capacity > 0 ? -1 : 1);
    l->capacity = capacity;
    l->refill = 1;
    touch(run, link_id);
}

static void sum_used(engine *run, link *l)
{
    l->used = 0;
    l->changes = 0;
    for (int32_t m = 0; m < l->count; m++)
        l->used += run->flows[run->members[l->first + m].flow].rate;
}

/* Give a flow its new rate from now on. */
static void apply(engine *run, int32_t flow_id, double rate)
{
    flow *f = &run->flows[flow_id];
    double change = rate - f->rate;
    if (f->rate > 0 && change <= UNCHANGED * f->rate && -change <= UNCHANGED * f->rate)
        return;
    f->left -= f->rate * (run->now - f->since);
    if (f->left < 0)
        f->left = 0;
    f->since = run->now;
    int starts = rate > 0 && f->rate == 0, stops = rate == 0 && f->rate > 0;
    f->rate = rate;
    const int32_t *crossing = run->crossing_link + flow_id * run->net.width;
    for (int32_t k = 0; k < f->crossings; k++) {
        link *l = &run->links[crossing[k]];
        l->used += change;
        if (starts)
            flow_starts(run, l);
        if (stops)
            flow_stops(run, l);
        if (++l->changes > CHANGES_MAX)
            sum_used(run, l);
    }
    rates_schedule(run, flow_id);
}

/* A flow that meets no other gets its narrowest link, at once. */
static int alone(engine *run, int32_t flow_id)
{
    flow *f = &run->flows[flow_id];
    const int32_t *crossing = run->crossing_link + flow_id * run->net.width;
    int32_t narrowest = crossing[0];
    for (int32_t k = 0; k < f->crossings; k++) {
        int32_t link_id = crossing[k];
        if (run->links[link_id].count != 1)
            return 0;
        if (run->links[link_id].capacity < run->links[narrowest].capacity)
            narrowest = link_id;
    }
    hold_back(run, f, narrowest);
    apply(run, flow_id, run->links[narrowest].capacity);
    return 1;
}

static void include(engine *run, int32_t flow_id)
{
    flow *f = &run->flows[flow_id];
    if (f->stamp == run->stamp)
        return;
    f->stamp = run->stamp;
    if (!alone(run, flow_id))
        run->inside[run->inside_count++] = flow_id;
}

/* New flows, flows held back by a touched link, and all flows of a link whose capacity changed. */
static void collect_flows(engine *run)
{
    run->stamp++;
    run->inside_count = 0;
    for (int64_t i = 0; i < run->fresh_count; i++)
        include(run, run->fresh[i]);
    for (int64_t i = 0; i < run->dirty_count; i++) {
        int32_t link_id = run->dirty[i];
        link *l = &run->links[link_id];
        for (int32_t m = 0; m < l->count && (l->held || l->refill); m++) {
            int32_t flow_id = run->members[l->first + m].flow;
            if (l->refill || run->flows[flow_id].bottleneck == link_id)
                include(run, flow_id);
        }
        l->dirty = l->refill = 0;
    }
    run->fresh_count = run->dirty_count = 0;
}

static void visit(engine *run, int32_t link_id)
{
    link *l = &run->links[link_id];
    if (l->stamp == run->round)
        return;
    l->stamp = run->round;
    l->open = l->fixed = 0;
    l->level = -1;
    l->spare = l->capacity - l->used;
    run->around[run->around_count++] = link_id;
}

/* The links around the flows inside, each with what those outside leave of it. */
static void collect_links(engine *run)
{
    run->round++;
    run->around_count = 0;
    for (int64_t i = 0; i < run->inside_count; i++) {
        flow *f = &run->flows[run->inside[i]];
        const int32_t *crossing = run->crossing_link + run->inside[i] * run->net.width;
        f->phase = FILL_OPEN;
        for (int32_t k = 0; k < f->crossings; k++) {
            visit(run, crossing[k]);
            link *l = &run->links[crossing[k]];
            l->open++;
            l->spare += f->rate;
        }
    }
    run->shares.count = 0;
    for (int64_t i = 0; i < run->around_count; i++) {
        int32_t link_id = run->around[i];
        link *l = &run->links[link_id];
        l->inside = l->open;
        if (l->inside == l->count)
            l->spare = l->capacity;
        else if (l->capacity <= 0 || l->spare <= NOTHING * l->capacity)
            l->spare = 0;
        run->shares.slot[link_id] = (int32_t)run->shares.count;
        run->shares.items[run->shares.count++] = (item){l->spare / l->open, link_id};
    }
    heap_order(&run->shares);
}

static void fix(engine *run, int32_t flow_id, int32_t bottleneck, double rate)
{
    flow *f = &run->flows[flow_id];
    f->phase = FILL_FIXED;
    f->next_rate = rate;
    hold_back(run, f, bottleneck);
    const int32_t *crossing = run->crossing_link + flow_id * run->net.width;
    for (int32_t k = 0; k < f->crossings; k++) {
        int32_t link_id = crossing[k];
        link *l = &run->links[link_id];
        l->spare = l->spare > rate ? l->spare - rate : 0;
        if (--l->open == 0)
            heap_remove(&run->shares, link_id);
        else if (link_id != bottleneck)
            heap_set(&run->shares, link_id, l->spare / l->open);
    }
}

/* Progressive filling: the link with the least share holds back its open flows. */
static void fill(engine *run)
{
    while (run->shares.count) {
        double level = run->shares.items[0].key;
        int32_t link_id = heap_pop(&run->shares);
        link *l = &run->links[link_id];
        l->level = level;
        for (int32_t m = 0; m < l->count && l->open; m++) {
            int32_t flow_id = run->members[l->first + m].flow;
            const flow *f = &run->flows[flow_id];
            if (f->stamp == run->stamp && f->phase == FILL_OPEN) {
                l->fixed++;
                fix(run, flow_id, link_id, level);
            }
        }
    }
}

/* What must hold on a link around, and for which flow outside it does not. */
typedef struct limits {
    double too_fast; /* flows outside must not be faster ... */
    double released; /* ... nor those it holds back slower */
} limits;

static int breaks(const limits *m, const flow *f, int32_t link_id)
{
    return f->rate > m->too_fast || (f->bottleneck == link_id && f->rate < m->released);
}

/* Flows outside that a link around no longer holds back, or that it now should, join. */
static void widen_at(engine *run, int32_t link_id)
{
    link *l = &run->links[link_id];
    if (l->inside == l->count || (l->level < 0 && l->held == l->fixed))
        return;
    double fastest = 0, fastest_outside = 0, slowest_held = INFINITY;
    for (int32_t m = 0; m < l->count; m++) {
        const flow *f = &run->flows[run->members[l->first + m].flow];
        int is_inside = f->stamp == run->stamp && f->phase != FILL_JOINING;
        double rate = is_inside ? f->next_rate : f->rate;
        fastest = rate > fastest ? rate : fastest;
        if (f->stamp == run->stamp)
            continue;
        fastest_outside = rate > fastest_outside ? rate : fastest_outside;
        if (f->bottleneck == link_id && rate < slowest_held)
            slowest_held = rate;
    }
    int saturated = l->spare <= SAME_RATE * l->capacity;
    limits must = {l->level < 0 ? INFINITY : l->level * (1 + SAME_RATE),
                   saturated ? fastest * (1 - SAME_RATE) : INFINITY};
    if (fastest_outside <= must.too_fast && slowest_held >= must.released)
        return;
    for (int32_t m = 0; m < l->count; m++) {
        int32_t flow_id = run->members[l->first + m].flow;
        flow *f = &run->flows[flow_id];
        if (f->stamp == run->stamp || !breaks(&must, f, link_id))
            continue;
        f->stamp = run->stamp;
        f->phase = FILL_JOINING;
        run->inside[run->inside_count++] = flow_id;
    }
}

void rates_update(engine *run)
{
    collect_flows(run);
    for (int64_t before = -1; before != run->inside_count && run->inside_count;) {
        before = run->inside_count;
        collect_links(run);
        fill(run);
        for (int64_t i = 0; i < run->around_count; i++)
            widen_at(run, run->around[i]);
    }
    for (int64_t i = 0; i < run->inside_count; i++)
        apply(run, run->inside[i], run->flows[run->inside[i]].next_rate);
}
