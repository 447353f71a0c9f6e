/* A 4-ary heap of (key, id): four children share a cache line. */
#include "state.h"

enum { ARITY = 4 };

static int before(item a, item b)
{
    return a.key < b.key || (a.key == b.key && a.id < b.id);
}

static void place(heap *h, int64_t at, item it)
{
    h->items[at] = it;
    if (h->slot)
        h->slot[it.id] = (int32_t)at;
}

static void rise(heap *h, int64_t at, item it)
{
    while (at > 0) {
        int64_t parent = (at - 1) / ARITY;
        if (!before(it, h->items[parent]))
            break;
        place(h, at, h->items[parent]);
        at = parent;
    }
    place(h, at, it);
}

static void sink(heap *h, int64_t at, item it)
{
    for (;;) {
        int64_t best = ARITY * at + 1, stop = best + ARITY;
        if (best >= h->count)
            break;
        if (stop > h->count)
            stop = h->count;
        for (int64_t child = best + 1; child < stop; child++)
            if (before(h->items[child], h->items[best]))
                best = child;
        if (!before(h->items[best], it))
            break;
        place(h, at, h->items[best]);
        at = best;
    }
    place(h, at, it);
}

void heap_push(heap *h, int32_t id, double key)
{
    rise(h, h->count++, (item){key, id});
}

void heap_set(heap *h, int32_t id, double key)
{
    int64_t at = h->slot[id];
    if (at == NONE)
        heap_push(h, id, key);
    else if (key < h->items[at].key)
        rise(h, at, (item){key, id});
    else
        sink(h, at, (item){key, id});
}

void heap_remove(heap *h, int32_t id)
{
    int64_t at = h->slot[id];
    if (at == NONE)
        return;
    h->slot[id] = NONE;
    item last = h->items[--h->count];
    if (at == h->count)
        return;
    if (at > 0 && before(last, h->items[(at - 1) / ARITY]))
        rise(h, at, last);
    else
        sink(h, at, last);
}

int32_t heap_pop(heap *h)
{
    int32_t id = h->items[0].id;
    if (h->slot)
        h->slot[id] = NONE;
    item last = h->items[--h->count];
    if (h->count)
        sink(h, 0, last);
    return id;
}

void heap_order(heap *h)
{
    for (int64_t at = (h->count - 2) / ARITY; at >= 0 && h->count > 1; at--)
        sink(h, at, h->items[at]);
}
