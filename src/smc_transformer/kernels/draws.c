/* Draws in proportion to masses, by inverting their cumulative sums. */

#include "pool.h"

typedef struct {
    Pieces rows;
    const double *masses, *uniforms;
    count *indices;
    count particles, samples;
} Inverting;

/* The first particle whose cumulative mass exceeds the level, searched from a guess. */
static count search_from(const double *cumulative, count n, double level, count m)
{
    while (m > 0 && cumulative[m - 1] > level) m--;
    while (m < n - 1 && cumulative[m] <= level) m++;
    return m;
}

static int invert_rows(void *job)
{
    Inverting *of = job;
    count n = of->particles;
    double *cumulative = malloc((size_t)n * sizeof(double));
    count *guesses = malloc((size_t)(n + 1) * sizeof(count)); /* of the particle at each n-th part of the mass */
    int ready = cumulative && guesses;
    for (count row; ready && (row = take(&of->rows)) >= 0;) {
        const double *uniforms = of->uniforms + row * of->samples;
        double sum = 0;
        for (count m = 0; m < n; m++) cumulative[m] = sum += of->masses[row * n + m];
        double below = nextafter(sum, 0); /* a uniform that rounds up to the total must not run past the end */
        for (count part = 0, m = 0; part <= n; part++) guesses[part] = m = search_from(cumulative, n, sum * part / n, m);
        for (count i = 0; i < of->samples; i++) {
            double level = uniforms[i] * sum;
            count part = (count)(uniforms[i] * n);
            of->indices[row * of->samples + i] =
                search_from(cumulative, n, level < below ? level : below, guesses[part < n ? part : n]);
        }
    }
    free(cumulative); free(guesses);
    return !ready;
}

/* For each uniform, the first particle whose cumulative share of the mass exceeds it: never one of mass zero.

   masses (rows, particles), uniforms (rows, samples) in [0, 1), indices (rows, samples). Returns 0, or 1 when there was
   not enough memory. */
int invert_masses(const double *masses, const double *uniforms, count *indices, count rows, count particles,
                  count samples, int n_threads)
{
    Inverting job = {{0, rows}, masses, uniforms, indices, particles, samples};
    return work_together(invert_rows, &job, n_threads);
}
