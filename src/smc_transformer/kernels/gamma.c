/* Gamma and Poisson numbers, for each row from a stream of its own. */

#include "gamma.h"
#include "pool.h"

typedef struct {
    Pieces rows;
    double *out;
    const double *parameters; /* (rows, n): shapes or rates */
    count n;
    const uint64_t *keys, *steps; /* (rows) */
    uint32_t draw;
    int poisson;
} Drawing;

static int draw_some_rows(void *job)
{
    Drawing *of = job;
    for (count row; (row = take(&of->rows)) >= 0;) {
        Stream stream = stream_of(of->keys[row], of->steps[row], of->draw);
        const double *parameter = of->parameters + row * of->n;
        double *out = of->out + row * of->n;
        for (count first = 0; first < of->n; first += SIDE_BY_SIDE) {
            Attempts words = attempts(&stream, 0, first, 0);
            for (count i = 0; i < SIDE_BY_SIDE && first + i < of->n; i++) {
                const uint32_t word[4] = {words.x[0][i], words.x[1][i], words.x[2][i], words.x[3][i]};
                out[first + i] = draw_one(&stream, first + i, parameter[first + i], of->poisson, word);
            }
        }
    }
    return 0;
}

/* Fill `out` with numbers of the standard Gamma distributions of these shapes. */
void fill_gamma_rows(double *out, count rows, count n, const uint64_t *keys, const uint64_t *steps, uint32_t draw,
                     int n_threads, const double *shapes)
{
    Drawing job = {{0, rows}, out, shapes, n, keys, steps, draw, 0};
    work_together(draw_some_rows, &job, n_threads);
}

/* The same with Poisson numbers of these rates. */
void fill_poisson_rows(double *out, count rows, count n, const uint64_t *keys, const uint64_t *steps, uint32_t draw,
                       int n_threads, const double *rates)
{
    Drawing job = {{0, rows}, out, rates, n, keys, steps, draw, 1};
    work_together(draw_some_rows, &job, n_threads);
}
