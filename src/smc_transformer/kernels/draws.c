/* Draws in proportion to masses, by inverting their cumulative sums. */

#include "common.h"

/* For each uniform, the first particle whose cumulative share of the mass exceeds it: never one of mass zero.

   masses (rows, n), uniforms (rows, n_samples), indices (rows, n_samples). A table says where to begin for each n-th part
   of the mass, so that a search takes one or two comparisons, whatever n. Returns 0, or 1 without enough memory. */
int invert_cumulative(const double *masses, const double *uniforms, count *indices, count rows, count n,
                      count n_samples, int n_threads)
{
    int failed = 0;
#pragma omp parallel num_threads(n_threads)
    {
        double *cumulative = malloc((size_t)n * sizeof(double));
        count *begin = malloc((size_t)(n + 1) * sizeof(count));
        int ready = cumulative && begin;
#pragma omp for
        for (count row = 0; row < rows; row++) {
            if (!ready) continue;
            double sum = 0;
            for (count m = 0; m < n; m++) cumulative[m] = sum += masses[row * n + m];
            double below = nextafter(sum, 0); /* a uniform that rounds up to the total must not run past the end */
            for (count part = 0, m = 0; part <= n; part++) {
                while (m < n - 1 && cumulative[m] <= sum * part / n) m++;
                begin[part] = m;
            }
            for (count i = 0; i < n_samples; i++) {
                double uniform = uniforms[row * n_samples + i], level = uniform * sum;
                level = level < below ? level : below;
                count part = (count)(uniform * n), m = begin[part < n ? part : n];
                while (m > 0 && cumulative[m - 1] > level) m--; /* where rounding has put the beginning too far */
                while (m < n - 1 && cumulative[m] <= level) m++;
                indices[row * n_samples + i] = m;
            }
        }
        if (!ready) {
#pragma omp atomic write
            failed = 1;
        }
        free(cumulative); free(begin);
    }
    return failed;
}
