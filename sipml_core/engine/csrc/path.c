/* The longest chain through a task graph. */
#include "state.h"

#include <stdlib.h>

/* Nodes in the order in which they came, each with the next of them in its place of a table. */
typedef struct line {
    int32_t first, last;
} line;

static void append(line *of, int32_t *next, int32_t node)
{
    if (of->first == NONE)
        of->first = node;
    else
        next[of->last] = node;
    next[node] = NONE;
    of->last = node;
}

/* When a transfer ends that begins then and is passed on. */
static double last_leg_ends(const engine_graph *graph, int64_t t, double begin, const double *latency_us,
                            const double *bytes_per_us)
{
    const engine_relays *relays = graph->relays;
    int32_t way = relays->way[t];
    for (int32_t leg = relays->way_start[way]; leg < relays->way_start[way + 1]; leg++) {
        int32_t pair = relays->leg_pair[leg];
        double us = graph->hops[t] * latency_us[pair];
        us += graph->startup_us ? graph->startup_us[t] : 0;
        us += graph->size_bytes[t] > 0 ? graph->size_bytes[t] / bytes_per_us[pair] : 0;
        begin += us;
    }
    return begin;
}

/* Nodes are looked at in the order in which they are found, not one chain to its end before the next: what groups do
 * at the same time lies side by side in memory. */
int engine_critical_path(const engine_graph *graph, const double *node_us, const double *pair_latency_us,
                         const double *pair_bytes_per_us, double *longest_us)
{
    if (!graph || !node_us || !longest_us || (graph->relays && !(pair_latency_us && pair_bytes_per_us)))
        return ENGINE_E_NULL;
    int64_t nodes = graph->tasks + graph->transfers, count = 0;
    int status = 0;
    size_t room = (size_t)nodes + 1;
    /* Predecessors to come of each node; of one that has none left, the next of those that are to be looked at. */
    int32_t *waits = calloc(room, sizeof *waits);
    line found = {NONE, NONE};
    double *begin = calloc(room, sizeof *begin), longest = 0;
    if (!waits || !begin) {
        status = ENGINE_E_MEMORY;
        goto out;
    }
    for (int64_t k = 0; k < graph->succ_start[nodes]; k++)
        waits[graph->successors[k]]++;
    for (int64_t node = 0; node < nodes; node++)
        if (waits[node] == 0)
            append(&found, waits, (int32_t)node);
    while (found.first != NONE) {
        int32_t node = found.first;
        int64_t t = node - graph->tasks;
        double end = t >= 0 && graph->relays && graph->relays->way[t] != NONE
                         ? last_leg_ends(graph, t, begin[node], pair_latency_us, pair_bytes_per_us)
                         : begin[node] + node_us[node];
        found.first = waits[node];
        longest = end > longest ? end : longest;
        count++;
        for (int64_t k = graph->succ_start[node]; k < graph->succ_start[node + 1]; k++) {
            int32_t next = graph->successors[k];
            begin[next] = end > begin[next] ? end : begin[next];
            if (--waits[next] == 0)
                append(&found, waits, next);
        }
    }
    if (count == nodes)
        *longest_us = longest;
    else
        status = ENGINE_E_CYCLE;
out:
    free(waits);
    free(begin);
    return status;
}
