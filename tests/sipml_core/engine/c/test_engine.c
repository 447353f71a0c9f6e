/* The engine without Python, for sanitizers: laws on random graphs, capacities that change, and every refusal.
 * Prints what fails and returns how much did. */
#include "engine.h"
#include "expect.h"
#include "state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 12, TASKS = 150, SENDS = 400, LINKS = 14, WIDTH = 8, PAIRS = GPUS * (GPUS - 1), EDGES = 900, SAMPLES = 8 };

typedef struct job {
    int32_t gpu[TASKS], priority[TASKS + SENDS], successors[EDGES], mark[2], transfer_pair[SENDS];
    double duration_us[TASKS], size_bytes[SENDS];
    float hops[SENDS];
    int32_t succ_start[TASKS + SENDS + 1];
    int32_t pair_src[PAIRS], pair_dst[PAIRS], pair_link[PAIRS * WIDTH];
    int64_t pair_start[PAIRS + 1];
    double pair_weight[PAIRS * WIDTH], latency_us[PAIRS], link_gbps[LINKS];
    double start_us[TASKS + SENDS], end_us[TASKS + SENDS], snapshot_us[3], link_bytes[LINKS], link_busy_us[LINKS];
    double compute_us[3 * GPUS], exposed_us[3 * GPUS], dark_us[3 * GPUS], sample_bytes[SAMPLES * LINKS];
    engine_record record[SENDS];
    engine_graph graph;
    engine_network network;
    engine_output output;
    uint64_t seed;
} job;

/* Knuth's MMIX generator; the high bits are good enough for tests. */
static int below(job *j, int stop)
{
    j->seed = j->seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((j->seed >> 33) % (uint64_t)stop);
}

static void make_edges(job *j)
{
    static int count[TASKS + SENDS], from[EDGES], to[EDGES];
    memset(count, 0, sizeof count);
    for (int k = 0; k < EDGES; k++) { /* always to a later rank, so that the graph has no cycle; 331 is prime */
        int rank = below(j, TASKS + SENDS - 1), later = rank + 1 + below(j, TASKS + SENDS - 1 - rank);
        from[k] = rank * 331 % (TASKS + SENDS);
        to[k] = later * 331 % (TASKS + SENDS);
        count[from[k]]++;
    }
    for (int i = 0; i < TASKS + SENDS; i++)
        j->succ_start[i + 1] = j->succ_start[i] + count[i];
    for (int k = EDGES - 1; k >= 0; k--)
        j->successors[j->succ_start[from[k]] + --count[from[k]]] = to[k];
}

/* Routes of neighbouring links, in every second job with weights; a link may come twice. */
static void make_network(job *j)
{
    int p = 0;
    int64_t entries = 0;
    int weighted = below(j, 2);
    for (int src = 0; src < GPUS; src++)
        for (int dst = 0; dst < GPUS; dst++) {
            if (src == dst)
                continue;
            j->pair_src[p] = src;
            j->pair_dst[p] = dst;
            j->latency_us[p] = 0.5 * below(j, 3);
            int first = below(j, LINKS), length = 1 + below(j, WIDTH), turn = 1 + below(j, LINKS);
            for (int k = 0; k < length; k++, entries++) {
                j->pair_link[entries] = (first + k % turn) % LINKS;
                j->pair_weight[entries] = weighted ? (1 + below(j, 9)) / 7.0 : 1.0;
            }
            j->pair_start[++p] = entries;
        }
    for (int id = 0; id < LINKS; id++)
        j->link_gbps[id] = 25.0 * (1 + below(j, 4));
}

