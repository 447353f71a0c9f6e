/* Every kernel of the switches on valid input of which a few values were changed: it returns a code that ocs.h names, and
 * circuits that it made fit the ports. The sanitizers see the rest. */
#include "draw.h"
#include "expect.h"
#include "ocs.h"

#include <string.h>

enum { ROUNDS = 2000, MOST_GPUS = 12, MOST_SWITCHES = 70 };

/* A partial permutation on every switch: what a previous plan may be. */
static int32_t *draw_map(int32_t gpus, int32_t switches, uint64_t *seed)
{
    int32_t *map = array((int64_t)gpus * switches, sizeof *map);
    for (int32_t q = 0; q < switches; q++) {
        int32_t *row = map + (int64_t)q * gpus;
        for (int32_t i = 0; i < gpus; i++) row[i] = i;
        for (int32_t i = gpus - 1; i > 0; i--) {
            int32_t other = below(seed, i + 1), held = row[i];
            row[i] = row[other];
            row[other] = held;
        }
        for (int32_t i = 0; i < gpus; i++)
            if (row[i] == i || below(seed, 3) == 0) row[i] = OCS_DARK;
    }
    return map;
}

/* Whether every port has at most one circuit on each switch, and every pair as many as it was promised. */
static int map_holds(const ocs_problem *p, const int32_t *map, const int32_t *circuits, int32_t *found)
{
    int32_t uses[MOST_GPUS];
    for (int32_t q = 0; q < p->switches; q++) {
        memset(uses, 0, sizeof uses);
        for (int32_t i = 0; i < p->gpus; i++) {
            int32_t j = map[(int64_t)q * p->gpus + i];
            if (j != OCS_DARK && (j < 0 || j >= p->gpus || uses[j]++)) return 0;
        }
    }
    ocs_count(p, map, NULL, found);
    return p->pairs == 0 || memcmp(found, circuits, (size_t)p->pairs * sizeof *found) == 0;
}

static void plan(const ocs_problem *p, uint64_t *seed)
{
    int32_t *circuits = array(p->pairs, 4), *kept = array(p->pairs, 4), *found = array(p->pairs, 4);
    int32_t *map = array((int64_t)p->gpus * p->switches, 4);
    int32_t *previous = below(seed, 2) ? draw_map(p->gpus, p->switches, seed) : NULL;
    int64_t retained = 0;
    int status = ocs_maxmin(p, circuits);

    EXPECT(status == 0 || status == OCS_ECROWDED);
    if (status == 0) {
        EXPECT(ocs_fill(p, previous, circuits) == 0);
        EXPECT(ocs_colour(p, circuits, previous, map, kept, &retained) == 0);
        EXPECT(map_holds(p, map, circuits, found));
        for (int64_t k = 0; k < p->pairs; k++) EXPECT(kept[k] >= 0 && kept[k] <= circuits[k]);
        if (p->pairs) { /* one pair wants more than any port has */
            circuits[below(seed, (int)p->pairs)] += p->switches + 1;
            EXPECT(ocs_colour(p, circuits, previous, map, kept, &retained) == OCS_EOVERFULL);
        }
    }
    free(circuits);
    free(kept);
    free(found);
    free(map);
    free(previous);
}

static void admit(const ocs_problem *p, uint64_t *seed)
{
    int64_t *order = array(p->pairs, sizeof *order);
    uint8_t *admitted = array(p->pairs, 1);
    int32_t out[MOST_GPUS] = {0};

    for (int64_t k = 0; k < p->pairs; k++) { /* shuffled as it grows */
        int64_t other = below(seed, (int)k + 1);
        order[k] = order[other];
        order[other] = k;
    }
    EXPECT(ocs_admit(p, order, admitted) == 0);
    for (int64_t k = 0; k < p->pairs; k++) {
        EXPECT(admitted[k] <= 1);
        out[p->src[k]] += admitted[k];
    }
    for (int32_t i = 0; i < p->gpus; i++) EXPECT(out[i] <= p->switches);
    free(order);
    free(admitted);
}

