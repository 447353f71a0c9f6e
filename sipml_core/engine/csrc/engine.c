/* The course of a run: what happens at each instant, and what starts after it. */
#include "state.h"

#include <math.h>
#include <string.h>

static int is_transfer(const engine *run, int32_t node)
{
    return node >= run->graph.tasks;
}

static void touch_gpu(engine *run, int32_t g)
{
    if (!run->gpus[g].touched) {
        run->gpus[g].touched = 1;
        run->touched_gpus[run->touched_gpu_count++] = g;
    }
}

static int32_t queue_of(const engine *run, int32_t pair_id)
{
    return run->queue_mode == ENGINE_QUEUE_SOURCE ? run->net.pair_src[pair_id] : pair_id;
}

static void touch_queue(engine *run, int32_t q)
{
    if (!run->queue[q].touched) {
        run->queue[q].touched = 1;
        run->touched_queues[run->touched_queue_count++] = q;
    }
}

static void join_queue(engine *run, int32_t node)
{
    int32_t t = node - (int32_t)run->graph.tasks, p = run->net.transfer_pair[t], q = queue_of(run, p);
    run->events++;
    run->out.start_us[node] = run->now;
    run->pairs[p].waiting++;
    run->pairs[p].queued += run->graph.size_bytes[t];
    account_pending(run, p, 1, run->pairs[p].dark == 0);
    ready_push(run, &run->queue[q].root, node);
    touch_queue(run, q);
}

static void become_ready(engine *run, int32_t node)
{
    if (is_transfer(run, node)) {
        join_queue(run, node);
        return;
    }
    int32_t g = run->graph.gpu[node];
    ready_push(run, &run->gpus[g].ready, node);
    touch_gpu(run, g);
}

static int is_barrier(const engine *run, int32_t node)
{
    return !is_transfer(run, node) && run->graph.gpu[node] == NONE;
}

static void start_barrier(engine *run, int32_t node)
{
    run->events++;
    run->out.start_us[node] = run->now;
}

static void fire_marks(engine *run, int32_t node)
{
    if (is_transfer(run, node) || !run->marked[node])
        return;
    for (int64_t k = 0; k < run->graph.marks; k++)
        if (run->graph.mark[k] == node)
            account_snapshot(run, k);
}

/* End a node, and every barrier that this releases, one after the other: chains may be long. */
static void finish(engine *run, int32_t node)
{
    const engine_graph *g = &run->graph;
    int32_t list = node;
    run->sibling[node] = NONE;
    while (list != NONE) {
        node = list;
        list = run->sibling[node];
        run->out.end_us[node] = run->now;
        run->ended++;
        fire_marks(run, node);
        for (int64_t k = g->succ_start[node]; k < g->succ_start[node + 1]; k++) {
            int32_t next = g->successors[k];
            if (--run->waits[next] > 0)
                continue;
            if (is_barrier(run, next)) {
                start_barrier(run, next);
                run->sibling[next] = list;
                list = next;
            } else {
                become_ready(run, next);
            }
        }
    }
}

static void end_transfer(engine *run, int32_t node)
{
    account_pending(run, run->net.transfer_pair[node - run->graph.tasks], -1, -1);
    finish(run, node);
}

static void end_node(engine *run, int32_t node)
{
    run->events++;
    if (is_transfer(run, node)) {
        end_transfer(run, node);
        return;
    }
    int32_t g = run->graph.gpu[node];
    account_gpu(run, g);
    run->gpus[g].running = NONE;
    touch_gpu(run, g);
    finish(run, node);
}

/* The last byte of a transfer has left; it arrives after the latency. */
static void leave_queue(engine *run, int32_t p, int32_t t)
{
    run->events++;
    double size = run->graph.size_bytes[t];
    pair *of = &run->pairs[p];
    of->queued = --of->waiting ? of->queued - size : 0;
    if (of->dark)
        account_pending(run, p, 0, 1);
    for (int64_t k = of->route; k < of[1].route; k++)
        run->links[run->route_link[k]].bytes += size;
}

static void drain(engine *run, int32_t flow_id)
{
    int32_t t = run->flows[flow_id].transfer, p = run->flows[flow_id].pair;
    int32_t node = t + (int32_t)run->graph.tasks;
    double latency = run->graph.hops[t] * run->net.pair_latency_us[p];
    leave_queue(run, p, t);
    run->flows[flow_id].transfer = NONE;
    touch_queue(run, queue_of(run, p));
    if (latency > 0)
        heap_push(&run->ends, node, run->now + latency);
    else
        end_transfer(run, node);
}

/* The next transfer of a queue that has bytes, or NONE; those without bytes before it take their latency only. */
static int32_t next_in_queue(engine *run, queue *line)
{
    while (line->root != NONE) {
        int32_t node = ready_pop(run, &line->root), t = node - (int32_t)run->graph.tasks;
        if (run->graph.size_bytes[t] > 0)
            return t;
        int32_t p = run->net.transfer_pair[t];
        leave_queue(run, p, t);
        heap_push(&run->ends, node, run->now + run->graph.hops[t] * run->net.pair_latency_us[p]);
    }
    return NONE;
}

