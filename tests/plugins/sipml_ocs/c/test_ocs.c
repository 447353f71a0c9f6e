/* The planner of the circuit switches without Python, for sanitizers: laws on random traffic, repeated planning, and
 * every refusal. Arrays are allocated at their exact length, so that one element too far is seen.
 * Prints what fails and returns whether something did. */
#include "draw.h"
#include "expect.h"
#include "ocs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct traffic {
    ocs_problem problem; /* what the planner sees */
    int32_t *src, *dst;
    double *demand;
} traffic;

static void traffic_new(traffic *t, int32_t gpus, int32_t switches, int64_t pairs)
{
    t->src = array(pairs, sizeof *t->src);
    t->dst = array(pairs, sizeof *t->dst);
    t->demand = array(pairs, sizeof *t->demand);
    t->problem = (ocs_problem){gpus, switches, pairs, t->src, t->dst, t->demand};
}

static void traffic_free(traffic *t)
{
    free(t->src);
    free(t->dst);
    free(t->demand);
}

/* Each ordered pair with a chance of `percent`; demands over twelve powers of ten, or only two, so that ratios tie. */
static void draw_traffic(traffic *t, int32_t gpus, int32_t switches, int percent, uint64_t *seed)
{
    uint8_t *wanted = array((int64_t)gpus * gpus, 1);
    int64_t pairs = 0;
    const int tied = below(seed, 2);

    for (int32_t k = 0; k < gpus * gpus; k++)
        pairs += wanted[k] = k / gpus != k % gpus && below(seed, 100) < percent;
    traffic_new(t, gpus, switches, pairs);
    for (int32_t k = 0, p = 0; k < gpus * gpus; k++)
        if (wanted[k]) {
            t->src[p] = k / gpus;
            t->dst[p] = k % gpus;
            t->demand[p++] = tied ? 1 + below(seed, 2) : (1 + below(seed, 1000)) * pow(10, below(seed, 12) - 6);
        }
    free(wanted);
}

/* Demands change, by up to a half or not at all, and some pairs are gone. */
static void drift(traffic *t, uint64_t *seed)
{
    int64_t left = 0;
    const int still = below(seed, 2);

    for (int64_t p = 0; p < t->problem.pairs; p++) {
        if (below(seed, 8) == 0)
            continue;
        t->src[left] = t->src[p];
        t->dst[left] = t->dst[p];
        t->demand[left++] = t->demand[p] * (still ? 1 : 0.5 + 0.1 * below(seed, 11));
    }
    t->problem.pairs = left;
}

/* Circuits that leave each GPU, then those that enter each. To be freed. */
static int64_t *loads(const ocs_problem *problem, const int32_t *circuits)
{
    int64_t *load = array(2 * (int64_t)problem->gpus, sizeof *load);

    for (int64_t p = 0; p < problem->pairs; p++) {
        load[problem->src[p]] += circuits[p];
        load[problem->gpus + problem->dst[p]] += circuits[p];
    }
    return load;
}

/* Most circuits at one port, in or out. */
static int64_t fullest(const ocs_problem *problem, const int32_t *circuits)
{
    int64_t *load = loads(problem, circuits), most = 0;

    for (int32_t k = 0; k < 2 * problem->gpus; k++)
        most = load[k] > most ? load[k] : most;
    free(load);
    return most;
}

/* Pairs beyond the number of switches go; nobody goes who had room. */
static void admit(traffic *t, uint64_t *seed)
{
    const ocs_problem *problem = &t->problem;
    int64_t *order = array(problem->pairs, sizeof *order), *peers, left = 0;
    int32_t *one = array(problem->pairs, sizeof *one);
    uint8_t *admitted = array(problem->pairs, sizeof *admitted);

    for (int64_t p = 0; p < problem->pairs; p++) {
        const int64_t other = below(seed, (int)p + 1);

        order[p] = order[other];
        order[other] = p;
    }
    EXPECT(ocs_admit(problem, order, admitted) == 0);
    for (int64_t p = 0; p < problem->pairs; p++)
        one[p] = admitted[p];
    EXPECT(fullest(problem, one) <= problem->switches);
    peers = loads(problem, one);
    for (int64_t p = 0; p < problem->pairs; p++)
        EXPECT(admitted[p] || peers[problem->src[p]] == problem->switches ||
               peers[problem->gpus + problem->dst[p]] == problem->switches);
    free(peers);
    for (int64_t p = 0; p < problem->pairs; p++)
        if (admitted[p]) {
            t->src[left] = t->src[p];
            t->dst[left] = t->dst[p];
            t->demand[left++] = t->demand[p];
        }
    t->problem.pairs = left;
    free(order);
    free(one);
    free(admitted);
}