/* Pieces in any order, some twice: matched without a conflict where there are enough configurations. */
static void pieces(const ocs_problem *p, uint64_t *seed)
{
    const int64_t count = p->pairs + (p->pairs ? below(seed, (int)p->pairs) : 0);
    int32_t *src = array(count, 4), *dst = array(count, 4), *colour = array(count, 4);
    int32_t ends[2 * MOST_GPUS] = {0}, degree = 0;

    for (int64_t k = 0; k < count; k++) {
        int64_t from = k < p->pairs ? k : below(seed, (int)p->pairs);
        src[k] = p->src[from];
        dst[k] = p->dst[from];
        if (++ends[src[k]] > degree) degree = ends[src[k]];
        if (++ends[MOST_GPUS + dst[k]] > degree) degree = ends[MOST_GPUS + dst[k]];
    }
    EXPECT(ocs_match(p->gpus, count, src, dst, degree + below(seed, 3), colour) == 0);
    for (int64_t k = 0; k < count; k++)
        for (int64_t other = 0; other < k; other++)
            EXPECT(colour[k] != colour[other] || (src[k] != src[other] && dst[k] != dst[other]));
    if (degree > 1) EXPECT(ocs_match(p->gpus, count, src, dst, degree - 1, colour) == OCS_EOVERFULL);
    if (count) {
        src[below(seed, (int)count)] = below(seed, 2) ? -1 : p->gpus;
        EXPECT(ocs_match(p->gpus, count, src, dst, degree, colour) != 0);
    }
    free(src);
    free(dst);
    free(colour);
}

/* Every pair of a schedule is lit for as long as it asks, and no switch has two configurations at once. */
static void schedules(const ocs_problem *p, uint64_t *seed)
{
    const double delay = below(seed, 3) / 2.0;
    double lit[MOST_GPUS * MOST_GPUS] = {0};
    ocs_schedule made;

    EXPECT(ocs_decompose(p, delay, &made) == 0);
    for (int64_t k = 0; k < made.slices; k++) {
        const ocs_slice *slice = &made.slice[k];
        EXPECT(slice->on >= 0 && slice->on < p->switches);
        for (int64_t other = 0; other < k; other++)
            EXPECT(made.slice[other].on != slice->on || made.slice[other].end <= slice->start * (1 + 1e-9));
        for (int32_t i = 0; i < p->gpus; i++) {
            const int32_t j = made.port_map[slice->configuration * p->gpus + i];
            if (j != OCS_DARK) lit[i * MOST_GPUS + j] += slice->end - slice->start - delay;
        }
    }
    for (int64_t k = 0; k < p->pairs; k++)
        EXPECT(lit[p->src[k] * MOST_GPUS + p->dst[k]] >= p->demand[k] * (1 - 1e-9));
    ocs_schedule_free(&made);
    EXPECT(!made.port_map && !made.slices);
}

int main(void)
{
    uint64_t seed = 34;

    for (int k = 0; k < ROUNDS; k++) {
        const int32_t n = 1 + below(&seed, MOST_GPUS), percent = below(&seed, 100);
        int32_t all_src[MOST_GPUS * MOST_GPUS], all_dst[MOST_GPUS * MOST_GPUS];
        int64_t pairs = 0;

        for (int32_t i = 0; i < n; i++)
            for (int32_t j = 0; j < n; j++)
                if (i != j && below(&seed, 100) < percent) {
                    all_src[pairs] = i;
                    all_dst[pairs++] = j;
                }
        int32_t *src = array(pairs, 4), *dst = array(pairs, 4);
        double *demand = array(pairs, sizeof *demand);
        for (int64_t p = 0; p < pairs; p++) {
            src[p] = all_src[p];
            dst[p] = all_dst[p];
            demand[p] = (1 + below(&seed, 1000)) / 1000.0;
        }
        if (pairs && below(&seed, 4) == 0) { /* out of range or out of order, now and then by luck not */
            int32_t *end = below(&seed, 2) ? src : dst;
            end[below(&seed, (int)pairs)] = below(&seed, 4) ? below(&seed, n + 2) - 1 : INT32_MAX;
        }
        const ocs_problem problem = {n, 1 + below(&seed, MOST_SWITCHES), pairs, src, dst, demand};
        const int status = ocs_check(&problem);

        EXPECT(status == 0 || status == OCS_EORDER);
        if (status == 0) {
            plan(&problem, &seed);
            admit(&problem, &seed);
            pieces(&problem, &seed);
            if (k % 8 == 0) schedules(&problem, &seed);
        }
        free(src);
        free(dst);
        free(demand);
    }
    return failures > 0;
}
