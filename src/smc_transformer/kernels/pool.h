/* Work in small pieces, which any thread that has time takes.

   A kernel hands its pieces to the calling thread and to those of a pool. Nobody spins, and nobody waits for a thread
   that has not begun: a thread that the system has put aside costs at most the piece it is at. */

#ifndef SMC_TRANSFORMER_POOL_H
#define SMC_TRANSFORMER_POOL_H

#include "common.h"

#include <stdatomic.h>

/* The first member of every job. */
typedef struct {
    _Atomic count next;
    count n;
} Pieces;

/* The next piece to do, or -1 when all are taken. */
static inline count take(Pieces *pieces)
{
    count piece = atomic_fetch_add_explicit(&pieces->next, 1, memory_order_relaxed);
    return piece < pieces->n ? piece : -1;
}

/* Call work(job) in this thread and in those of the pool that have time, n_threads at most; it takes pieces until there
   are none, and returns 0, or 1 when it could take none for want of memory. Returns what it returned in this thread:
   the others are help. */
int work_together(int (*work)(void *job), void *job, int n_threads);

#endif
