/* What the planner of the ring refuses: status, the row or circuit it speaks of, and inputs left as they were.
 * Prints what fails and returns whether something did. */
#include "expect.h"
#include "ring.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GPUS = 6, PAIRS = 3, MOST = 2 * PAIRS, CIRCUITS = GPUS * 4 };

/* Three pairs on six GPUs, each within three hops clockwise, with one circuit each on index 0. */
typedef struct {
    int32_t src[PAIRS], dst[PAIRS], count[2 * PAIRS];
    double demand[PAIRS];
    int32_t pair[PAIRS], direction[PAIRS], index[PAIRS];
    int32_t from[PAIRS], to[PAIRS]; /* the pairs of the circuits */
} input;

static const sipring_ring RING = {GPUS, {2, 2}, 3, 1, 0};
static const input GOOD = {.src = {0, 1, 4}, .dst = {1, 3, 0}, .count = {1, 0, 1, 0, 1, 0}, .demand = {1, 2, 3},
                           .pair = {0, 1, 2}, .from = {0, 1, 4}, .to = {1, 3, 0}};

typedef struct {
    int status;
    int64_t bad;
} answer;

enum function { FAST, FAST_AGAIN, COMPLETE, COLOUR, CHECK };

static answer ask(enum function which, sipring_ring ring, const input *given)
{
    int32_t src[MOST], dst[MOST], count[2 * MOST], kept[MOST], pair[CIRCUITS], direction[CIRCUITS], index[CIRCUITS];
    int32_t unserved[PAIRS];
    double amount[MOST];
    input in = *given;
    sipring_demand demand = {PAIRS, in.src, in.dst, in.demand, NULL};
    sipring_circuits circuits = {PAIRS, in.from, in.to, PAIRS, in.pair, in.direction, in.index};
    sipring_plan plan = {.src = src, .dst = dst, .demand = amount, .count = count, .kept = kept, .pair = pair,
                         .direction = direction, .index = index, .unserved = unserved, .bad = -1};
    answer a = {0, -1};
    switch (which) {
    case FAST: a.status = sipring_fast(&ring, &demand, NULL, &plan); break;
    case FAST_AGAIN: a.status = sipring_fast(&ring, &demand, &circuits, &plan); break;
    case COMPLETE: a.status = sipring_complete(&ring, &demand, &circuits, NULL, &plan); break;
    case COLOUR: a.status = sipring_colour(&ring, &demand, in.count, NULL, &plan); break;
    case CHECK: a.status = sipring_check(&ring, &circuits, &plan.bad); break;
    }
    a.bad = plan.bad;
    EXPECT(memcmp(&in, given, sizeof in) == 0);
    return a;
}

static int answers(enum function which, const input *in, int status, int64_t bad)
{
    answer a = ask(which, RING, in);
    return a.status == status && (status == SIPRING_OK || a.bad == bad);
}

static void test_nothing_wrong(void)
{
    for (int which = FAST; which <= CHECK; which++) EXPECT(answers((enum function)which, &GOOD, SIPRING_OK, 0));
}

