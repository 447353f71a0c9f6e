/* What a decision on circuits starts from, in one call: what was sent and waits, and the demand that is planned for. */
#include "state.h"

#include <string.h>

static int any(const double *values, int64_t from, int64_t to)
{
    for (int64_t k = from; k < to; k++)
        if (values[k] > 0)
            return 1;
    return 0;
}

int engine_traffic(const engine *run, const double *before, double *carried, double *sent, double *backlog)
{
    int64_t links = run->net.links, first = run->net.first_circuit;
    engine_carried(run, carried);
    engine_backlog(run, backlog);
    for (int64_t k = 0; k < links; k++)
        sent[k] = carried[k] > before[k] ? carried[k] - before[k] : 0;
    return any(sent, first, links) | any(backlog, first, links) << 1;
}

/* To 36 binary digits, those half way between two to the even one: of 53 the last 17 go. Half of the last one that stays,
 * less one if that is even, carries into it, and from the largest fraction into the exponent, as it should. */
static double rounded(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + ((bits >> 17) & 1) + 0xFFFF) & ~UINT64_C(0x1FFFF);
    memcpy(&value, &bits, sizeof value);
    return value;
}

int64_t engine_asked(int64_t circuits, const double *demand, uint8_t *asked, double *values, int32_t *same)
{
    int64_t count = 0;
    *same = 1;
    for (int64_t k = 0; k < circuits; k++) {
        double value = rounded(demand[k]);
        uint8_t is = value > 0;
        *same &= is == asked[k];
        asked[k] = is;
        if (is)
            values[count++] = value;
    }
    return count;
}