static void make_job(job *j, uint64_t seed)
{
    memset(j, 0, sizeof *j);
    j->seed = seed;
    for (int i = 0; i < TASKS; i++) {
        j->gpu[i] = below(j, 5) ? below(j, GPUS) : -1;
        j->duration_us[i] = 0.25 * below(j, 8);
    }
    for (int i = 0; i < TASKS + SENDS; i++)
        j->priority[i] = below(j, 3);
    for (int t = 0; t < SENDS; t++) {
        j->transfer_pair[t] = below(j, PAIRS);
        j->size_bytes[t] = 1000.0 * below(j, 30);
        j->hops[t] = (float)(1 + below(j, 2));
    }
    j->mark[0] = 3;
    j->mark[1] = 3;
    make_edges(j);
    make_network(j);
    j->graph = (engine_graph){GPUS,          TASKS,   SENDS,         2,
                              j->gpu,        j->duration_us, j->priority, j->size_bytes,
                              j->hops,       NULL,           seed % 2 ? 0.25 : 0, NULL,
                              j->succ_start, j->successors,  j->mark,   NULL};
    j->network = (engine_network){PAIRS,         LINKS,        LINKS - 4,      j->pair_src,   j->pair_dst,
                                  j->pair_start, j->pair_link, j->pair_weight, j->latency_us, j->transfer_pair,
                                  j->link_gbps};
    j->output = (engine_output){j->start_us,   j->end_us,  j->snapshot_us, j->compute_us,
                                j->exposed_us, j->dark_us, j->link_bytes,  j->link_busy_us,
                                j->record,     j->sample_bytes, SAMPLES,   0.25};
    if (seed % 3 == 0) { /* nothing is recorded */
        j->output.record = NULL;
        j->output.sample_bytes = NULL;
    }
}

/* What a transfer takes of each link. */
static void add_to_links(const job *j, int32_t transfer, double amount, double *total)
{
    int32_t p = j->transfer_pair[transfer];
    for (int64_t k = j->pair_start[p]; k < j->pair_start[p + 1]; k++)
        total[j->pair_link[k]] += j->pair_weight[k] * amount;
}

static void expect_no_link_overfull(job *j, engine *run, const double *gbps)
{
    static int32_t transfer[PAIRS];
    static double rate[PAIRS];
    double load[LINKS] = {0};
    int64_t active = engine_active(run, transfer, rate);
    for (int64_t i = 0; i < active; i++)
        add_to_links(j, transfer[i], rate[i], load);
    for (int id = 0; id < LINKS; id++)
        EXPECT(load[id] <= gbps[id] * (1 + 1e-9));
}

/* Every node ends, after it started, and every byte crosses every link of its route. */
static void expect_complete(job *j, engine *run)
{
    double bytes[LINKS] = {0};
    engine_report(run);
    EXPECT(engine_ended(run) == TASKS + SENDS);
    EXPECT(!engine_is_moving(run));
    for (int i = 0; i < TASKS + SENDS; i++)
        EXPECT(j->end_us[i] >= j->start_us[i]);
    for (int t = 0; t < SENDS; t++)
        add_to_links(j, t, j->size_bytes[t], bytes);
    for (int t = 0; t < SENDS && j->output.record; t++) {
        const engine_record *r = &j->record[t];
        EXPECT(j->start_us[TASKS + t] <= r->head_us && r->head_us <= r->moved_us && r->moved_us <= r->left_us &&
               r->left_us <= j->end_us[TASKS + t]);
        EXPECT(j->size_bytes[t] > 0 ? r->held_by >= 0 && r->held_by < LINKS : r->held_by == -1);
    }
    if (j->output.sample_bytes) {
        double interval;
        int64_t rows = engine_samples(run, &interval);
        EXPECT(rows < SAMPLES && (double)(rows + 1) * interval > engine_now_us(run));
        for (int64_t k = LINKS; k < rows * LINKS; k++)
            EXPECT(j->sample_bytes[k] >= j->sample_bytes[k - LINKS] * (1 - 1e-12));
    }
    for (int id = 0; id < LINKS; id++)
        EXPECT(fabs(bytes[id] - j->link_bytes[id]) <= 1e-9 * bytes[id]);
    for (int k = 2 * GPUS; k < 3 * GPUS; k++)
        EXPECT(j->compute_us[k] + j->exposed_us[k] + j->dark_us[k] <= j->snapshot_us[2] * (1 + 1e-9));
    EXPECT(j->snapshot_us[0] == j->snapshot_us[1]);
}

static void test_runs(void)
{
    static job j;
    for (uint64_t seed = 0; seed < 40; seed++) {
        engine *run = NULL;
        make_job(&j, seed);
        EXPECT(engine_new(&j.graph, &j.network, &j.output, (int)(seed % 2), &run) == 0);
        EXPECT(engine_watch(run) == 0);
        int state;
        while ((state = engine_run(run, INFINITY, 1)) == ENGINE_BUDGET)
            expect_no_link_overfull(&j, run, j.link_gbps);
        EXPECT(state == ENGINE_DONE);
        expect_complete(&j, run);
        engine_free(run);
    }
}

