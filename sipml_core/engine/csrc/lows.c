/* Keys of which the least is wanted, in blocks of 32. Setting a key is a store and a mark; the least key of a block
 * is found again only when it is asked for and a key in the block was set. Blocks of blocks are kept in the same way,
 * so that a million keys take four levels. */
#include "state.h"

#include <math.h>

enum { BLOCK_BITS = 5, BLOCK = 1 << BLOCK_BITS };

static inline double least_of(const double *keys, int32_t count)
{
    double a = keys[0], b = keys[1], c = keys[2], d = keys[3];
    for (int32_t i = 4; i < count; i += 4) { /* four chains, for they need not wait for one another */
        a = keys[i] < a ? keys[i] : a;
        b = keys[i + 1] < b ? keys[i + 1] : b;
        c = keys[i + 2] < c ? keys[i + 2] : c;
        d = keys[i + 3] < d ? keys[i + 3] : d;
    }
    a = b < a ? b : a;
    c = d < c ? d : c;
    return c < a ? c : a;
}

/* Ids up to this one are in use: are there more levels, or is the block at the top longer? */
static void use(lows *of, int32_t id)
{
    of->used = id + 1;
    while ((int64_t)id >> BLOCK_BITS * of->levels)
        of->stale[of->levels++][0] = 1; /* over the block that was at the top */
    of->tops = (int32_t)((int64_t)id >> BLOCK_BITS * (of->levels - 1)) + 1;
}

static double least_of_block(const double *keys)
{
    return least_of(keys, BLOCK);
}

void lows_set(lows *of, int32_t id, double key)
{
    of->keys[0][id] = key;
    if (id >= of->used)
        use(of, id);
    for (int32_t level = 1; level < of->levels; level++) {
        id >>= BLOCK_BITS;
        uint32_t *marks = &of->stale[level][id >> BLOCK_BITS], mark = UINT32_C(1) << id % BLOCK;
        if (*marks & mark)
            return; /* then so are the blocks above */
        *marks |= mark;
    }
}

/* Bring the keys 32 `block` .. 32 `block` + 31 of a level up to date. */
static void refresh(lows *of, int32_t level, int32_t block)
{
    uint32_t marks = of->stale[level][block];
    of->stale[level][block] = 0;
    for (; marks; marks &= marks - 1) {
        int32_t below = BLOCK * block + __builtin_ctz(marks);
        if (level > 1)
            refresh(of, level - 1, below);
        of->keys[level][below] = least_of_block(of->keys[level - 1] + (int64_t)BLOCK * below);
    }
}

double lows_least(lows *of)
{
    int32_t top = of->levels - 1;
    if (top)
        refresh(of, top, 0);
    return least_of(of->keys[top], of->tops);
}

int32_t lows_find(const lows *of, double key)
{
    int32_t id = 0;
    for (int32_t level = of->levels - 1; level >= 0; level--) {
        const double *keys = of->keys[level] + (int64_t)BLOCK * id;
        int32_t i = 0;
        while (keys[i] != key)
            i++;
        id = BLOCK * id + i;
    }
    return id;
}

/* How many of the keys are not above the limit: counted without branches, for most often it is one. */
static inline int64_t count_of(const double *keys, int32_t count, double limit)
{
    int64_t found = 0;
    for (int32_t i = 0; i < count; i++)
        found += keys[i] <= limit;
    return found;
}

static int64_t collect(const lows *of, int32_t level, int32_t block, int32_t size, double limit, int32_t *ids)
{
    int64_t count = 0;
    int32_t id = BLOCK * block;
    for (int64_t left = count_of(of->keys[level] + id, size, limit); left; id++) {
        if (of->keys[level][id] > limit)
            continue;
        left--;
        if (level)
            count += collect(of, level - 1, id, BLOCK, limit, ids + count);
        else
            ids[count++] = id;
    }
    return count;
}

int64_t lows_collect(const lows *of, double limit, int32_t *ids)
{
    return collect(of, of->levels - 1, 0, of->tops, limit, ids);
}

void lows_restart(lows *of)
{
    of->levels = 1;
    of->used = of->tops = 0;
}
