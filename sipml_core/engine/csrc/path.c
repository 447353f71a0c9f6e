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
    int32_t *waits = calloc(room, sizeof *waits), *order = malloc(room * sizeof *order);
    double *begin = calloc(room, sizeof *begin), longest = 0;
    if (!waits || !order || !begin) {
        status = ENGINE_E_MEMORY;
        goto out;
    }
    for (int64_t k = 0; k < graph->succ_start[nodes]; k++)
        waits[graph->successors[k]]++;
    for (int64_t node = 0; node < nodes; node++)
        if (waits[node] == 0)
            order[count++] = (int32_t)node;
    for (int64_t i = 0; i < count; i++) {
        double end = begin[order[i]] + node_us[order[i]];
        longest = end > longest ? end : longest;
        for (int64_t k = graph->succ_start[order[i]]; k < graph->succ_start[order[i] + 1]; k++) {
            int32_t next = graph->successors[k];
            begin[next] = end > begin[next] ? end : begin[next];
            if (--waits[next] == 0)
                order[count++] = next;
        }
    }
    if (count == nodes)
        *longest_us = longest;
    else
        status = ENGINE_E_CYCLE;
out:
    free(waits);
    free(order);
    free(begin);
    return status;
}
