/* Making an engine: checks, memory, indices. */
#include "state.h"

#include <math.h>
#include <stdlib.h>

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
    if (!all_finite(g->duration_us, g->tasks) || !all_finite(g->size_bytes, g->transfers) ||
        !all_finite(g->hops, g->transfers))
        return ENGINE_E_VALUE;
    return 0;
}

static int has_links(const engine_network *n, int64_t p)
{
    for (int64_t k = p * n->width; k < (p + 1) * n->width; k++)
        if (n->pair_links[k] != NONE)
            return 1;
    return 0;
}

static int check_network(const engine_graph *g, const engine_network *n)
{
    if (!count_ok(n->pairs) || !count_ok(n->links) || !count_ok(n->width) || !count_ok(n->pairs * n->width))
        return ENGINE_E_SIZE;
    if ((n->pairs && (!n->pair_src || !n->pair_dst || !n->pair_links || !n->pair_latency_us)) ||
        (g->transfers && !n->transfer_pair) || (n->links && !n->link_gbps))
        return ENGINE_E_NULL;
    if (!all_in(n->pair_src, n->pairs, 0, g->gpus) || !all_in(n->pair_dst, n->pairs, 0, g->gpus) ||
        !all_in(n->pair_links, n->pairs * n->width, NONE, n->links) ||
        !all_in(n->transfer_pair, g->transfers, 0, n->pairs) || n->first_circuit < 0 || n->first_circuit > n->links)
        return ENGINE_E_INDEX;
    for (int64_t p = 0; p < n->pairs; p++)
        if (!has_links(n, p))
            return ENGINE_E_INDEX;
    if (!all_finite(n->pair_latency_us, n->pairs) || !all_finite(n->link_gbps, n->links))
        return ENGINE_E_VALUE;
    return 0;
}

int engine_check(const engine_graph *graph, const engine_network *network)
{
    int status = check_graph(graph);
    return status ? status : check_network(graph, network);
}

/* Room for `count` things, zeroed; one more than asked, so that no request is empty. */
static int take(void *where, int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    *(void **)where = memory;
    return memory != NULL;
}

static int take_heap(heap *h, int64_t room, int64_t ids)
{
    if (!take(&h->items, room, sizeof *h->items) || (ids && !take(&h->slot, ids, sizeof *h->slot)))
        return 0;
    for (int64_t id = 0; id < ids; id++)
        h->slot[id] = NONE;
    return 1;
}

static int64_t count_crossings(const engine_network *n)
{
    int64_t crossings = 0;
    for (int64_t k = 0; k < n->pairs * n->width; k++)
        crossings += n->pair_links[k] != NONE;
    return crossings;
}

static int take_memory(engine *run)
{
    const engine_network *n = &run->net;
    int64_t crossings = count_crossings(n), circuits = n->links - n->first_circuit;
    return take(&run->waits, run->nodes, sizeof *run->waits) && take(&run->child, run->nodes, sizeof *run->child) &&
           take(&run->sibling, run->nodes, sizeof *run->sibling) &&
           take(&run->marked, run->graph.tasks, sizeof *run->marked) &&
           take(&run->gpus, run->graph.gpus, sizeof *run->gpus) &&
           take(&run->queue, run->queues, sizeof *run->queue) && take(&run->pairs, n->pairs, sizeof *run->pairs) &&
           take(&run->flows, n->pairs, sizeof *run->flows) && take(&run->links, n->links, sizeof *run->links) &&
           take(&run->route_link, crossings, sizeof *run->route_link) &&
           take(&run->crossing_link, n->pairs * n->width, sizeof *run->crossing_link) &&
           take(&run->crossing_slot, n->pairs * n->width, sizeof *run->crossing_slot) &&
           take(&run->members, crossings, sizeof *run->members) &&
           take(&run->spare_flows, n->pairs, sizeof *run->spare_flows) &&
           take(&run->circuit_first, circuits, sizeof *run->circuit_first) &&
           take(&run->circuit_pair, crossings, sizeof *run->circuit_pair) &&
           take_heap(&run->ends, run->graph.gpus + run->graph.transfers, 0) &&
           take_heap(&run->drains, n->pairs, n->pairs) && take_heap(&run->shares, n->links, n->links) &&
           take(&run->touched_gpus, run->graph.gpus, sizeof *run->touched_gpus) &&
           take(&run->touched_queues, run->queues, sizeof *run->touched_queues) &&
           take(&run->fresh, n->pairs, sizeof *run->fresh) && take(&run->dirty, n->links, sizeof *run->dirty) &&
           take(&run->inside, n->pairs, sizeof *run->inside) && take(&run->around, n->links, sizeof *run->around);
}

