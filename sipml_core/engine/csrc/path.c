/* The longest chain through a task graph. */
#include "state.h"

#include <stdlib.h>

int engine_critical_path(const engine_graph *graph, const double *node_us, double *longest_us)
{
    if (!graph || !node_us || !longest_us)
        return ENGINE_E_NULL;
    int64_t nodes = graph->tasks + graph->transfers, count = 0;
    int status = 0;
    size_t room = (size_t)nodes + 1;
    /* Predecessors to come of each node; of one that has none left, the next of those that are to be looked at. */
    int32_t *waits = calloc(room, sizeof *waits), list = NONE;
    double *begin = calloc(room, sizeof *begin), longest = 0;
    if (!waits || !begin) {
        status = ENGINE_E_MEMORY;
        goto out;
    }
    for (int64_t k = 0; k < graph->succ_start[nodes]; k++)
        waits[graph->successors[k]]++;
    for (int64_t node = nodes - 1; node >= 0; node--)
        if (waits[node] == 0) {
            waits[node] = list;
            list = (int32_t)node;
        }
    while (list != NONE) {
        int32_t node = list;
        double end = begin[node] + node_us[node];
        list = waits[node];
        longest = end > longest ? end : longest;
        count++;
        for (int64_t k = graph->succ_start[node]; k < graph->succ_start[node + 1]; k++) {
            int32_t next = graph->successors[k];
            begin[next] = end > begin[next] ? end : begin[next];
            if (--waits[next] == 0) {
                waits[next] = list;
                list = next;
            }
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