static void test_rings(void)
{
    const sipring_ring bad[] = {{0, {2, 2}, 3, 1, 0},  {-1, {2, 2}, 3, 1, 0}, {6, {2, 2}, 0, 1, 0},
                                {6, {0, 0}, 3, 1, 0},  {6, {-1, 2}, 3, 1, 0}, {6, {2, INT32_MIN}, 3, 1, 0},
                                {6, {SIPRING_MAX_WAVELENGTHS + 1, 2}, 3, 1, 0}, {6, {2, INT32_MAX}, 3, 1, 0},
                                {6, {2, 2}, 1, 1, -1},  {6, {2, 2}, 1, 1, 4},  {6, {2, 2}, 1, 1, 7},
                                {6, {2, 2}, 2, 1, 1},   {6, {2, 2}, 2, 1, INT32_MIN}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        for (int which = FAST; which <= CHECK; which++)
            for (int continuous = 0; continuous < 2; continuous++) {
                sipring_ring ring = bad[k];
                ring.continuous = continuous;
                EXPECT(ask((enum function)which, ring, &GOOD).status == SIPRING_ERING);
            }
}

static void test_pairs(void)
{
    const int32_t bad[][2] = {{0, 1}, {0, 0}, {1, 1}, {-1, 3}, {1, -1}, {6, 3}, {1, 6}, {INT32_MAX, 2}, {1, INT32_MIN}};
    const double amounts[] = {0, -1, INFINITY, -INFINITY, NAN};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        input in = GOOD;
        in.src[1] = bad[k][0];
        in.dst[1] = bad[k][1];
        for (int which = FAST; which < CHECK; which++) EXPECT(answers((enum function)which, &in, SIPRING_EPAIRS, 1));
    }
    for (size_t k = 0; k < sizeof amounts / sizeof *amounts; k++) {
        input in = GOOD;
        in.demand[2] = amounts[k];
        for (int which = FAST; which < CHECK; which++) EXPECT(answers((enum function)which, &in, SIPRING_EPAIRS, 2));
    }
}

/* Two hops at most: 1 to 3 can be reached, 1 to 4 is three away in both directions. */
static void test_reach(void)
{
    sipring_ring ring = RING;
    input in = GOOD;
    ring.reach_hops = 2;
    EXPECT(ask(FAST, ring, &in).status == SIPRING_OK);
    in.dst[1] = 4;
    for (int which = FAST; which < CHECK; which++) {
        answer a = ask((enum function)which, ring, &in);
        EXPECT(a.status == SIPRING_EREACH && a.bad == 1);
    }
}

static void test_circuits(void)
{
    const enum function readers[] = {FAST_AGAIN, COMPLETE, CHECK};
    const int32_t bad[][3] = {{-1, 0, 0}, {PAIRS, 0, 0}, {INT32_MAX, 0, 0}, {1, -1, 0}, {1, 2, 0},
                              {1, 1, 0}, {1, 0, -1}, {1, 0, 2}, {1, 0, INT32_MAX}};
    const int32_t ends[][2] = {{-1, 2}, {0, GPUS + 3}, {2, 3 - GPUS}, {1, 1}, {INT32_MAX, INT32_MAX}, {1, INT32_MIN}};
    for (int which = 0; which < 3; which++) {
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            input in = GOOD;
            in.pair[1] = bad[k][0];
            in.direction[1] = bad[k][1];
            in.index[1] = bad[k][2];
            EXPECT(answers(readers[which], &in, SIPRING_ECIRCUITS, 1));
        }
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) { /* some with the same src gpus + dst as (1, 3) */
            input in = GOOD;
            in.from[1] = ends[k][0];
            in.to[1] = ends[k][1];
            EXPECT(answers(readers[which], &in, SIPRING_ECIRCUITS, 1));
        }
    }
    input undemanded = GOOD;
    undemanded.to[1] = 2;
    EXPECT(answers(FAST_AGAIN, &undemanded, SIPRING_OK, 0)); /* a past that nobody asks for any more */
    EXPECT(answers(COMPLETE, &undemanded, SIPRING_ECIRCUITS, 1));
}

/* 4 to 0 in a second circuit: on index 0 it meets the first; on index 1 it does not. */
static void test_conflicts(void)
{
    input in = GOOD;
    in.pair[1] = 2;
    EXPECT(answers(CHECK, &in, SIPRING_ECONFLICT, 2) && answers(COMPLETE, &in, SIPRING_ECONFLICT, 2));
    in.index[1] = 1;
    EXPECT(answers(CHECK, &in, SIPRING_OK, 0) && answers(COMPLETE, &in, SIPRING_OK, 0));
}

