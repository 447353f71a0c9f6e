#include <stdlib.h>

#include "row.h"

static int32_t lower(const rank_t *rank, int32_t left, int32_t right)
{
    if (right < 0) return left;
    return left >= 0 && ratio(&rank->row[left]) <= ratio(&rank->row[right]) ? left : right;
}

int rank_open(rank_t *rank, const row_t *row, int32_t rows)
{
    int32_t leaves = 1, *node;
    while (leaves < rows) leaves *= 2;
    node = malloc(sizeof *node * 2 * (size_t)leaves);
    if (!node) return -1;
    rank->row = row;
    rank->node = node;
    rank->leaves = leaves;
    for (int32_t k = 0; k < leaves; k++) node[leaves + k] = k < rows && row[k].served ? k : -1;
    for (int32_t i = leaves - 1; i > 0; i--) node[i] = lower(rank, node[2 * i], node[2 * i + 1]);
    return 0;
}

void rank_update(rank_t *rank, int32_t row)
{
    int32_t *node = rank->node;
    for (int32_t i = (rank->leaves + row) / 2; i > 0; i /= 2) {
        int32_t winner = lower(rank, node[2 * i], node[2 * i + 1]);
        if (winner == node[i] && winner != row) return;
        node[i] = winner;
    }
}

int32_t rank_lowest(const rank_t *rank) { return rank->node[1]; }

void rank_close(rank_t *rank)
{
    free(rank->node);
    rank->node = NULL;
}
