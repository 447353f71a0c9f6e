/* A 4-ary heap of (key, id): four children share a cache line. */
#include "state.h"

enum { ARITY = 4 };

static int before(item a, item b)
{
    return a.key < b.key || (a.key == b.key && a.id < b.id);
}

void heap_push(heap *h, int32_t id, double key)
{
    item it = {key, id};
    int64_t at = h->count++;
    while (at > 0) {
        int64_t parent = (at - 1) / ARITY;
        if (!before(it, h->items[parent]))
            break;
        h->items[at] = h->items[parent];
        at = parent;
    }
    h->items[at] = it;
}

int32_t heap_pop(heap *h)
{
    int32_t id = h->items[0].id;
    item last = h->items[--h->count];
    int64_t at = 0;
    for (;;) {
        int64_t best = ARITY * at + 1, stop = best + ARITY;
        if (best >= h->count)
            break;
        if (stop > h->count)
            stop = h->count;
        for (int64_t child = best + 1; child < stop; child++)
            if (before(h->items[child], h->items[best]))
                best = child;
        if (!before(h->items[best], last))
            break;
        h->items[at] = h->items[best];
        at = best;
    }
    h->items[at] = last;
    return id;
}