/* The largest minimum: whatever has a larger one needs at least `more`. And the fewest: one circuit less anywhere
 * lowers it. */
static void check_maxmin(const ocs_problem *problem, const int32_t *circuits)
{
    int32_t *more = array(problem->pairs, sizeof *more);
    double least = INFINITY;

    EXPECT(fullest(problem, circuits) <= problem->switches);
    for (int64_t p = 0; p < problem->pairs; p++)
        least = fmin(least, circuits[p] / problem->demand[p]);
    for (int64_t p = 0; p < problem->pairs; p++) {
        more[p] = circuits[p] + (circuits[p] / problem->demand[p] <= least);
        EXPECT(circuits[p] == 1 || (circuits[p] > 1 && (circuits[p] - 1) / problem->demand[p] < least));
    }
    EXPECT(problem->pairs == 0 || fullest(problem, more) > problem->switches);
    free(more);
}

static int32_t held(const ocs_problem *problem, const int32_t *port_map, int64_t p)
{
    int32_t count = 0;

    for (int32_t q = 0; port_map && q < problem->switches; q++)
        count += port_map[q * problem->gpus + problem->src[p]] == problem->dst[p];
    return count;
}

/* The header's sentence, word for word: all pairs are looked at for every circuit. */
static void fill_slowly(const ocs_problem *problem, const int32_t *previous, int32_t *circuits)
{
    const int32_t n = problem->gpus;
    int64_t *used = loads(problem, circuits), best;

    do {
        double least = INFINITY;
        int fewer = 0;

        best = -1;
        for (int64_t p = 0; p < problem->pairs; p++) {
            const double ratio = circuits[p] / problem->demand[p];
            const int fewer_now = circuits[p] < held(problem, previous, p);

            if (used[problem->src[p]] >= problem->switches || used[n + problem->dst[p]] >= problem->switches)
                continue;
            if (best < 0 || ratio < least || (ratio == least && fewer_now > fewer)) {
                best = p;
                least = ratio;
                fewer = fewer_now;
            }
        }
        if (best >= 0) {
            circuits[best]++;
            used[problem->src[best]]++;
            used[n + problem->dst[best]]++;
        }
    } while (best >= 0);
    free(used);
}

/* Every switch joins an input to at most one output, and an output to at most one input. Returns what is lit. */
static int64_t check_switches(const ocs_problem *problem, const int32_t *port_map)
{
    const int32_t n = problem->gpus;
    int64_t lit = 0;

    for (int32_t q = 0; q < problem->switches; q++) {
        uint8_t *taken = array(n, 1);

        for (int32_t i = 0; i < n; i++) {
            const int32_t j = port_map[q * n + i];

            EXPECT(j >= OCS_DARK && j < n);
            if (j < 0 || j >= n)
                continue;
            EXPECT(!taken[j]++);
            lit++;
        }
        free(taken);
    }
    return lit;
}

