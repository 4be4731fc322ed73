/* Standard normal and uniform numbers from a seed and their place in a stream. */

#ifndef SMC_TRANSFORMER_NOISE_H
#define SMC_TRANSFORMER_NOISE_H

#include "common.h"

typedef struct {
    uint32_t key[4], draw;
} Stream;

/* The numbered draw of a row at a step. */
static inline Stream stream_of(uint64_t key, uint64_t step, uint32_t draw)
{
    return (Stream){{(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)step, (uint32_t)(step >> 32)}, draw};
}

/* Numbers first, ..., first + n - 1 of a stream; those of the seed s that `fill_normal` makes are stream_of(s, 0, 0). */
void normal_numbers(real *out, count first, count n, Stream stream);

/* The first n uniform numbers in [0, 1) of a stream. */
void uniform_numbers(double *out, count n, Stream stream);

#endif
