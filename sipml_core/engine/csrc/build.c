/* Making an engine: checks, memory, indices. */
#ifdef __linux__
#define _DEFAULT_SOURCE /* madvise */
#endif

#include "state.h"

#include <math.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* Of the cache. [bytes] */
enum { LINE = 64 };

/* Tables from this size on ask for pages of HUGE_PAGE: they are read here and there, and a run waits for the addresses of
 * small pages a fifth of its time. [bytes] */
enum { HUGE_FROM = 1 << 22, HUGE_PAGE = 1 << 21 };

static int count_ok(int64_t n)
{
    return n >= 0 && n <= INT32_MAX;
}

static int all_in(const int32_t *values, int64_t count, int64_t low, int64_t stop)
{
    for (int64_t i = 0; i < count; i++)
        if (values[i] < low || values[i] >= stop)
            return 0;
    return 1;
}

static int all_finite(const double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(values[i] >= 0 && isfinite(values[i])))
            return 0;
    return 1;
}

static int hops_ok(const engine_graph *g)
{
    for (int64_t t = 0; t < g->transfers; t++)
        if (!(g->hops[t] >= 0 && isfinite(g->hops[t])))
            return 0;
    return 1;
}

static int check_graph(const engine_graph *g)
{
    int64_t nodes = g->tasks + g->transfers;
    if (!count_ok(g->gpus) || !count_ok(g->tasks) || !count_ok(g->transfers) || !count_ok(nodes) ||
        !count_ok(g->marks))
        return ENGINE_E_SIZE;
    if (!g->succ_start || (nodes && !g->priority) || (g->tasks && (!g->gpu || !g->duration_us)) ||
        (g->transfers && (!g->size_bytes || !g->hops)) || (g->marks && !g->mark))
        return ENGINE_E_NULL;
    if (g->succ_start[0] != 0)
        return ENGINE_E_INDEX;
    for (int64_t i = 0; i < nodes; i++)
        if (g->succ_start[i + 1] < g->succ_start[i])
            return ENGINE_E_INDEX;
    if (g->succ_start[nodes] && !g->successors)
        return ENGINE_E_NULL;
    if (!all_in(g->successors, g->succ_start[nodes], 0, nodes) || !all_in(g->gpu, g->tasks, NONE, g->gpus) ||
        !all_in(g->mark, g->marks, 0, g->tasks))
        return ENGINE_E_INDEX;
    if (!(g->slowdown >= 0 && g->slowdown < 1))
        return ENGINE_E_VALUE;
    if (!all_finite(g->duration_us, g->tasks) || !all_finite(g->size_bytes, g->transfers) ||
        !hops_ok(g) ||
        (g->startup_us && !all_finite(g->startup_us, g->transfers)))
        return ENGINE_E_VALUE;
    return 0;
}

static int check_network(const engine_graph *g, const engine_network *n)
{
    if (!count_ok(n->pairs) || !count_ok(n->links))
        return ENGINE_E_SIZE;
    if (!n->pair_start || (n->pairs && (!n->pair_src || !n->pair_dst || !n->pair_latency_us)) ||
        (g->transfers && !n->transfer_pair) || (n->links && !n->link_gbps))
        return ENGINE_E_NULL;
    if (n->pair_start[0] != 0)
        return ENGINE_E_INDEX;
    for (int64_t p = 0; p < n->pairs; p++)
        if (n->pair_start[p + 1] <= n->pair_start[p]) /* each pair crosses some link */
            return ENGINE_E_INDEX;
    int64_t entries = n->pair_start[n->pairs];
    if (!count_ok(entries))
        return ENGINE_E_SIZE;
    if (entries && (!n->pair_link || !n->pair_weight))
        return ENGINE_E_NULL;
    if (!all_in(n->pair_src, n->pairs, 0, g->gpus) || !all_in(n->pair_dst, n->pairs, 0, g->gpus) ||
        !all_in(n->pair_link, entries, 0, n->links) || !all_in(n->transfer_pair, g->transfers, 0, n->pairs) ||
        n->first_circuit < 0 || n->first_circuit > n->links)
        return ENGINE_E_INDEX;
    int status = g->relays ? relays_check(g, n->pairs) : 0;
    if (status)
        return status;
    if (!all_finite(n->pair_latency_us, n->pairs) || !all_finite(n->link_gbps, n->links) ||
        !all_finite(n->pair_weight, entries))
        return ENGINE_E_VALUE;
    for (int64_t k = 0; k < entries; k++)
        if (n->pair_weight[k] <= 0)
            return ENGINE_E_VALUE;
    return 0;
}

int engine_check(const engine_graph *graph, const engine_network *network)
{
    int status = check_graph(graph);
    return status ? status : check_network(graph, network);
}

