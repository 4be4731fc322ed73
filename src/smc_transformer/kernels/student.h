/* Distribution functions of Student's t and of the normal distribution, in double. */

#ifndef SMC_TRANSFORMER_STUDENT_H
#define SMC_TRANSFORMER_STUDENT_H

#include "common.h"

/* Degrees from which on a t is a normal number but for terms of 1 / degrees^2 (Wallace's transformation). */
#define NEARLY_NORMAL 1e5

SHARED double normal_cdf(double z) { return 0.5 * erfc(-z * 0.70710678118654752440); }

/* log B(degrees / 2, 1 / 2), which all values of one distribution share. */
SHARED double log_beta_of(double degrees)
{
    int sign;
    return lgamma_r(degrees / 2, &sign) + lgamma_r(0.5, &sign) - lgamma_r((degrees + 1) / 2, &sign);
}

/* The continued fraction of the incomplete beta function I_x(a, b) (DLMF 8.17.22), by Lentz's method: converges quickly
   for x < (a + 1) / (a + b + 2). */
SHARED double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 2000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return h;
}

/* P(T <= t): with x = degrees / (degrees + t^2), half of I_x(degrees / 2, 1 / 2) lies beyond |t|. */
SHARED double student_cdf(double t, double degrees, double log_beta)
{
    if (t != t || degrees != degrees) return NAN;
    if (isinf(t)) return t > 0 ? 1 : 0;
    if (degrees > NEARLY_NORMAL) return normal_cdf(t * (1 - 1 / (4 * degrees)) / sqrt(1 + t * t / (2 * degrees)));
    double a = degrees / 2, square = t * t, tail;
    if (isinf(square)) return t > 0 ? 1 : 0;
    double x = degrees / (degrees + square), rest = square / (degrees + square);
    if (square == 0) return 0.5;
    /* x^a (1 - x)^(1/2) / B(a, 1/2) */
    double front = exp(-a * log1p(square / degrees) + 0.5 * log(rest) - log_beta);
    if (x < (a + 1) / (a + 2.5)) tail = 0.5 * front * beta_fraction(a, 0.5, x) / a;
    else tail = 0.5 * (1 - front * beta_fraction(0.5, a, rest) / 0.5);
    return t > 0 ? 1 - tail : tail;
}

#endif
