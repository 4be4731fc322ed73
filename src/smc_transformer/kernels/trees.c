/* Numbers for the inputs that trajectories have in common, each once: the nodes of trees (recurrent.c).

   Trajectories of a sequence that are of the same branch at a step have the same input there, and the same node. Nodes
   are numbered by group of sequences, in a group by step, in a step by sequence, and there by branch. */

#include "common.h"

/* The number of branches, or -1 where one has a negative number. */
static count count_branches(const count *branches, count n)
{
    count most = -1;
    for (count i = 0; i < n; i++) {
        if (branches[i] < 0) return -1;
        if (branches[i] > most) most = branches[i];
    }
    return most + 1;
}

/* branches and nodes (batch, n_trajectories, steps); levels (groups, steps + 1), groups of `size` sequences. There is
   room for as many parents and rows as branches: a row is one of the places in `nodes` that a node stands at. Returns
   0, 1 when there was not enough memory, or -1 for a negative branch. */
int number_nodes(const count *branches, count batch, count n_trajectories, count steps, count size, count *nodes,
                   count *parents, count *rows, count *levels)
{
    count n_branches = count_branches(branches, batch * n_trajectories * steps), n_nodes = 0;
    if (n_branches < 0) return -1;
    count *found = calloc(n_branches ? n_branches : 1, sizeof(count)); /* who is of a branch, then the number of its node */
    if (!found) return 1;
    for (count first = 0; first < batch; first += size) {
        for (count t = 0; t < steps; t++) {
            *levels++ = n_nodes;
            for (count sequence = first; sequence < batch && sequence < first + size; sequence++) {
                count start = sequence * n_trajectories * steps + t;
                for (count branch = 0; branch < n_branches; branch++) found[branch] = -1;
                for (count k = n_trajectories - 1; k >= 0; k--) found[branches[start + k * steps]] = start + k * steps;
                for (count branch = 0; branch < n_branches; branch++) {
                    if (found[branch] < 0) continue;
                    rows[n_nodes] = found[branch];
                    parents[n_nodes] = t ? nodes[found[branch] - 1] : -1;
                    found[branch] = n_nodes++;
                }
                for (count k = 0; k < n_trajectories; k++)
                    nodes[start + k * steps] = found[branches[start + k * steps]];
            }
        }
        *levels++ = n_nodes;
    }
    free(found);
    return 0;
}
