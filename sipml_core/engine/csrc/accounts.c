/* Where the time of each GPU goes, and what links have carried. */
#include "state.h"

#include <string.h>

static enum gpu_time kind_of_time(const gpu *g)
{
    if (g->running != NONE)
        return TIME_COMPUTE;
    if (g->pending == 0)
        return TIME_IDLE;
    return g->lit == 0 ? TIME_DARK : TIME_EXPOSED;
}

void account_gpu(engine *run, int32_t id)
{
    gpu *g = &run->gpus[id];
    g->time[kind_of_time(g)] += run->now - g->since;
    g->since = run->now;
}

void account_snapshot(engine *run, int64_t row)
{
    int64_t gpus = run->graph.gpus;
    run->out.snapshot_us[row] = run->now;
    for (int64_t id = 0; id < gpus; id++) {
        account_gpu(run, (int32_t)id);
        const double *time = run->gpus[id].time;
        run->out.compute_us[row * gpus + id] = time[TIME_COMPUTE];
        run->out.exposed_us[row * gpus + id] = time[TIME_EXPOSED];
        run->out.dark_us[row * gpus + id] = time[TIME_DARK];
    }
}

/* Change how many transfers of a pair are pending, and how many of those are lit, at both its ends. */
void account_pending(engine *run, int32_t pair_id, int32_t pending, int32_t lit)
{
    const int32_t ends[2] = {run->net.pair_src[pair_id], run->net.pair_dst[pair_id]};
    for (int k = 0; k < 2; k++) {
        account_gpu(run, ends[k]);
        run->gpus[ends[k]].pending += pending;
        run->gpus[ends[k]].lit += lit;
    }
}

/* A circuit went dark (change 1) or lit up (-1): so may the pairs that cross it. */
void account_dark(engine *run, int32_t link_id, int32_t change)
{
    int64_t circuit = link_id - run->net.first_circuit;
    if (circuit < 0)
        return;
    for (int64_t k = run->circuit_first[circuit]; k < run->circuit_first[circuit + 1]; k++) {
        int32_t p = run->circuit_pair[k];
        int was = run->pairs[p].dark > 0;
        run->pairs[p].dark += change;
        int is = run->pairs[p].dark > 0;
        if (was != is && run->pairs[p].waiting)
            account_pending(run, p, 0, is ? -run->pairs[p].waiting : run->pairs[p].waiting);
    }
}

/* Add what the active transfers have sent, times `sign`, to the links they cross. */
static void add_sent(const engine *run, double sign, double *bytes)
{
    for (int64_t id = 0; id < run->flow_count; id++) {
        const flow *f = &run->flows[id];
        if (f->transfer == NONE)
            continue;
        double left = f->left - f->rate * (run->now - f->since);
        double sent = run->graph.size_bytes[f->transfer] - (left > 0 ? left : 0);
        for (int32_t k = 0; k < f->crossings; k++)
            bytes[run->crossing_link[id * run->net.width + k]] += sign * sent;
    }
}

void engine_carried(const engine *run, double *bytes)
{
    for (int64_t id = 0; id < run->net.links; id++)
        bytes[id] = run->links[id].bytes;
    add_sent(run, 1, bytes);
}

void engine_backlog(const engine *run, double *bytes)
{
    memset(bytes, 0, (size_t)run->net.links * sizeof *bytes);
    for (int64_t p = 0; p < run->net.pairs; p++)
        for (int64_t k = run->pairs[p].route; k < run->pairs[p + 1].route; k++)
            bytes[run->route_link[k]] += run->pairs[p].queued;
    add_sent(run, -1, bytes);
    for (int64_t id = 0; id < run->net.links; id++)
        bytes[id] = bytes[id] > 0 ? bytes[id] : 0;
}

void engine_report(engine *run)
{
    account_snapshot(run, run->graph.marks);
    engine_carried(run, run->out.link_bytes);
    for (int64_t id = 0; id < run->net.links; id++) {
        const link *l = &run->links[id];
        run->out.link_busy_us[id] = l->busy + (l->flowing ? run->now - l->busy_since : 0);
    }
}
