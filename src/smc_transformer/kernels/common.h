/* What all kernels share: the number type, vectors of numbers, and small loops over them.

   Every source is compiled once for float and once for double (-DREAL=...). Rows of scratch matrices are padded to 64
   bytes, so that inner loops have no remainder; the padding holds numbers that nobody reads. */

#ifndef SMC_TRANSFORMER_COMMON_H
#define SMC_TRANSFORMER_COMMON_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef REAL
#define REAL float
#endif

typedef REAL real;
typedef int64_t count; /* sizes and indices, as torch counts */

/* As wide as the processor's registers: the compiler takes wider vectors apart in memory, at several times the cost. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

enum { LANES = VECTOR_BYTES / sizeof(real), PADDING = 64 / sizeof(real), BLOCK = 8 }; /* BLOCK: rows in a block */
typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

#define SHARED static __attribute__((unused)) /* a function of a header, of which each source takes what it needs */

static inline vector load(const real *x) { return *(const vector *)x; }
static inline void store(real *x, vector v) { *(vector *)x = v; }

/* The size of a structure, which is compared with its mirror in structures.py when the kernels are loaded. */
#define SIZE_OF(type, name) int size_of_##name(void) { return (int)sizeof(type); }

/* Where the noise of a particle at a step is: tensors (batch, particles, steps, d) may lie in memory in any order. */
typedef struct {
    count sequence, particle, step;
} Strides;

static inline count place(const Strides *strides, count sequence, count particle, count step)
{
    return sequence * strides->sequence + particle * strides->particle + step * strides->step;
}

static inline count padded(count n) { return (n + PADDING - 1) / PADDING * PADDING; }

/* Zeroed memory for n numbers, aligned and padded to whole vectors; NULL when there is none. */
static inline real *scratch(count n)
{
    size_t bytes = (size_t)padded(n > 0 ? n : 1) * sizeof(real);
    real *memory = aligned_alloc(64, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static inline void prefetch(const real *x, count n)
{
    for (count i = 0; i < n; i += PADDING) __builtin_prefetch(x + i);
}

static inline real square_root(real x) { return sizeof(real) == 4 ? (real)sqrtf((float)x) : (real)sqrt(x); }

static inline real total(const real *restrict x, count n)
{
    vector sums = {0};
    count i = 0;
    for (; i + LANES <= n; i += LANES) sums += load(x + i);
    real sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    for (; i < n; i++) sum += x[i];
    return sum;
}

static inline real dot(const real *restrict x, const real *restrict y, count n)
{
    vector sums = {0}, odd = {0}; /* two sums, as each addition waits for the one before */
    count i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        sums += load(x + i) * load(y + i);
        odd += load(x + i + LANES) * load(y + i + LANES);
    }
    for (; i + LANES <= n; i += LANES) sums += load(x + i) * load(y + i);
    sums += odd;
    real sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    for (; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* out += a x */
static inline void add_scaled(real *restrict out, real a, const real *restrict x, count n)
{
    count i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, load(out + i) + a * load(x + i));
    for (; i < n; i++) out[i] += a * x[i];
}

/* out = a x + b, number by number; out may be x */
static inline void multiply_add(real *out, const real *a, const real *x, const real *b, count n)
{
    count i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, load(a + i) * load(x + i) + load(b + i));
    for (; i < n; i++) out[i] = a[i] * x[i] + b[i];
}

/* out = x - mean, scaled to unit variance; returns one over the deviation. out may be x. */
static inline real standardise(const real *x, real *out, count n, real epsilon)
{
    real mean = total(x, n) / n;
    count i = 0;
    for (; i + LANES <= n; i += LANES) store(out + i, load(x + i) - mean);
    for (; i < n; i++) out[i] = x[i] - mean;
    real scale = 1 / square_root(dot(out, out, n) / n + epsilon);
    for (i = 0; i + LANES <= n; i += LANES) store(out + i, load(out + i) * scale);
    for (; i < n; i++) out[i] *= scale;
    return scale;
}

/* exp(x) for x <= 0 without branches, so that loops over it become vector code: 2^k e^r, |r| <= log(2) / 2. */
static inline real exp_negative(real x)
{
    if (sizeof(real) == 8) return (real)exp(x);
    float clipped = x < -87 ? -87.0f : (float)x;
    float k = rintf(clipped * 1.44269504f);
    k = k > -126 ? k : -126; /* NaN is no whole number: it comes by way of r */
    float r = clipped - k * 0.693359375f + k * 2.12194440e-4f;
    float series = 1 + r * (1 + r * (0.5f + r * (1.66666667e-1f + r * (4.16666667e-2f + r * (8.3333333e-3f
                 + r * 1.3888889e-3f)))));
    union { int32_t bits; float number; } power = { ((int32_t)k + 127) << 23 };
    return (real)(series * power.number);
}

#endif
