#include <stdlib.h>

#include "row.h"

static int32_t lower(const rank_t *rank, int32_t left, int32_t right)
{
    if (right < 0) return left;
    return left >= 0 && rank->ratio[left] <= rank->ratio[right] ? left : right;
}

int rank_open(rank_t *rank, const row_t *row, int32_t rows)
{
    int32_t leaves = 1;
    size_t many = (size_t)rows;
    while (leaves < rows) leaves *= 2;
    char *memory = malloc((sizeof(double) + sizeof(int32_t) + 1) * many + sizeof(int32_t) * 2 * (size_t)leaves);
    if (!memory) return -1;
    *rank = (rank_t){.row = row, .leaves = leaves, .ratio = (double *)memory};
    rank->node = (int32_t *)(rank->ratio + many);
    rank->changed = rank->node + 2 * (size_t)leaves;
    rank->has_changed = (uint8_t *)(rank->changed + many);
    for (int32_t k = 0; k < rows; k++) {
        rank->ratio[k] = ratio(&row[k]);
        rank->has_changed[k] = 0;
    }
    for (int32_t k = 0; k < leaves; k++) rank->node[leaves + k] = k < rows && row[k].served ? k : -1;
    for (int32_t i = leaves - 1; i > 0; i--) rank->node[i] = lower(rank, rank->node[2 * i], rank->node[2 * i + 1]);
    return 0;
}

static void update(rank_t *rank, int32_t row)
{
    int32_t *node = rank->node;
    double now = ratio(&rank->row[row]);
    rank->has_changed[row] = 0;
    if (now == rank->ratio[row]) return; /* and changed back */
    rank->ratio[row] = now;
    for (int32_t i = (rank->leaves + row) / 2; i > 0; i /= 2) {
        int32_t winner = lower(rank, node[2 * i], node[2 * i + 1]);
        if (winner == node[i] && winner != row) return;
        node[i] = winner;
    }
}

int32_t rank_lowest(rank_t *rank)
{
    while (rank->changes > 0) update(rank, rank->changed[--rank->changes]);
    return rank->node[1];
}

void rank_close(rank_t *rank)
{
    free(rank->ratio);
    *rank = (rank_t){.node = NULL};
}