/* Give a queue without a sender its next transfer. One on the same links takes over the rate of the last. */
static void serve_queue(engine *run, int32_t q)
{
    queue *line = &run->queue[q];
    int32_t last = line->active;
    line->touched = 0;
    if (last != NONE && run->flows[last].transfer != NONE)
        return;
    int32_t t = next_in_queue(run, line), p = t == NONE ? NONE : run->net.transfer_pair[t];
    int takes_over = last != NONE && run->flows[last].pair == p;
    if (last != NONE && !takes_over)
        rates_detach(run, last);
    line->active = takes_over ? last : p == NONE ? NONE : rates_attach(run, p);
    if (line->active == NONE)
        return;
    flow *f = &run->flows[line->active];
    f->transfer = t;
    f->left = run->graph.size_bytes[t];
    f->since = run->now;
    if (takes_over)
        rates_schedule(run, last);
}

static void serve_gpu(engine *run, int32_t id)
{
    gpu *g = &run->gpus[id];
    g->touched = 0;
    if (g->running != NONE || g->ready == NONE)
        return;
    account_gpu(run, id);
    int32_t task = g->running = ready_pop(run, &g->ready);
    run->out.start_us[task] = run->now;
    heap_push(&run->ends, task, run->now + run->graph.duration_us[task]);
}

static void settle(engine *run)
{
    for (int64_t i = 0; i < run->touched_gpu_count; i++)
        serve_gpu(run, run->touched_gpus[i]);
    for (int64_t i = 0; i < run->touched_queue_count; i++)
        serve_queue(run, run->touched_queues[i]);
    run->touched_gpu_count = run->touched_queue_count = 0;
    if (run->dirty_count)
        rates_update(run);
}

static void start(engine *run)
{
    int32_t roots = NONE;
    run->started = 1;
    for (int64_t node = run->nodes - 1; node >= 0; node--)
        if (run->waits[node] == 0) {
            run->sibling[node] = roots;
            roots = (int32_t)node;
        }
    while (roots != NONE) {
        int32_t node = roots;
        roots = run->sibling[node];
        if (is_barrier(run, node)) {
            start_barrier(run, node);
            finish(run, node);
        } else {
            become_ready(run, node);
        }
    }
    settle(run);
}

static double next_event(const engine *run)
{
    double ends = run->ends.count ? run->ends.items[0].key : INFINITY;
    double drains = run->drains.count ? run->drains.items[0].key : INFINITY;
    return ends < drains ? ends : drains;
}

static void instant(engine *run, double at)
{
    double limit = at + SAME_TIME * at;
    if (at > run->now)
        run->now = at;
    while (run->drains.count && run->drains.items[0].key <= limit)
        drain(run, heap_pop(&run->drains));
    while (run->ends.count && run->ends.items[0].key <= limit)
        end_node(run, heap_pop(&run->ends));
    settle(run);
}

int engine_run(engine *run, double until_us, int64_t max_events)
{
    if (!run)
        return ENGINE_E_NULL;
    if (isnan(until_us))
        return ENGINE_E_VALUE;
    if (!run->started)
        start(run);
    int64_t first = run->events;
    double limit = until_us + SAME_TIME * until_us;
    for (;;) {
        double next = next_event(run);
        if (run->ended == run->nodes)
            return ENGINE_DONE;
        if (isinf(next) && isinf(until_us))
            return ENGINE_STALLED;
        if (next > limit) {
            if (until_us > run->now)
                run->now = until_us;
            return ENGINE_PAUSED;
        }
        if (run->events - first >= max_events)
            return ENGINE_BUDGET;
        instant(run, next < until_us ? next : until_us);
    }
}

int engine_set_capacity(engine *run, int64_t count, const int32_t *link_ids, const double *gbps)
{
    if (!run || (count && (!link_ids || !gbps)))
        return ENGINE_E_NULL;
    for (int64_t i = 0; i < count; i++) {
        if (link_ids[i] < 0 || link_ids[i] >= run->net.links)
            return ENGINE_E_INDEX;
        if (!(gbps[i] >= 0 && isfinite(gbps[i])))
            return ENGINE_E_VALUE;
    }
    for (int64_t i = 0; i < count; i++)
        rates_change(run, link_ids[i], gbps[i] * BYTES_PER_US_PER_GBPS);
    if (run->dirty_count)
        rates_update(run);
    return 0;
}

double engine_now_us(const engine *run)
{
    return run->now;
}

int64_t engine_events(const engine *run)
{
    return run->events;
}

int64_t engine_ended(const engine *run)
{
    return run->ended;
}

int engine_is_moving(const engine *run)
{
    return run->ends.count > 0 || run->drains.count > 0;
}

int64_t engine_active(const engine *run, int32_t *transfer, double *gbps)
{
    int64_t count = 0;
    for (int64_t id = 0; id < run->flow_count; id++)
        if (run->flows[id].transfer != NONE) {
            transfer[count] = run->flows[id].transfer;
            gbps[count++] = run->flows[id].rate / BYTES_PER_US_PER_GBPS;
        }
    return count;
}

void engine_waits(const engine *run, int32_t *waits)
{
    memcpy(waits, run->waits, (size_t)run->nodes * sizeof *waits);
}

const char *engine_strerror(int status)
{
    switch (status) {
    case ENGINE_E_NULL: return "a pointer that must be given is NULL";
    case ENGINE_E_MEMORY: return "out of memory";
    case ENGINE_E_SIZE: return "a count is negative or beyond 2^31 - 1";
    case ENGINE_E_INDEX: return "a GPU, node, pair or link is out of range";
    case ENGINE_E_VALUE: return "a time, size or capacity is negative or not a number";
    case ENGINE_E_CYCLE: return "the graph has a dependency cycle";
    default: return status < 0 ? "unknown error" : "no error";
    }
}