static void test_capacities_that_change(void)
{
    static job j;
    for (uint64_t seed = 0; seed < 40; seed++) {
        engine *run = NULL;
        double gbps[LINKS], bytes[LINKS];
        make_job(&j, seed);
        memcpy(gbps, j.link_gbps, sizeof gbps);
        EXPECT(engine_new(&j.graph, &j.network, &j.output, (int)(seed % 2), &run) == 0);
        EXPECT(engine_watch(run) == 0);
        for (int step = 1; engine_run(run, 0.3 * step, 1 << 30) == ENGINE_PAUSED && step < 4000; step++) {
            int32_t id = below(&j, LINKS);
            gbps[id] = below(&j, 3) ? 20.0 * (1 + below(&j, 5)) : 0.0;
            EXPECT(engine_set_capacity(run, 1, &id, &gbps[id]) == 0);
            expect_no_link_overfull(&j, run, gbps);
            engine_backlog(run, bytes);
            for (int k = 0; k < LINKS; k++)
                EXPECT(bytes[k] >= 0);
        }
        int state = engine_run(run, INFINITY, 1 << 30);
        EXPECT(state == ENGINE_DONE || state == ENGINE_STALLED);
        if (state == ENGINE_STALLED) {
            int32_t all[LINKS];
            for (int k = 0; k < LINKS; k++)
                all[k] = k;
            EXPECT(engine_set_capacity(run, LINKS, all, j.link_gbps) == 0);
            EXPECT(engine_run(run, INFINITY, 1 << 30) == ENGINE_DONE);
        }
        expect_complete(&j, run);
        engine_free(run);
    }
}

/* A rate that is not what the link can give, and a sum that is not that of the rates. */
static void test_what_the_watch_sees(void)
{
    static job j;
    for (int fault = 0; fault < 2; fault++) {
        engine *run = NULL;
        make_job(&j, 1);
        EXPECT(engine_new(&j.graph, &j.network, &j.output, 0, &run) == 0);
        EXPECT(engine_watch(run) == 0);
        EXPECT(engine_run(run, INFINITY, 300) == ENGINE_BUDGET);
        int64_t busy = 0;
        while (busy + 1 < LINKS && !(run->links[busy].held && run->links[busy].count > run->links[busy].held))
            busy++;
        EXPECT(run->links[busy].held);
        *(fault ? &run->links[busy].other : &run->links[busy].rate) *= 0.999;
        rates_update(run);
        EXPECT(engine_run(run, INFINITY, 1) == ENGINE_E_RATES);
        engine_free(run);
    }
    EXPECT(engine_watch(NULL) == ENGINE_E_NULL);
}

/* The run comes back in the instant in which the last of three nodes ends, and goes on to the end. */
static void test_a_run_comes_back_for_nodes(void)
{
    static job j;
    engine *run = NULL;
    const int32_t nodes[] = {0, 3, 0, 7};
    make_job(&j, 1);
    EXPECT(engine_new(&j.graph, &j.network, &j.output, 0, &run) == 0);
    EXPECT(engine_await(run, 4, nodes) == 0);
    EXPECT(engine_run(run, INFINITY, 1 << 30) == ENGINE_REACHED);
    double last = 0;
    for (int k = 0; k < 4; k++)
        last = fmax(last, j.output.end_us[nodes[k]]);
    EXPECT(engine_now_us(run) == last);
    EXPECT(engine_await(run, 1, nodes) == 0);
    EXPECT(engine_run(run, INFINITY, 1 << 30) == ENGINE_REACHED);
    EXPECT(engine_await(run, 1, nodes) == 0);
    EXPECT(engine_await(run, 0, NULL) == 0);
    EXPECT(engine_run(run, INFINITY, 1 << 30) == ENGINE_DONE);
    expect_complete(&j, run);
    engine_free(run);
}

static int try_new(job *j, int queue)
{
    engine *run = NULL;
    int status = engine_new(&j->graph, &j->network, &j->output, queue, &run);
    EXPECT((run == NULL) == (status != 0));
    engine_free(run);
    return status;
}

