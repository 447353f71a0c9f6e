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
    enum gpu_time kind = kind_of_time(g);
    if (kind != TIME_IDLE)
        g->time[kind] += run->now - g->since;
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
    const int32_t ends[2] = {run->pairs[pair_id].src, run->pairs[pair_id].dst};
    for (int k = 0; k < 2; k++) {
        account_gpu(run, ends[k]);
        run->gpus[ends[k]].pending += pending;
        run->gpus[ends[k]].lit += lit;
    }
}

static int32_t dark_circuits(const engine *run, const pair *p)
{
    int32_t dark = 0;
    for (int32_t k = p->first; k < p->stop; k++)
        dark += bit_of(run->dark, run->crossings[k].link);
    return dark;
}

/* A transfer joins a pair. */
void account_join(engine *run, int32_t pair_id, double size)
{
    pair *p = &run->pairs[pair_id];
    int lit = 1;
    if (run->net.first_circuit < run->net.links) {
        if (!p->waiting)
            p->dark = dark_circuits(run, p);
        lit = p->dark == 0;
    }
    account_pending(run, pair_id, 1, lit);
    run->waiting[pair_id / 64] |= UINT64_C(1) << pair_id % 64;
    p->waiting++;
    p->queued += size;
}

/* The last byte of a transfer of a pair has left. */
void account_leave(engine *run, int32_t pair_id, double size)
{
    pair *p = &run->pairs[pair_id];
    if (p->dark)
        account_pending(run, pair_id, 0, 1);
    p->queued -= size;
    if (--p->waiting == 0) {
        run->waiting[pair_id / 64] &= ~(UINT64_C(1) << pair_id % 64);
        p->queued = 0;
    }
    for (int32_t k = p->first; k < p->stop; k++)
        run->bytes[run->crossings[k].link] += weight_of(run, k) * size;
}

/* A circuit went dark (change 1) or lit up (-1): so may the pairs that cross it. */
void account_dark(engine *run, int32_t link_id, int32_t change)
{
    int64_t circuit = link_id - run->net.first_circuit;
    if (circuit < 0)
        return;
    run->dark[link_id / 64] ^= UINT64_C(1) << link_id % 64;
    for (int32_t k = run->circuit_first[circuit]; k < run->circuit_first[circuit + 1]; k++) {
        pair *p = &run->pairs[run->circuit_pair[k]];
        if (!bit_of(run->waiting, run->circuit_pair[k]))
            continue;
        int was = p->dark > 0;
        p->dark += change;
        int is = p->dark > 0;
        if (was != is)
            account_pending(run, run->circuit_pair[k], 0, is ? -p->waiting : p->waiting);
    }
}

/* First pair from `from` on at which transfers wait or send; the number of pairs if there is none. */
int64_t account_next_waiting(const engine *run, int64_t from)
{
    int64_t words = (run->net.pairs + 63) / 64, word = from / 64;
    if (word >= words)
        return run->net.pairs;
    uint64_t bits = run->waiting[word] & ~UINT64_C(0) << from % 64;
    while (!bits && ++word < words)
        bits = run->waiting[word];
    return bits ? 64 * word + __builtin_ctzll(bits) : run->net.pairs;
}

static double sent_of(const engine *run, int64_t pair_id)
{
    const pair *p = &run->pairs[pair_id];
    return p->transfer == NONE ? 0 : run->graph.size_bytes[p->transfer] - group_left(run, (int32_t)pair_id);
}

static void add_to_links(const engine *run, int64_t pair_id, double amount, double *bytes)
{
    const pair *p = &run->pairs[pair_id];
    for (int32_t k = p->first; k < p->stop; k++)
        bytes[run->crossings[k].link] += weight_of(run, k) * amount;
}

void engine_carried(const engine *run, double *bytes)
{
    memcpy(bytes, run->bytes, (size_t)run->net.links * sizeof *bytes);
    for (int64_t p = account_next_waiting(run, 0); p < run->net.pairs; p = account_next_waiting(run, p + 1))
        add_to_links(run, p, sent_of(run, p), bytes);
}

void engine_backlog(const engine *run, double *bytes)
{
    memset(bytes, 0, (size_t)run->net.links * sizeof *bytes);
    for (int64_t p = account_next_waiting(run, 0); p < run->net.pairs; p = account_next_waiting(run, p + 1)) {
        double left = run->pairs[p].queued - sent_of(run, p);
        if (left > 0)
            add_to_links(run, p, left, bytes);
    }
}

void account_samples(engine *run, double until)
{
    const int64_t links = run->net.links;
    while ((double)(run->sampled + 1) * run->out.sample_us <= until) {
        run->now = (double)(run->sampled + 1) * run->out.sample_us;
        engine_carried(run, run->out.sample_bytes + run->sampled * links);
        if (++run->sampled < run->out.samples)
            continue;
        run->sampled /= 2;
        run->out.sample_us *= 2;
        for (int64_t row = 0; row < run->sampled; row++)
            memmove(run->out.sample_bytes + row * links, run->out.sample_bytes + (2 * row + 1) * links,
                    (size_t)links * sizeof(double));
    }
}

int64_t engine_samples(const engine *run, double *interval_us)
{
    *interval_us = run->out.sample_us;
    return run->sampled;
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
