/* Products of one step with a stretch of steps: what attention over a causal window is made of. */

#ifndef SMC_TRANSFORMER_BAND_H
#define SMC_TRANSFORMER_BAND_H

#include "common.h"

/* One head of one row as (size, padded steps), so that vectors run over steps; one vector more for reading ahead. */
SHARED void transpose_head(const real *x, count steps, count d, count size, count stride, real *out)
{
    for (count t = 0; t < steps; t++)
        for (count i = 0; i < size; i++) out[i * stride + t] = x[t * d + i];
}

/* out[s - first] = x . column s, for first <= s < last; writes whole vectors. */
static inline void products(const real *restrict x, const real *restrict columns, count stride, count size, count first,
                            count last, real *restrict out)
{
    for (count s = first; s < last; s += LANES) {
        vector sum = {0}, odd = {0}; /* two sums, as each addition waits for the one before */
        count i = 0;
        for (; i + 2 <= size; i += 2) {
            sum += x[i] * load(columns + i * stride + s);
            odd += x[i + 1] * load(columns + (i + 1) * stride + s);
        }
        if (i < size) sum += x[i] * load(columns + i * stride + s);
        store(out + s - first, sum + odd);
    }
}

/* out = sum_s weight[s - first] x_s, for first <= s < last. */
static inline void mix(const real *restrict weight, const real *restrict x, count d, count size, count first, count last,
                       real *restrict out)
{
    count i = 0;
    for (; i + LANES <= size; i += LANES) {
        vector sum = {0}, odd = {0};
        count s = first;
        for (; s + 2 <= last; s += 2) {
            sum += weight[s - first] * load(x + s * d + i);
            odd += weight[s + 1 - first] * load(x + (s + 1) * d + i);
        }
        if (s < last) sum += weight[s - first] * load(x + s * d + i);
        store(out + i, sum + odd);
    }
    for (; i < size; i++) {
        real sum = 0;
        for (count s = first; s < last; s++) sum += weight[s - first] * x[s * d + i];
        out[i] = sum;
    }
}

/* The oldest step that the query of step t sees; window 0: all the past. */
static inline count first_step(count window, count t) { return window && t >= window ? t + 1 - window : 0; }

#endif
