/* Standard normal numbers from a seed and their place in a stream. */

#ifndef SMC_TRANSFORMER_NOISE_H
#define SMC_TRANSFORMER_NOISE_H

#include "common.h"

/* Numbers first, ..., first + n - 1 of those that `fill_normal` makes of this seed. */
void normal_numbers(real *out, count first, count n, uint64_t seed);

#endif