/* The links of each route without their padding, and each link's share of the table of members. */
static void index_routes(engine *run)
{
    const engine_network *n = &run->net;
    int64_t crossing = 0;
    for (int64_t p = 0; p < n->pairs; p++) {
        run->pairs[p].route = crossing;
        for (int64_t k = p * n->width; k < (p + 1) * n->width; k++)
            if (n->pair_links[k] != NONE)
                run->route_link[crossing++] = n->pair_links[k];
    }
    run->pairs[n->pairs].route = crossing;
    for (int64_t k = 0; k < crossing; k++)
        run->links[run->route_link[k] + 1].first++; /* there is one more than links */
    for (int64_t id = 0; id < n->links; id++)
        run->links[id + 1].first += run->links[id].first;
}

static void index_circuits(engine *run)
{
    const engine_network *n = &run->net;
    int64_t circuits = n->links - n->first_circuit;
    for (int64_t c = 0; c <= circuits; c++)
        run->circuit_first[c] = run->links[n->first_circuit + c].first - run->links[n->first_circuit].first;
    for (int64_t p = 0; p < n->pairs; p++)
        for (int64_t k = run->pairs[p].route; k < run->pairs[p + 1].route; k++) {
            int64_t circuit = run->route_link[k] - n->first_circuit;
            if (circuit < 0)
                continue;
            run->circuit_pair[run->circuit_first[circuit]++] = (int32_t)p;
            run->pairs[p].dark += run->links[run->route_link[k]].capacity <= 0;
        }
    for (int64_t c = circuits; c > 0; c--) /* filling moved each start to the next */
        run->circuit_first[c] = run->circuit_first[c - 1];
    run->circuit_first[0] = 0;
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
    for (int64_t id = 0; id < g->gpus; id++)
        run->gpus[id].running = run->gpus[id].ready = NONE;
    for (int64_t id = 0; id < run->queues; id++)
        run->queue[id].root = run->queue[id].active = NONE;
    for (int64_t id = 0; id < run->net.links; id++)
        run->links[id].capacity = run->net.link_gbps[id] * BYTES_PER_US_PER_GBPS;
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
    int status = engine_check(graph, network);
    if (status)
        return status;
    if (!take(&run, 1, sizeof *run))
        return ENGINE_E_MEMORY;
    run->graph = *graph;
    run->net = *network;
    run->out = *output;
    run->queue_mode = queue;
    run->nodes = graph->tasks + graph->transfers;
    run->queues = queue == ENGINE_QUEUE_SOURCE ? graph->gpus : network->pairs;
    if (!take_memory(run)) {
        engine_free(run);
        return ENGINE_E_MEMORY;
    }
    set_out(run);
    index_routes(run);
    index_circuits(run);
    *made = run;
    return 0;
}

void engine_free(engine *run)
{
    if (!run)
        return;
    void *taken[] = {run->waits,         run->child,          run->sibling,       run->marked,
                     run->gpus,          run->queue,          run->pairs,         run->flows,
                     run->links,         run->crossing_link,  run->crossing_slot, run->members, run->route_link, run->spare_flows,
                     run->circuit_first, run->circuit_pair,   run->ends.items,    run->drains.items,
                     run->drains.slot,   run->shares.items,   run->shares.slot,   run->touched_gpus,
                     run->touched_queues, run->fresh,         run->dirty,         run->inside,
                     run->around};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        free(taken[i]);
    free(run);
}