static void test_refusals(void)
{
    static job j;
#define REFUSED(change, expected)      \
    do {                               \
        make_job(&j, 1);               \
        change;                        \
        EXPECT(try_new(&j, ENGINE_QUEUE_PAIR) == (expected)); \
    } while (0)
    REFUSED((void)0, 0);
    REFUSED(j.graph.gpu = NULL, ENGINE_E_NULL);
    REFUSED(j.graph.successors = NULL, ENGINE_E_NULL);
    REFUSED(j.network.link_gbps = NULL, ENGINE_E_NULL);
    REFUSED(j.output.end_us = NULL, ENGINE_E_NULL);
    REFUSED(j.graph.gpus = -1, ENGINE_E_SIZE);
    REFUSED(j.graph.tasks = (int64_t)1 << 40, ENGINE_E_SIZE);
    REFUSED(j.network.links = (int64_t)1 << 40, ENGINE_E_SIZE);
    REFUSED(j.network.pair_start = NULL, ENGINE_E_NULL);
    REFUSED(j.network.pair_weight = NULL, ENGINE_E_NULL);
    REFUSED(j.pair_start[0] = 1, ENGINE_E_INDEX);
    REFUSED(j.pair_start[1] = 0, ENGINE_E_INDEX);
    REFUSED(j.pair_weight[0] = 0, ENGINE_E_VALUE);
    REFUSED(j.pair_weight[0] = NAN, ENGINE_E_VALUE);
    REFUSED(j.gpu[7] = GPUS, ENGINE_E_INDEX);
    REFUSED(j.successors[7] = TASKS + SENDS, ENGINE_E_INDEX);
    REFUSED(j.succ_start[7] = 1 << 20, ENGINE_E_INDEX);
    REFUSED(j.mark[0] = TASKS, ENGINE_E_INDEX);
    REFUSED(j.transfer_pair[0] = PAIRS, ENGINE_E_INDEX);
    REFUSED(j.pair_link[0] = LINKS, ENGINE_E_INDEX);
    REFUSED(j.pair_link[0] = -1, ENGINE_E_INDEX);
    REFUSED(j.network.first_circuit = LINKS + 1, ENGINE_E_INDEX);
    REFUSED(j.duration_us[0] = NAN, ENGINE_E_VALUE);
    REFUSED(j.size_bytes[0] = -1, ENGINE_E_VALUE);
    REFUSED(j.link_gbps[0] = INFINITY, ENGINE_E_VALUE);
    REFUSED(j.output.samples = 7, ENGINE_E_VALUE);
    REFUSED(j.output.sample_us = 0, ENGINE_E_VALUE);
    make_job(&j, 1);
    EXPECT(try_new(&j, 7) == ENGINE_E_VALUE);
    EXPECT(engine_new(&j.graph, &j.network, &j.output, 0, NULL) == ENGINE_E_NULL);
    EXPECT(engine_run(NULL, 0, 1) == ENGINE_E_NULL);
    engine_free(NULL);
}

static void test_refusals_of_a_run(void)
{
    static job j;
    engine *run = NULL;
    int32_t id = LINKS;
    double gbps = 1;
    make_job(&j, 2);
    EXPECT(engine_new(&j.graph, &j.network, &j.output, 0, &run) == 0);
    EXPECT(engine_run(run, NAN, 1) == ENGINE_E_VALUE);
    EXPECT(engine_set_capacity(run, 1, &id, &gbps) == ENGINE_E_INDEX);
    EXPECT(engine_set_capacity(run, 1, NULL, &gbps) == ENGINE_E_NULL);
    id = (int32_t)(j.graph.tasks + j.graph.transfers);
    EXPECT(engine_await(run, 1, &id) == ENGINE_E_INDEX);
    EXPECT(engine_await(run, 1, NULL) == ENGINE_E_NULL);
    id = 0;
    gbps = -1;
    EXPECT(engine_set_capacity(run, 1, &id, &gbps) == ENGINE_E_VALUE);
    engine_free(run);
    for (int status = 0; status > -9; status--)
        EXPECT(strlen(engine_strerror(status)) > 0);
}

/* Two tasks and the transfer between them: 2 + 5 + 4; and a cycle. */
static void test_critical_path(void)
{
    int32_t succ_start[4] = {0, 1, 1, 2};
    int32_t successors[2] = {2, 1};
    double node_us[3] = {2, 4, 5}, longest = 0;
    engine_graph graph = {.tasks = 2, .transfers = 1, .succ_start = succ_start, .successors = successors};
    EXPECT(engine_critical_path(&graph, node_us, NULL, NULL, &longest) == 0);
    EXPECT(longest == 11);
    successors[1] = 0;
    EXPECT(engine_critical_path(&graph, node_us, NULL, NULL, &longest) == ENGINE_E_CYCLE);
    EXPECT(engine_critical_path(&graph, NULL, NULL, NULL, &longest) == ENGINE_E_NULL);
}

