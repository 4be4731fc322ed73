/* Selecting particles by their weights, and weighing them by what is observed. */

#ifndef SMC_TRANSFORMER_WEIGHTS_H
#define SMC_TRANSFORMER_WEIGHTS_H

#include "common.h"

enum { MULTINOMIAL, RESIDUAL, STRATIFIED, SYSTEMATIC }; /* as SCHEMES in filter.py */

/* The first particle whose cumulative mass exceeds the level. */
SHARED count invert(const double *cumulative, count n, double level)
{
    count low = 0, high = n;
    while (low < high) {
        count middle = (low + high) / 2;
        if (cumulative[middle] > level) high = middle;
        else low = middle + 1;
    }
    return low < n ? low : n - 1;
}

/* Draw M parents in proportion to normalised log-weights (smc/resampling/base.py has the schemes in words). */
SHARED void resample(const real *log_weights, count n, const double *uniforms, count scheme, double *mass,
                     double *cumulative, count *parents)
{
    double top = -INFINITY, total = 0;
    for (count m = 0; m < n; m++) top = log_weights[m] > top ? log_weights[m] : top;
    for (count m = 0; m < n; m++) total += mass[m] = exp(log_weights[m] - top);
    for (count m = 0; m < n; m++) mass[m] /= total;
    count certain = 0;
    if (scheme == RESIDUAL) /* floor(n W) copies for certain; what is left of the mass is drawn from below */
        for (count m = 0; m < n; m++) {
            double copies = floor(n * mass[m]);
            mass[m] = n * mass[m] - copies;
            certain += (count)copies;
            parents[m] = (count)copies; /* for now: how many copies */
        }
    double sum = 0;
    for (count m = 0; m < n; m++) cumulative[m] = sum += mass[m];
    double below = nextafter(sum, 0);
    if (scheme == RESIDUAL) {
        for (count i = 0; i < n - certain; i++) {
            double level = uniforms[i] * sum;
            parents[invert(cumulative, n, level < below ? level : below)]++;
        }
        for (count m = 0; m < n; m++) mass[m] = (double)parents[m];
        for (count m = 0, i = 0; m < n; m++)
            for (count copy = 0; copy < (count)mass[m]; copy++) parents[i++] = m;
        return;
    }
    for (count i = 0; i < n; i++) {
        double uniform = scheme == MULTINOMIAL ? uniforms[i] : (i + uniforms[scheme == SYSTEMATIC ? 0 : i]) / n;
        double level = uniform * sum;
        parents[i] = invert(cumulative, n, level < below ? level : below);
    }
}

/* Whether particles are due to be resampled: too unequal, or always. */
SHARED int are_unequal(const real *log_weights, count n, double ess_threshold)
{
    real squares = 0;
    for (count m = 0; m < n; m++) squares += (real)exp(2 * (double)log_weights[m]);
    return ess_threshold >= 1 || 1 / squares < (real)ess_threshold * n;
}

/* Distributions with elliptical contours: log p(x) = constant - log-scales + f(|root^-1 ((x - location) / scale)|^2), with
   f(s) = -s / 2, or -(degrees + n) / 2 log(1 + s / degrees) for a Student-t. Parameters: locations, then log-scales. */
typedef struct {
    count n;
    const real *root;             /* (n, n), lower triangular */
    const real *lowest, *highest; /* (n): bounds of the log-scales, or NULL: no scales among the parameters */
    double constant, degrees;     /* degrees 0: a Gaussian */
} Contours;

/* Log p(x) of one particle; `white` is scratch. */
SHARED real elliptical_log_density(const Contours *of, const real *restrict x, const real *restrict parameters,
                                   real *restrict white)
{
    count n = of->n;
    real squares = 0, log_scales = 0;
    for (count i = 0; i < n; i++) {
        real rest = x[i] - parameters[i];
        if (of->lowest) {
            real log_scale = parameters[n + i];
            log_scale = log_scale < of->lowest[i] ? of->lowest[i] : log_scale;
            log_scale = log_scale > of->highest[i] ? of->highest[i] : log_scale;
            real scale = (real)exp((double)log_scale);
            if (!(scale > 0) || isinf(scale)) return -INFINITY; /* as it rounds in the distribution itself */
            log_scales += log_scale;
            rest /= scale;
        }
        for (count j = 0; j < i; j++) rest -= of->root[i * n + j] * white[j];
        white[i] = rest / of->root[i * n + i];
        squares += white[i] * white[i];
    }
    double degrees = of->degrees;
    real shape = degrees > 0 ? (real)(-(degrees + n) / 2 * log1p(squares / degrees)) : -squares / 2;
    return (real)of->constant - log_scales + shape;
}

/* Normalise log-weights, in place; returns the logarithm of their total. Without any weight left they become equal, and
   it is -INFINITY. */
SHARED real normalise(real *log_weights, count n)
{
    real top = -INFINITY;
    for (count m = 0; m < n; m++) top = log_weights[m] > top ? log_weights[m] : top;
    double total = 0;
    for (count m = 0; m < n; m++) total += exp((double)(log_weights[m] - top));
    real log_total = (real)log(total);
    int alive = isfinite(top) && isfinite(log_total);
    for (count m = 0; m < n; m++) log_weights[m] = alive ? log_weights[m] - top - log_total : -(real)log((double)n);
    return alive ? top + log_total : -INFINITY;
}

#endif
