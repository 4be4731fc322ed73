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

/* c[0] + c[1] x + ... + c[7] x^7 in pairs: fewer steps that wait for the one before than one power after the other. */
static inline float eight_terms(const float c[8], float x)
{
    float square = x * x, fourth = square * square;
    float low = (c[0] + c[1] * x) + (c[2] + c[3] * x) * square;
    return low + ((c[4] + c[5] * x) + (c[6] + c[7] * x) * square) * fourth;
}

/* log(x) for normal x > 0, exact to 3e-7: by the exponent, and a polynomial in m - 1 with the least largest error. */
static inline float log_positive(float x)
{
    static const float c[8] = {6.4321015e-08f, 1.00000409f, -0.50001993f, 0.332995979f, -0.248863783f, 0.206553346f,
                               -0.188524388f, 0.115895691f};
    union { float number; int32_t bits; } part = { x };
    int32_t exponent = (part.bits - 0x3f3504f3) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    part.bits -= exponent * (1 << 23); /* not exponent << 23: it may be negative */
    return exponent * 0.693147181f + eight_terms(c, part.number - 1);
}

/* The inverse of the normal cdf at (bits + 1/2) / 2^32, which is sqrt(2) erfinv(x), x = 2 (bits + 1/2) / 2^32 - 1.

   By functions of w = -log(1 - x^2), as Giles (2012) approximates erfinv: sqrt(2) erfinv(x) / x is a polynomial in w up
   to 9, where all but one number of 16,000 are, and one in sqrt(w) beyond. Works with the smaller tail u, so that the
   tails are as exact as the centre: (1 - x)(1 + x) = 4 u (1 - u). Exact to 1e-5 for all but some hundred words at either
   end, beyond 5.3 deviations, and there to 0.003. */
static inline uint32_t smaller_tail(uint32_t bits) { return (int32_t)bits < 0 ? ~bits : bits; }

enum { FAR = 132510 }; /* words of the smaller tail below which w is above 9 */

/* The size of x; w by the way. */
static inline float distance_of(uint32_t bits, float *w)
{
    float u = ((float)(int32_t)smaller_tail(bits) + 0.5f) * 2.32830644e-10f; /* in (0, 1/2); signed: quick to convert */
    *w = -log_positive(4 * u * (1 - u));
    return 1 - 2 * u;
}

static inline float with_sign_of(uint32_t bits, float size) { return (int32_t)bits < 0 ? size : -size; }

static inline float centre_quantile(uint32_t bits)
{
    static const float c[12] = {2.78760245f, 1.40665995f, -0.210984759f, -0.000435184028f, 0.0478031201f, -0.0348972063f,
        0.0108500407f, 0.00358411474f, -0.00628689438f, 0.00230639304f, 0.000890169237f, -0.000658062163f};
    float w, x = distance_of(bits, &w), t = w * 0.222222222f - 1, fourth = t * t * t * t;
    float last = (c[8] + c[9] * t) + (c[10] + c[11] * t) * (t * t);
    return with_sign_of(bits, x * (eight_terms(c, t) + last * (fourth * fourth)));
}

static inline float far_quantile(uint32_t bits)
{
    static const float c[8] = {2.83297682f, 1.00167406f, 0.00943887047f, -0.0076224613f, 0.00573950773f,
                               -0.00367342844f, 0.00134934322f, 0.000100950558f};
    float w, x = distance_of(bits, &w), t = sqrtf(w) - 3, fourth = t * t * t * t;
    return with_sign_of(bits, 1.41421356f * x * (eight_terms(c, t) - 0.000200214257f * (fourth * fourth)));
}

static inline float normal_quantile(uint32_t bits)
{
    return smaller_tail(bits) < FAR ? far_quantile(bits) : centre_quantile(bits);
}

/* The same of n words side by side: the few in the tails are seen to afterwards, one by one. */
static inline void normal_quantiles(const uint32_t *restrict bits, float *restrict out, int n)
{
    uint32_t smallest = FAR;
    for (int i = 0; i < n; i++) {
        uint32_t tail = smaller_tail(bits[i]);
        smallest = tail < smallest ? tail : smallest;
        out[i] = centre_quantile(bits[i]);
    }
    for (int i = 0; smallest < FAR && i < n; i++)
        if (smaller_tail(bits[i]) < FAR) out[i] = far_quantile(bits[i]);
}

#endif
