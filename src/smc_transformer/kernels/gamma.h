/* Gamma and Poisson numbers of a stream.

   Number i tries counters (attempt, i, draw) one after the other until one is accepted: what it comes to depends on its
   place and on its own shape or rate alone. All in double, whatever the kernels' number type. */

#ifndef SMC_TRANSFORMER_GAMMA_H
#define SMC_TRANSFORMER_GAMMA_H

#include "noise.h"
#include "threefry.h"

typedef struct {
    words x[4];
} Attempts;

/* The words of the first attempts of numbers first, first + 1, ...; or of attempts first, ... of one number. */
static inline Attempts attempts(const Stream *stream, uint32_t first, count number, int of_one)
{
    uint32_t counters[4][SIDE_BY_SIDE];
    for (int i = 0; i < SIDE_BY_SIDE; i++) {
        count at = of_one ? number : number + i;
        counters[0][i] = of_one ? first + (uint32_t)i : 0;
        counters[1][i] = (uint32_t)at;
        counters[2][i] = (uint32_t)(at >> 32);
        counters[3][i] = stream->draw;
    }
    Attempts found;
    memcpy(found.x, counters, sizeof found.x);
    threefry(found.x, stream->key);
    return found;
}

/* In (0, 1), from 32 and from 53 bits. */
static inline double open_unit(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }
static inline double fine_unit(uint32_t high, uint32_t low)
{
    return ((double)(((uint64_t)high << 32 | low) >> 11) + 0.5) * 0x1p-53;
}

/* Marsaglia and Tsang (2000): a transformed normal number, or -1 if it is rejected. Below a shape of 1 the number of
   shape + 1 is multiplied by u^(1 / shape). */
static inline double try_gamma(double shape, const uint32_t word[4])
{
    double a = shape < 1 ? shape + 1 : shape, d = a - 1.0 / 3, x = normal_quantile(word[0]);
    double root = 1 + x / sqrt(9 * d), v = root * root * root;
    if (root <= 0 || log(fine_unit(word[2], word[3])) >= 0.5 * x * x + d * (1 - v + log(v))) return -1;
    return d * v * (shape < 1 ? pow(open_unit(word[1]), 1 / shape) : 1);
}

/* log(k!), by Stirling's series from 10 on: exact to 1e-10. */
static inline double log_factorial(double k)
{
    static const double first[10] = {0, 0, 0.69314718055994531, 1.7917594692280550, 3.1780538303479458,
        4.7874917427820460, 6.5792512120101010, 8.5251613610654143, 10.604602902745251, 12.801827480081469};
    if (k < 10) return first[(int)k];
    double inverse = 1 / (k + 1), square = inverse * inverse;
    return (k + 0.5) * log(k + 1) - (k + 1) + 0.91893853320467274
         + inverse * (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680)));
}

/* Small rates by inversion, larger ones by Hoermann's transformed rejection (PTRS, 1993); -1 if rejected. */
static inline double try_poisson(double rate, const uint32_t word[4])
{
    double v = fine_unit(word[2], word[3]);
    if (rate < 10) {
        double p = exp(-rate), k = 0;
        while (v > p && k < 200) {
            v -= p;
            k += 1;
            p *= rate / k;
        }
        return k;
    }
    double u = fine_unit(word[0], word[1]) - 0.5, us = 0.5 - fabs(u);
    double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b;
    double k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (us < 0.013 && v > us)) return -1;
    double bound = log(v) + log(1.1239 + 1.1328 / (b - 3.4)) - log(a / (us * us) + b);
    return bound <= k * log(rate) - rate - log_factorial(k) ? k : -1;
}

enum { MOST_VECTORS = 64 }; /* of attempts: for a sensible parameter the chance of needing them all is below 1e-100 */

/* Number `number` of a stream, from its shape or rate, and from the words of its first attempt. */
SHARED double draw_one(const Stream *stream, count number, double parameter, int poisson, const uint32_t first[4])
{
    /* 0 is the limit for both; what is not a number, or endless, has no draw. */
    if (!(parameter >= 0) || parameter > 1e300) return NAN;
    if (parameter == 0) return 0;
    double found = poisson ? try_poisson(parameter, first) : try_gamma(parameter, first);
    for (int tried = 0; found < 0 && tried < MOST_VECTORS; tried++) {
        Attempts more = attempts(stream, 1 + (uint32_t)(tried * SIDE_BY_SIDE), number, 1);
        for (int i = 0; i < SIDE_BY_SIDE && found < 0; i++) {
            const uint32_t word[4] = {more.x[0][i], more.x[1][i], more.x[2][i], more.x[3][i]};
            found = poisson ? try_poisson(parameter, word) : try_gamma(parameter, word);
        }
    }
    return found < 0 ? NAN : found;
}

/* The same where the first attempt has not been made yet: for numbers that are wanted one by one. */
SHARED double draw_alone(const Stream *stream, count number, double parameter, int poisson)
{
    Attempts made = attempts(stream, 0, number, 1);
    const uint32_t word[4] = {made.x[0][0], made.x[1][0], made.x[2][0], made.x[3][0]};
    return draw_one(stream, number, parameter, poisson, word);
}

#endif
