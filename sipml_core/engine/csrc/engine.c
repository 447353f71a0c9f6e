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
    if (!run->touched[g]) {
        run->touched[g] = 1;
        run->touched_gpus[run->touched_gpu_count++] = g;
    }
}

static int32_t queue_id(const engine *run, int32_t pair_id)
{
    return run->queue_mode == ENGINE_QUEUE_SOURCE ? run->pairs[pair_id].src : pair_id;
}

static queue *queue_at(const engine *run, int32_t id)
{
    return run->queue_mode == ENGINE_QUEUE_SOURCE ? &run->gpus[id].line : &run->pairs[id].line;
}

/* A node begins. Ask for what is known of those that may follow it, long before it is needed: there are many pairs, and
 * few of them are active. */
static void expect_successors(const engine *run, int32_t node)
{
    for (int64_t k = run->graph.succ_start[node]; k < run->graph.succ_start[node + 1]; k++) {
        int32_t next = run->graph.successors[k];
        __builtin_prefetch(&run->waits[next], 1);
        if (is_transfer(run, next))
            __builtin_prefetch(&run->pairs[run->transfer_pair[next - run->graph.tasks]], 1);
    }
}

/* A queue may send something new if one joins where nothing sent or waited, or if a last byte has left. */
static void join_queue(engine *run, int32_t node)
{
    int32_t t = node - (int32_t)run->graph.tasks, p = run->transfer_pair[t], id = queue_id(run, p);
    queue *line = queue_at(run, id);
    __builtin_prefetch(&run->crossings[run->pairs[p].first], 1);
    __builtin_prefetch(&run->holder[p], 1);
    run->events++;
    run->out.start_us[node] = run->now;
    account_join(run, p, run->graph.size_bytes[t]);
    int at_once = line->root == NONE && line->active == NONE;
    ready_push(run, &line->root, node);
    if (!at_once)
        return;
    run->touched_queues[run->touched_queue_count++] = id;
    for (int32_t k = run->pairs[p].first; k < run->pairs[p].stop; k++) {
        const link *l = &run->links[run->crossings[k].link];
        __builtin_prefetch(l, 1);
        __builtin_prefetch(&l->changes, 1); /* its second line */
    }
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

/* Returns whether the barrier has ended as well: one with a duration ends later. */
static int start_barrier(engine *run, int32_t node)
{
    run->events++;
    run->out.start_us[node] = run->now;
    if (run->graph.duration_us[node] <= 0)
        return 1;
    heap_push(&run->ends, node, run->now + run->graph.duration_us[node]);
    return 0;
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
        if (run->awaited[node]) {
            run->awaited[node] = 0;
            run->reached = --run->awaiting == 0;
        }
        for (int64_t k = g->succ_start[node]; k < g->succ_start[node + 1]; k++) {
            int32_t next = g->successors[k];
            if (--run->waits[next] > 0)
                continue;
            if (!is_barrier(run, next)) {
                become_ready(run, next);
            } else if (start_barrier(run, next)) {
                run->sibling[next] = list;
                list = next;
            }
        }
    }
}

/* A transfer has arrived. One that is passed on joins the queue of its next leg. */
static void end_transfer(engine *run, int32_t node)
{
    int32_t t = node - (int32_t)run->graph.tasks;
    account_pending(run, run->transfer_pair[t], -1, -1);
    if (run->relays && relays_go_on(run, t)) {
        run->ended++;
        join_queue(run, node);
        return;
    }
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
    if (g != NONE) {
        account_gpu(run, g);
        run->gpus[g].running = NONE;
        touch_gpu(run, g);
    }
    finish(run, node);
}

/* The last byte of a transfer has left; it arrives after the latency. */
static double leave_queue(engine *run, int32_t p, int32_t t)
{
    run->events++;
    account_leave(run, p, run->graph.size_bytes[t]);
    double startup = run->graph.startup_us ? run->graph.startup_us[t] : 0;
    return run->graph.hops[t] * run->pairs[p].latency_us + startup;
}

static void drain(engine *run, int32_t flow)
{
    int32_t t = run->pairs[flow].transfer, node = t + (int32_t)run->graph.tasks;
    double latency = leave_queue(run, flow, t);
    if (run->out.record) {
        run->out.record[t].left_us = run->now;
        run->out.record[t].held_by = run->holder[flow];
    }
    run->pairs[flow].transfer = NONE;
    if (run->contenders)
        contention_count(run, flow, t, -1);
    run->touched_queues[run->touched_queue_count++] = queue_id(run, flow);
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
        if (run->out.record)
            run->out.record[t].head_us = run->now;
        if (run->graph.size_bytes[t] > 0)
            return t;
        if (run->out.record)
            run->out.record[t].moved_us = run->out.record[t].left_us = run->now;
        heap_push(&run->ends, node, run->now + leave_queue(run, run->transfer_pair[t], t));
    }
    return NONE;
}