/* A wish: nothing depends on whether it is granted. */
static void ask_for_huge_pages(char *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (bytes >= HUGE_FROM) {
        size_t skip = HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE;
        madvise(memory + skip, (bytes - skip) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
#else
    (void)memory;
    (void)bytes;
#endif
}

/* Room for `count` things, zeroed, that begins with a cache line; one more than asked, so that no request is empty. */
static int take(engine *run, void *where, int64_t count, size_t size)
{
    char *memory = run->taken_count < TAKEN_MAX ? calloc(((size_t)count + 1) * size + LINE, 1) : NULL;
    if (!memory)
        return 0;
    run->taken[run->taken_count++] = memory;
    ask_for_huge_pages(memory, (size_t)count * size);
    *(void **)where = memory + (LINE - (uintptr_t)memory % LINE);
    return 1;
}

static int64_t whole_blocks(int64_t count)
{
    return count > 32 ? (count + 31) / 32 * 32 : 32;
}

static int take_lows(engine *run, lows *of, int64_t ids)
{
    of->levels = 1;
    for (int32_t level = 0; level < LOWS_LEVELS; level++, ids = (ids + 31) / 32) {
        int64_t keys = whole_blocks(ids);
        if (!take(run, &of->keys[level], keys, sizeof(double)) ||
            !take(run, &of->stale[level], keys / 32, sizeof(uint32_t)))
            return 0;
        for (int64_t k = 0; k < keys; k++)
            of->keys[level][k] = INFINITY;
    }
    return 1;
}

/* Barriers that end later than they begin: all of them may wait for their time at once. */
static int64_t timed_barriers(const engine_graph *g)
{
    int64_t count = 0;
    for (int64_t node = 0; node < g->tasks; node++)
        count += g->gpu[node] == NONE && g->duration_us[node] > 0;
    return count;
}

static int take_memory(engine *run)
{
    const engine_network *n = &run->net;
    int64_t crossings = n->pair_start[n->pairs], circuits = n->links - n->first_circuit, gpus = run->graph.gpus;
#define TAKE(where, count) take(run, &run->where, count, sizeof *run->where)
    return TAKE(waits, run->nodes) && TAKE(child, run->nodes) && TAKE(sibling, run->nodes) &&
           TAKE(marked, run->graph.tasks) && TAKE(awaited, run->nodes) && TAKE(gpus, gpus) && TAKE(touched, gpus) &&
           TAKE(pairs, n->pairs) && TAKE(links, n->links) && TAKE(capacity, n->links) && TAKE(bytes, n->links) &&
           TAKE(crossings, crossings) && TAKE(weights, crossings) && TAKE(holder, n->pairs) &&
           TAKE(members, crossings) && TAKE(waiting, n->pairs / 64 + 1) &&
           TAKE(crossed, n->links / 64 + 1) && TAKE(dark, n->links / 64 + 1) && TAKE(circuit_first, circuits) && TAKE(circuit_pair, crossings) &&
           (!run->graph.relays || (TAKE(relays, run->graph.transfers) && TAKE(leg_priority, run->nodes) &&
                                   TAKE(leg_pair, run->graph.transfers))) &&
           TAKE(ends.items, gpus + run->graph.transfers + timed_barriers(&run->graph)) && take_lows(run, &run->drains, n->links) &&
           take_lows(run, &run->shares, n->links) && TAKE(group_link, n->links) && TAKE(free_groups, n->links) &&
           TAKE(place_link, n->links) && TAKE(listed, n->links) && TAKE(touched_gpus, gpus) &&
           TAKE(touched_queues, run->queues) && TAKE(touched_links, n->links) && TAKE(fresh, n->pairs) &&
           TAKE(due_groups, n->links) && TAKE(due_flows, n->pairs) &&
           (run->graph.slowdown <= 0 || (TAKE(contenders, gpus) && TAKE(touched_contenders, gpus) &&
                                         TAKE(due_gpus, gpus) && take_lows(run, &run->task_ends, gpus)));
#undef TAKE
}

static void make_links(engine *run)
{
    for (int64_t id = 0; id < run->net.links; id++) {
        run->capacity[id] = run->net.link_gbps[id] * BYTES_PER_US_PER_GBPS;
        run->links[id].place = NONE;
        if (id >= run->net.first_circuit && run->capacity[id] <= 0)
            run->dark[id / 64] |= UINT64_C(1) << id % 64;
    }
}

/* The crossings of each pair; a link that comes twice counts with the sum of its weights. And each link's part of the
 * table of members. */
static void index_routes(engine *run)
{
    const engine_network *n = &run->net;
    int32_t count = 0;
    for (int64_t id = 0; id < n->pairs; id++) {
        pair *p = &run->pairs[id];
        *p = (pair){.first = count, .src = n->pair_src[id], .dst = n->pair_dst[id],
                    .latency_us = n->pair_latency_us[id], .transfer = NONE, .line = {NONE, NONE}};
        run->holder[id] = NONE;
        for (int64_t k = n->pair_start[id]; k < n->pair_start[id + 1]; k++) {
            link *l = &run->links[n->pair_link[k]];
            if (l->count && l->first == id) {
                run->weights[l->place] += n->pair_weight[k];
                continue;
            }
            l->count++;
            l->first = (int32_t)id; /* the last pair seen on it, and where */
            l->place = count;
            run->weights[count] = n->pair_weight[k];
            run->crossings[count++] = (crossing){.link = n->pair_link[k]};
        }
        p->stop = count;
    }
    int32_t alike = 0;
    while (alike < count && run->weights[alike] == 1)
        alike++;
    if (alike == count)
        run->weights = NULL;
    count = 0;
    for (int64_t id = 0; id < n->links; id++) {
        link *l = &run->links[id];
        l->first = count;
        count += l->count;
        l->count = 0;
        l->place = NONE;
    }
}

/* Which pairs cross each circuit. */
static void index_circuits(engine *run)
{
    const engine_network *n = &run->net;
    int32_t *first = run->circuit_first, circuits = (int32_t)(n->links - n->first_circuit);
    int64_t crossings = n->pairs ? run->pairs[n->pairs - 1].stop : 0;
    for (int64_t k = 0; k < crossings; k++)
        if (run->crossings[k].link >= n->first_circuit)
            first[run->crossings[k].link - n->first_circuit + 1]++;
    for (int32_t c = 0; c < circuits; c++)
        first[c + 1] += first[c];
    for (int32_t id = 0; id < n->pairs; id++)
        for (int32_t k = run->pairs[id].first; k < run->pairs[id].stop; k++)
            if (run->crossings[k].link >= n->first_circuit)
                run->circuit_pair[first[run->crossings[k].link - n->first_circuit]++] = id;
    for (int32_t c = circuits; c > 0; c--) /* filling moved each start to the next */
        first[c] = first[c - 1];
    first[0] = 0;
}

static void set_out(engine *run)
{
    const engine_graph *g = &run->graph;
    for (int64_t k = 0; k < g->succ_start[run->nodes]; k++)
        run->waits[g->successors[k]]++;
    for (int64_t k = 0; k < g->marks; k++)
        run->marked[g->mark[k]] = 1;
    for (int64_t node = 0; node < run->nodes; node++)
        run->out.start_us[node] = run->out.end_us[node] = NAN;
    for (int64_t t = 0; run->out.record && t < g->transfers; t++)
        run->out.record[t] = (engine_record){NAN, NAN, NAN, NONE, 0};
    for (int64_t id = 0; id < g->gpus; id++)
        run->gpus[id] = (gpu){.running = NONE, .ready = NONE, .line = {NONE, NONE}};
    for (int64_t id = 0; run->contenders && id < g->gpus; id++)
        run->contenders[id].speed = 1;
}

static int output_given(const engine_output *o)
{
    return o->start_us && o->end_us && o->snapshot_us && o->compute_us && o->exposed_us && o->dark_us &&
           o->link_bytes && o->link_busy_us;
}

int engine_new(const engine_graph *graph, const engine_network *network, const engine_output *output, int queue,
               engine **made)
{
    engine *run = NULL;
    if (!made)
        return ENGINE_E_NULL;
    *made = NULL;
    if (!graph || !network || !output || !output_given(output))
        return ENGINE_E_NULL;
    if (queue != ENGINE_QUEUE_PAIR && queue != ENGINE_QUEUE_SOURCE)
        return ENGINE_E_VALUE;
    if (output->record && graph->relays)
        return ENGINE_E_VALUE;
    if (output->sample_bytes && (output->samples < 2 || output->samples % 2 || !(output->sample_us > 0)))
        return ENGINE_E_VALUE;
    int status = engine_check(graph, network);
    if (status)
        return status;
    run = calloc(1, sizeof *run);
    if (!run)
        return ENGINE_E_MEMORY;
    run->graph = *graph;
    run->net = *network;
    run->out = *output;
    run->queue_mode = queue;
    run->nodes = graph->tasks + graph->transfers;
    run->ends_due = run->nodes;
    run->priority = graph->priority;
    run->transfer_pair = network->transfer_pair;
    run->queues = queue == ENGINE_QUEUE_SOURCE ? graph->gpus : network->pairs;
    if (!take_memory(run)) {
        engine_free(run);
        return ENGINE_E_MEMORY;
    }
    set_out(run);
    if (graph->relays)
        relays_set_out(run);
    make_links(run);
    index_routes(run);
    index_circuits(run);
    *made = run;
    return 0;
}

void engine_free(engine *run)
{
    if (!run)
        return;
    for (int k = 0; k < run->taken_count; k++)
        free(run->taken[k]);
    free(run->watch);
    free(run);
}