/* A task of 2 us, then 24 bytes over three legs of 3, 2 and 4 bytes/us and 1 us of latency: 2 + (8 + 12 + 6) + 3. */
static void test_critical_path_over_legs(void)
{
    int32_t succ_start[3] = {0, 1, 1}, successors[1] = {1}, way[1] = {0}, way_start[2] = {0, 3};
    int32_t leg_pair[3] = {0, 1, 2}, leg_place[3] = {0, 1, 2}, place[1] = {0}, priority[3] = {0, 0, 0};
    double node_us[2] = {2, 0}, size[1] = {24}, latency_us[3] = {1, 1, 1}, rate[3] = {3, 2, 4}, longest = 0;
    float hops[1] = {1};
    engine_relays relays = {1, 3, 3, way, way_start, leg_pair, leg_place, place, priority};
    engine_graph graph = {.tasks = 1, .transfers = 1, .succ_start = succ_start, .successors = successors,
                          .size_bytes = size, .hops = hops, .relays = &relays};
    EXPECT(engine_critical_path(&graph, node_us, latency_us, rate, &longest) == 0);
    EXPECT(longest == 31);
    EXPECT(engine_critical_path(&graph, node_us, NULL, NULL, &longest) == ENGINE_E_NULL);
}

/* Every second transfer is passed on over two or three legs; a run ends with all of them, and what is wrong is refused. */
static void test_relays(void)
{
    static job j;
    static int32_t way[SENDS], place[SENDS], priority[3 * SENDS], pair[SENDS];
    int32_t way_start[3] = {0, 2, 5}, leg_pair[5], leg_place[5] = {0, 1, 2, 0, 1};
    for (uint32_t seed = 3; seed < 30; seed += 3) { /* those that record nothing */
        engine *run = NULL;
        int32_t places = 0;
        make_job(&j, seed);
        for (int k = 0; k < 5; k++)
            leg_pair[k] = below(&j, PAIRS);
        for (int t = 0; t < SENDS; t++) {
            way[t] = t % 2 ? t / 2 % 2 : -1;
            place[t] = places;
            places += way[t] < 0 ? 1 : 2 + way[t];
        }
        for (int k = 0; k < places; k++)
            priority[k] = below(&j, 3);
        engine_relays relays = {2, 5, places, way, way_start, leg_pair, leg_place, place, priority};
        j.graph.relays = &relays;
        EXPECT(try_new(&j, 0) == 0);
        EXPECT(engine_new(&j.graph, &j.network, &j.output, (int)(seed / 3 % 2), &run) == 0);
        for (int32_t id = LINKS - 4; id < LINKS; id++) {
            double gbps = 50;
            EXPECT(engine_set_capacity(run, 1, &id, &gbps) == 0);
        }
        engine_places(run, place, pair);
        EXPECT(place[0] == 0 && pair[0] == j.transfer_pair[0] && pair[1] == leg_pair[0]);
        EXPECT(engine_run(run, INFINITY, INT64_MAX) == ENGINE_DONE);
        EXPECT(engine_ended(run) == TASKS + places);
        engine_free(run);
        place[1] = places;
        EXPECT(try_new(&j, 0) == ENGINE_E_INDEX);
        place[1] = 1;
        leg_place[4] = places;
        EXPECT(try_new(&j, 0) == ENGINE_E_INDEX);
        leg_place[4] = 1;
        leg_pair[4] = PAIRS;
        EXPECT(try_new(&j, 0) == ENGINE_E_INDEX);
        leg_pair[4] = 0;
        way[1] = 2;
        EXPECT(try_new(&j, 0) == ENGINE_E_INDEX);
        way[1] = 0;
        way_start[1] = 0;
        EXPECT(try_new(&j, 0) == ENGINE_E_INDEX);
        way_start[1] = 2;
        relays.leg_pair = NULL;
        EXPECT(try_new(&j, 0) == ENGINE_E_NULL);
        relays.leg_pair = leg_pair;
        relays.places = -1;
        EXPECT(try_new(&j, 0) == ENGINE_E_SIZE);
        relays.places = places;
        j.output.record = j.record;
        EXPECT(try_new(&j, 0) == ENGINE_E_VALUE);
    }
}

int main(void)
{
    test_runs();
    test_capacities_that_change();
    test_what_the_watch_sees();
    test_a_run_comes_back_for_nodes();
    test_refusals();
    test_refusals_of_a_run();
    test_critical_path();
    test_critical_path_over_legs();
    test_relays();
    return failures != 0;
}
