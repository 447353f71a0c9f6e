/* The served row with the lowest ratio, kept while circuits come and go: a tree whose leaves are the rows and whose
 * inner nodes name the lower of their two children, the left one of equals. */
#include <stdlib.h>

#include "net.h"

static int32_t lower(const net_t *net, int32_t left, int32_t right)
{
    if (right < 0) return left;
    return left >= 0 && ratio(&net->row[left]) <= ratio(&net->row[right]) ? left : right;
}

int net_rank(net_t *net)
{
    int32_t size = 1;
    while (size < net->rows) size *= 2;
    int32_t *rank = malloc(sizeof *rank * 2 * (size_t)size);
    if (!rank) return SIPRING_EMEMORY;
    for (int32_t k = 0; k < size; k++) rank[size + k] = k < net->rows && net->row[k].served ? k : -1;
    for (int32_t i = size - 1; i > 0; i--) rank[i] = lower(net, rank[2 * i], rank[2 * i + 1]);
    net->rank = rank;
    net->ranks = size;
    return SIPRING_OK;
}

void net_rerank(net_t *net, int32_t row)
{
    int32_t *rank = net->rank;
    for (int32_t i = (net->ranks + row) / 2; i > 0; i /= 2) {
        int32_t winner = lower(net, rank[2 * i], rank[2 * i + 1]);
        if (winner == rank[i] && winner != row) return;
        rank[i] = winner;
    }
}

int32_t net_lowest(const net_t *net) { return net->rank[1]; }

void net_unrank(net_t *net)
{
    free(net->rank);
    net->rank = NULL;
}