/* Two wavelengths: three circuits from 1 to 3 are too many, and so are as many as a number can say. */
static void test_counts(void)
{
    const int32_t many[] = {3, 1000, INT32_MAX};
    input in = GOOD;
    in.count[2] = 2;
    EXPECT(answers(COLOUR, &in, SIPRING_OK, 0));
    for (int k = 0; k < 3; k++) {
        in.count[2] = many[k];
        EXPECT(ask(COLOUR, RING, &in).status == SIPRING_ECONFLICT);
    }
    for (int k = 0; k < 2 * PAIRS; k += 2) in.count[k] = INT32_MAX;
    EXPECT(ask(COLOUR, RING, &in).status == SIPRING_ECONFLICT);
    in = GOOD;
    in.count[2] = -1;
    EXPECT(answers(COLOUR, &in, SIPRING_ECIRCUITS, 1));
    in = GOOD;
    in.count[3] = 1; /* 1 to 3 is four hops the other way */
    EXPECT(answers(COLOUR, &in, SIPRING_ECIRCUITS, 1));
    in = GOOD;
    in.dst[1] = 4; /* three hops either way */
    in.count[2] = in.count[3] = INT32_MAX;
    EXPECT(ask(COLOUR, RING, &in).status == SIPRING_ECONFLICT);
}

/* As many wavelengths as there may be, and demands that are far apart. */
static void test_extremes(void)
{
    static int32_t pair[2 * GPUS * SIPRING_MAX_WAVELENGTHS], direction[2 * GPUS * SIPRING_MAX_WAVELENGTHS];
    static int32_t index[2 * GPUS * SIPRING_MAX_WAVELENGTHS];
    const sipring_ring ring = {GPUS, {SIPRING_MAX_WAVELENGTHS, SIPRING_MAX_WAVELENGTHS}, 3, 1, 0};
    int32_t src[MOST], dst[MOST], count[2 * MOST], kept[MOST], unserved[PAIRS];
    double amount[MOST];
    sipring_plan plan = {.src = src, .dst = dst, .demand = amount, .count = count, .kept = kept, .pair = pair,
                         .direction = direction, .index = index, .unserved = unserved};
    sipring_demand demand = {PAIRS, GOOD.src, GOOD.dst, GOOD.demand, NULL};
    EXPECT(sipring_fast(&ring, &demand, NULL, &plan) == SIPRING_OK && plan.circuits >= SIPRING_MAX_WAVELENGTHS);
    input small = GOOD;
    small.demand[1] = SIPRING_LEAST_DEMAND / 2;
    for (int which = FAST; which < CHECK; which++)
        EXPECT(answers((enum function)which, &small, SIPRING_EPAIRS, 1));
    const double demands[] = {SIPRING_LEAST_DEMAND, 1, 1e290, DBL_MAX};
    for (int low = 0; low < 4; low++)
        for (int high = 0; high < 4; high++) {
            input in = GOOD;
            in.demand[0] = demands[low];
            in.demand[1] = in.demand[2] = demands[high];
            for (int which = FAST; which < CHECK; which++) EXPECT(answers((enum function)which, &in, SIPRING_OK, 0));
        }
}

/* Each status has its own sentence, and no other number has one. */
static void test_sentences(void)
{
    const char *unknown = sipring_strerror(1);
    EXPECT(strcmp(sipring_strerror(INT32_MIN), unknown) == 0);
    EXPECT(strcmp(sipring_strerror(SIPRING_ECONFLICT - 1), unknown) == 0);
    for (int status = SIPRING_ECONFLICT; status <= SIPRING_OK; status++) {
        EXPECT(strcmp(sipring_strerror(status), unknown) != 0);
        for (int other = status + 1; other <= SIPRING_OK; other++)
            EXPECT(strcmp(sipring_strerror(status), sipring_strerror(other)) != 0);
    }
}

int main(void)
{
    test_nothing_wrong();
    test_rings();
    test_pairs();
    test_reach();
    test_circuits();
    test_conflicts();
    test_counts();
    test_extremes();
    test_sentences();
    return failures != 0;
}