/* Give a queue without a sender its next transfer. One on the same links takes over the rate of the last. */
static void serve_queue(engine *run, queue *line)
{
    int32_t last = line->active;
    int32_t t = next_in_queue(run, line), p = t == NONE ? NONE : run->transfer_pair[t];
    line->active = p;
    if (t != NONE) {
        if (!run->relays || !relays_expect(run, t))
            expect_successors(run, t + (int32_t)run->graph.tasks);
        if (run->contenders)
            contention_count(run, p, t, 1);
    }
    if (last != NONE && last == p) {
        group_renew(run, p, t);
        return;
    }
    if (last != NONE)
        group_detach(run, last);
    if (p != NONE)
        group_attach(run, p, t);
}

static void serve_gpu(engine *run, int32_t id)
{
    gpu *g = &run->gpus[id];
    run->touched[id] = 0;
    if (g->running != NONE || g->ready == NONE)
        return;
    account_gpu(run, id);
    int32_t task = g->running = ready_pop(run, &g->ready);
    run->out.start_us[task] = run->now;
    if (run->contenders)
        contention_begin(run, id, task);
    else
        heap_push(&run->ends, task, run->now + run->graph.duration_us[task]);
    expect_successors(run, task);
}

static void settle(engine *run)
{
    for (int64_t i = 0; i < run->touched_gpu_count; i++)
        serve_gpu(run, run->touched_gpus[i]);
    for (int64_t i = 0; i < run->touched_queue_count; i++)
        serve_queue(run, queue_at(run, run->touched_queues[i]));
    run->touched_gpu_count = run->touched_queue_count = 0;
    if (run->touched_contender_count)
        contention_settle(run);
    if (run->fresh_count || run->touched_link_count)
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
        if (!is_barrier(run, node))
            become_ready(run, node);
        else if (start_barrier(run, node))
            finish(run, node);
    }
    settle(run);
}

static double next_event(engine *run)
{
    double ends = run->ends.count ? run->ends.items[0].key : INFINITY;
    run->next_drain = lows_least(&run->drains);
    if (run->contenders) {
        double task_end = lows_least(&run->task_ends);
        ends = task_end < ends ? task_end : ends;
    }
    return ends < run->next_drain ? ends : run->next_drain;
}

/* Since next_event was asked no key has been set. */
static void drain_groups(engine *run, double limit)
{
    if (run->next_drain > limit)
        return;
    int64_t groups = lows_collect(&run->drains, limit, run->due_groups);
    for (int64_t i = 0; i < groups; i++) {
        int32_t count = group_drained(run, run->group_link[run->due_groups[i]], limit, run->due_flows);
        for (int32_t k = 0; k < count; k++)
            drain(run, run->due_flows[k]);
    }
}

static void pass_time(engine *run, double until)
{
    if (run->out.sample_bytes)
        account_samples(run, until);
    if (until > run->now)
        run->now = until;
}

static void instant(engine *run, double at)
{
    double limit = at + SAME_TIME * at;
    pass_time(run, at);
    drain_groups(run, limit);
    if (run->contenders) {
        int64_t ended = contention_ended(run, limit);
        for (int64_t i = 0; i < ended; i++)
            end_node(run, run->gpus[run->due_gpus[i]].running);
    }
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
        if (run->fault)
            return run->fault;
        double next = next_event(run);
        if (run->ended == run->ends_due)
            return ENGINE_DONE;
        if (run->reached) {
            run->reached = 0;
            return ENGINE_REACHED;
        }
        if (isinf(next) && isinf(until_us))
            return ENGINE_STALLED;
        if (next > limit) {
            pass_time(run, until_us);
            return ENGINE_PAUSED;
        }
        if (run->events - first >= max_events)
            return ENGINE_BUDGET;
        instant(run, next < until_us ? next : until_us);
    }
}

int engine_await(engine *run, int64_t count, const int32_t *nodes)
{
    if (!run || (count > 0 && !nodes))
        return ENGINE_E_NULL;
    for (int64_t i = 0; i < count; i++)
        if (nodes[i] < 0 || nodes[i] >= run->nodes)
            return ENGINE_E_INDEX;
    memset(run->awaited, 0, (size_t)run->nodes * sizeof *run->awaited);
    run->awaiting = 0;
    for (int64_t i = 0; i < count; i++)
        if (isnan(run->out.end_us[nodes[i]]) && !run->awaited[nodes[i]]) {
            run->awaited[nodes[i]] = 1;
            run->awaiting++;
        }
    run->reached = count > 0 && run->awaiting == 0;
    return 0;
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
        rates_resize(run, link_ids[i], gbps[i] * BYTES_PER_US_PER_GBPS);
    if (run->touched_link_count)
        rates_update(run);
    return run->fault;
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

int engine_is_moving(engine *run)
{
    return next_event(run) < INFINITY;
}

int64_t engine_active(const engine *run, int32_t *transfer, double *gbps)
{
    int64_t count = 0;
    for (int64_t p = account_next_waiting(run, 0); p < run->net.pairs; p = account_next_waiting(run, p + 1))
        if (run->pairs[p].transfer != NONE) {
            transfer[count] = run->pairs[p].transfer;
            gbps[count++] = group_rate(run, (int32_t)p) / BYTES_PER_US_PER_GBPS;
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
    case ENGINE_E_RATES: return "a fault of the engine: rates are not max-min fair";
    default: return status < 0 ? "unknown error" : "no error";
    }
}
