/* Random words from a counter, Threefry 4x32-20 (Salmon et al., 2011), and a normal number from a word. */

#ifndef SMC_TRANSFORMER_THREEFRY_H
#define SMC_TRANSFORMER_THREEFRY_H

#include "common.h"

enum { SIDE_BY_SIDE = VECTOR_BYTES / 4 }; /* counters in a vector */
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));

static inline words rotated(words x, int by) { return x << by | x >> (32 - by); }

/* Twenty rounds on one counter in each lane, in place. */
static inline void threefry(words x[4], const uint32_t key[4])
{
    static const int rotations[8][2] = {{10, 26}, {11, 21}, {13, 27}, {23, 5}, {6, 20}, {17, 11}, {25, 10}, {18, 20}};
    const uint32_t keys[5] = {key[0], key[1], key[2], key[3], 0x1BD11BDAu ^ key[0] ^ key[1] ^ key[2] ^ key[3]};
    for (int i = 0; i < 4; i++) x[i] += keys[i];
#pragma GCC unroll 20
    for (int round = 0; round < 20; round++) {
        int odd = round % 2;
        x[0] += x[odd ? 3 : 1];
        x[odd ? 3 : 1] = rotated(x[odd ? 3 : 1], rotations[round % 8][0]) ^ x[0];
        x[2] += x[odd ? 1 : 3];
        x[odd ? 1 : 3] = rotated(x[odd ? 1 : 3], rotations[round % 8][1]) ^ x[2];
        if (round % 4 == 3) {
            int injection = round / 4 + 1;
            for (int i = 0; i < 4; i++) x[i] += keys[(injection + i) % 5];
            x[3] += (uint32_t)injection;
        }
    }
}

/* log(x) for normal x > 0, by the exponent and a series in (m - 1) / (m + 1). */
static inline float log_positive(float x)
{
    union { float number; int32_t bits; } part = { x };
    int32_t exponent = (part.bits - 0x3f3504f3) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    part.bits -= exponent * (1 << 23); /* not exponent << 23: it may be negative */
    float u = (part.number - 1) / (part.number + 1), s = u * u;
    return exponent * 0.693147181f
         + 2 * u * (1 + s * (0.333333333f + s * (0.2f + s * (0.142857143f + s * 0.111111111f))));
}

/* Inverse of the normal cdf at (bits + 1/2) / 2^32, by Giles's rational-free approximation of erfinv (2012).

   Works with the smaller tail u, so that the tails are as exact as the centre: (1 - x)(1 + x) = 4 u (1 - u). Exact to
   1e-5 for all but some hundred words at either end, beyond 5.3 deviations, and there to 0.003.

   In parts, as who draws many numbers can do without that of the far tails nearly always. */
static inline float smaller_tail(uint32_t bits)
{
    uint32_t small = (int32_t)bits < 0 ? ~bits : bits;
    return ((float)small + 0.5f) * 2.32830644e-10f; /* in (0, 1/2) */
}

static inline float depth(float u) { return -log_positive(4 * u * (1 - u)); }

enum { FAR = 5 }; /* the depth of the tails, 0.3 % of all words */

static inline float with_sign(float u, float quotient, uint32_t bits)
{
    float size = 1.41421356f * (1 - 2 * u) * quotient;
    return (int32_t)bits < 0 ? size : -size;
}

/* Where the depth w is below FAR. */
static inline float centre_quantile(uint32_t bits, float u, float w)
{
    float v = w - 2.5f, centre = 2.81022636e-08f;
    centre = 3.43273939e-07f + centre * v;
    centre = -3.5233877e-06f + centre * v;
    centre = -4.39150654e-06f + centre * v;
    centre = 0.00021858087f + centre * v;
    centre = -0.00125372503f + centre * v;
    centre = -0.00417768164f + centre * v;
    centre = 0.246640727f + centre * v;
    centre = 1.50140941f + centre * v;
    return with_sign(u, centre, bits);
}

/* Elsewhere. */
static inline float far_quantile(uint32_t bits, float u, float w)
{
    float tail = sqrtf(w) - 3, far = -0.000200214257f;
    far = 0.000100950558f + far * tail;
    far = 0.00134934322f + far * tail;
    far = -0.00367342844f + far * tail;
    far = 0.00573950773f + far * tail;
    far = -0.0076224613f + far * tail;
    far = 0.00943887047f + far * tail;
    far = 1.00167406f + far * tail;
    far = 2.83297682f + far * tail;
    return with_sign(u, far, bits);
}

static inline float normal_quantile(uint32_t bits)
{
    float u = smaller_tail(bits), w = depth(u);
    return w < FAR ? centre_quantile(bits, u, w) : far_quantile(bits, u, w);
}

#endif
