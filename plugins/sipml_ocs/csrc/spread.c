/* Configurations to switches: longest first, or one switch after the other with cuts, whichever ends sooner. */
#include "ocs.h"

#include <stdlib.h>
#include <string.h>

/* Steps of bisection between the mean load of a switch and a span that surely suffices; what is left below this part of
 * the span is rounding. */
enum { BISECTIONS = 12 };
static const double ROUNDING = 1e-12, SAME = 1e-9;

/* What is spread: durations > 0, the longest first. */
typedef struct load {
    int32_t count;
    const double *duration;
    int32_t switches;
    double delay;
} load;

double ocs_end(const ocs_slice *slices, int64_t count)
{
    double end = 0.0;

    for (int64_t k = 0; k < count; k++)
        if (slices[k].end > end)
            end = slices[k].end;
    return end;
}

/* A switch in a heap: the one that is free first, the first of those, is at the top. */
typedef struct busy {
    double until;
    int32_t on;
} busy;

static int sooner(busy a, busy b)
{
    return a.until < b.until || (a.until == b.until && a.on < b.on);
}

static void sink(busy *heap, int32_t count)
{
    for (int32_t k = 0, child; (child = 2 * k + 1) < count; k = child) {
        if (child + 1 < count && sooner(heap[child + 1], heap[child]))
            child++;
        if (!sooner(heap[child], heap[k]))
            return;
        const busy moved = heap[k];
        heap[k] = heap[child];
        heap[child] = moved;
    }
}

/* Each configuration whole, on the switch that is free first. `heap` has room for the switches, `slices` for the count. */
static void longest_first(const load *given, busy *heap, ocs_slice *slices)
{
    for (int32_t k = 0; k < given->switches; k++) heap[k] = (busy){0.0, k};
    for (int32_t k = 0; k < given->count; k++) {
        const busy top = heap[0];
        const double end = top.until + given->delay + given->duration[k];
        slices[k] = (ocs_slice){top.on, k, top.until, end};
        heap[0].until = end;
        sink(heap, given->switches);
    }
}

/* Fill one switch after the other up to `end`; -1 if there are too few, else the slices, at most count + switches. They are
 * not written where `slices` is null. */
static int64_t filled(const load *given, double end, ocs_slice *slices)
{
    int64_t made = 0;
    int32_t on = 0;
    double now = 0.0;

    for (int32_t k = 0; k < given->count; k++) {
        double left = given->duration[k];
        while (left > ROUNDING * end) {
            const double room = end - now - given->delay;
            if (room <= ROUNDING * end) {
                now = 0.0;
                if (++on == given->switches || end <= given->delay)
                    return -1;
                continue;
            }
            const double taken = room < left ? room : left;
            if (slices)
                slices[made] = (ocs_slice){on, k, now, now + given->delay + taken};
            made++;
            now += given->delay + taken;
            left -= taken;
        }
    }
    return made;
}

/* The least span, by bisection, in which switches that are filled one after the other hold everything. */
static double least_span(const load *given)
{
    const double parts = (double)given->switches;
    double total = 0.0, lost = 0.0;

    for (int32_t k = 0; k < given->count; k++) {  /* Kahan: durations of very different size */
        const double more = given->duration[k] - lost, sum = total + more;
        lost = (sum - total) - more;
        total = sum;
    }
    total += (double)given->count * given->delay;
    /* Each of the switches but the last loses at most one delay to a cut, or to what is too short for one. */
    const double longest = given->delay + given->duration[0] / parts;
    double low = total / parts, high = (total + (parts - 1) * given->delay) / parts;
    high = (high > longest ? high : longest) * (1 + ROUNDING);
    if (high - low > SAME * high)
        for (int step = 0; step < BISECTIONS; step++) {
            const double middle = (low + high) / 2;
            if (filled(given, middle, NULL) < 0)
                low = middle;
            else
                high = middle;
        }
    return high;
}

int ocs_spread(int32_t configurations, const double *duration, int32_t switches, double delay, ocs_slice *slices,
               int64_t *count)
{
    load given = {0, duration, switches, delay};
    const size_t room = (size_t)configurations + (size_t)switches + 1;
    busy *heap = malloc(((size_t)switches + 1) * sizeof *heap);
    ocs_slice *cut = malloc(room * sizeof *cut);
    int status = 0;

    *count = 0;
    if (!heap || !cut) {
        status = OCS_ENOMEM;
        goto done;
    }
    while (given.count < configurations && duration[given.count] > 0) given.count++;
    if (!given.count)
        goto done;
    longest_first(&given, heap, slices);
    *count = given.count;
    const int64_t made = filled(&given, least_span(&given), cut);
    if (made >= 0 && ocs_end(cut, made) < ocs_end(slices, given.count)) {
        memcpy(slices, cut, (size_t)made * sizeof *slices);
        *count = made;
    }
done:
    free(heap);
    free(cut);
    return status;
}