/* What nobody wants is as it was before; and nothing that was lit is dark at both its ends. */
static void check_retained(const ocs_problem *problem, const int32_t *previous, const int32_t *port_map)
{
    const int32_t n = problem->gpus;
    uint8_t *demanded = array((int64_t)n * n, 1);

    for (int64_t p = 0; p < problem->pairs; p++)
        demanded[problem->src[p] * n + problem->dst[p]] = 1;
    for (int32_t q = 0; q < problem->switches; q++) {
        const int32_t *now = port_map + q * n, *then = previous ? previous + q * n : NULL;
        uint8_t *taken = array(n, 1);

        for (int32_t i = 0; i < n; i++)
            if (now[i] >= 0) {
                taken[now[i]] = 1;
                EXPECT(demanded[i * n + now[i]] || (then && then[i] == now[i]));
            }
        for (int32_t i = 0; then && i < n; i++)
            EXPECT(then[i] < 0 || now[i] >= 0 || taken[then[i]]);
        free(taken);
    }
    free(demanded);
}

static void check_map(const ocs_problem *problem, const int32_t *circuits, const int32_t *previous,
                      const int32_t *port_map, const int32_t *kept, int64_t retained)
{
    int32_t *count = array(problem->pairs, sizeof *count), *both = array(problem->pairs, sizeof *both);
    int64_t lit = check_switches(problem, port_map);

    ocs_count(problem, port_map, NULL, count);
    ocs_count(problem, port_map, previous ? previous : port_map, both);
    for (int64_t p = 0; p < problem->pairs; p++) {
        int32_t stayed = 0;

        for (int32_t q = 0; previous && q < problem->switches; q++) {
            const int32_t at = q * problem->gpus + problem->src[p];

            stayed += port_map[at] == problem->dst[p] && previous[at] == problem->dst[p];
        }
        EXPECT(count[p] == circuits[p] && count[p] == held(problem, port_map, p));
        EXPECT(kept[p] == stayed && both[p] == (previous ? stayed : count[p]));
        lit -= circuits[p];
    }
    EXPECT(lit == retained);
    check_retained(problem, previous, port_map);
    free(count);
    free(both);
}

/* Plans and checks; `port_map` holds the previous plan unless `first`, and takes the new one. */
static void plan(const ocs_problem *problem, int first, int32_t *port_map)
{
    const int64_t ports = (int64_t)problem->gpus * problem->switches;
    const size_t bytes = (size_t)problem->pairs * sizeof(int32_t);
    int32_t *circuits = array(problem->pairs, sizeof *circuits), *slow = array(problem->pairs, sizeof *slow);
    int32_t *kept = array(problem->pairs, sizeof *kept), *previous = array(ports, sizeof *previous);
    int32_t *next = array(ports, sizeof *next);
    int64_t retained = -1;

    memcpy(previous, port_map, (size_t)ports * sizeof *previous);
    EXPECT(ocs_check(problem) == 0);
    EXPECT(ocs_maxmin(problem, circuits) == 0);
    check_maxmin(problem, circuits);
    if (bytes)
        memcpy(slow, circuits, bytes);
    EXPECT(ocs_fill(problem, first ? NULL : previous, circuits) == 0);
    EXPECT(fullest(problem, circuits) <= problem->switches);
    if (problem->pairs * ports < 40000) {
        fill_slowly(problem, first ? NULL : previous, slow);
        EXPECT(!bytes || memcmp(slow, circuits, bytes) == 0);
    }
    EXPECT(ocs_colour(problem, circuits, first ? NULL : previous, port_map, kept, &retained) == 0);
    check_map(problem, circuits, first ? NULL : previous, port_map, kept, retained);

    /* The same circuits again: all of them stay, and nothing else moves. */
    EXPECT(ocs_colour(problem, circuits, port_map, next, kept, &retained) == 0);
    EXPECT(memcmp(next, port_map, (size_t)ports * sizeof *next) == 0);
    EXPECT(!bytes || memcmp(kept, circuits, bytes) == 0);
    free(circuits);
    free(slow);
    free(kept);
    free(previous);
    free(next);
}

static void test_planning(int32_t gpus, int32_t switches, int percent, int rounds, uint64_t seed)
{
    int32_t *port_map = array((int64_t)gpus * switches, sizeof *port_map);

    for (int round = 0; round < rounds; round++) {
        traffic t;

        draw_traffic(&t, gpus, switches, percent, &seed);
        admit(&t, &seed);
        for (int again = 0; again < 3; again++) {
            plan(&t.problem, round == 0 && again == 0, port_map);
            drift(&t, &seed);
        }
        traffic_free(&t);
    }
    free(port_map);
}

/* Demands at both ends of what leaves circuits / demand finite. */
static void test_extreme_demands(void)
{
    const double demands[] = {1e-307, 1e-300, 1, 1e300, 1.7e308};
    int32_t port_map[3 * 5] = {0};
    traffic t;

    for (int low = 0; low < 5; low++)
        for (int high = 0; high < 5; high++) {
            traffic_new(&t, 3, 5, 3);
            for (int32_t p = 0; p < 3; p++) {
                t.src[p] = p;
                t.dst[p] = (p + 1) % 3;
                t.demand[p] = demands[p ? high : low];
            }
            plan(&t.problem, 1, port_map);
            traffic_free(&t);
        }
}

/* Three pairs of GPU 0 on two switches; `status` of each function, and nothing read is written. */
static void test_refusals(void)
{
    int32_t circuits[3] = {1, 1, 1}, port_map[8], kept[3];
    int64_t retained;
    traffic t;

    for (int turned = 0; turned < 2; turned++) { /* too many out of GPU 0, then into it */
        traffic_new(&t, 4, 2, 3);
        for (int32_t p = 0; p < 3; p++) {
            (turned ? t.src : t.dst)[p] = p + 1;
            t.demand[p] = 1;
        }
        EXPECT(ocs_check(&t.problem) == 0);
        EXPECT(ocs_maxmin(&t.problem, kept) == OCS_ECROWDED);
        EXPECT(ocs_colour(&t.problem, circuits, NULL, port_map, kept, &retained) == OCS_EOVERFULL);
        EXPECT(circuits[0] == 1 && circuits[1] == 1 && circuits[2] == 1);
        traffic_free(&t);
    }

    const int32_t bad[][4] = {{0, 2, 0, 1}, {1, 0, 0, 1}, {0, 1, 0, 1}, {-1, 1, 0, 1}, {0, -1, 0, 1},
                              {0, 1, 4, 0}, {0, 1, 0, 4}, {0, 1, 0, INT32_MAX}, {0, 1, INT32_MIN, 0}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        traffic_new(&t, 4, 2, 2);
        for (int p = 0; p < 2; p++) {
            t.src[p] = bad[k][2 * p];
            t.dst[p] = bad[k][2 * p + 1];
            t.demand[p] = 1;
        }
        EXPECT(ocs_check(&t.problem) == OCS_EORDER);
        traffic_free(&t);
    }
}

/* Each status has its own sentence, and no other number has one. */
static void test_sentences(void)
{
    const char *unknown = ocs_strerror(1);

    EXPECT(strcmp(ocs_strerror(INT32_MIN), unknown) == 0 && strcmp(ocs_strerror(OCS_EORDER - 1), unknown) == 0);
    for (int status = OCS_EORDER; status <= 0; status++) {
        EXPECT(strcmp(ocs_strerror(status), unknown) != 0);
        for (int other = status + 1; other <= 0; other++)
            EXPECT(strcmp(ocs_strerror(status), ocs_strerror(other)) != 0);
    }
}

int main(void)
{
    const int32_t gpus[] = {1, 2, 3, 5}, switches[] = {1, 2, 3, 64, 65};

    for (size_t n = 0; n < sizeof gpus / sizeof *gpus; n++)
        for (size_t q = 0; q < sizeof switches / sizeof *switches; q++)
            for (int percent = 0; percent <= 100; percent += 50)
                test_planning(gpus[n], switches[q], percent, 3, 1 + 100 * n + q);
    test_planning(12, 7, 80, 12, 3); /* more peers than circuits */
    test_planning(64, 16, 20, 2, 4);
    test_planning(64, 67, 70, 1, 5);
    test_planning(256, 24, 4, 1, 6);
    test_planning(256, 3, 50, 1, 7); /* far more */
    test_extreme_demands();
    test_refusals();
    test_sentences();
    return failures != 0;
}
