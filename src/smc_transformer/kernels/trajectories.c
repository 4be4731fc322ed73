/* Latents along ancestral trajectories, for the replay: out = mean + factor * noise[trajectory], without a copy of the noise.

   out (batch, n_trajectories, steps, d); mean (batch, owners, steps, d) with owners 1 or n_trajectories, or NULL for none;
   noise (batch, particles, steps, d) in any order; trajectories (batch, n_trajectories, steps): whose noise a trajectory has at each step. */

#include "pool.h"

typedef struct {
    Pieces rows;
    const real *mean, *factor, *noise;
    const Strides *strides;
    const count *trajectories;
    real *out;
    count owners, n_trajectories, steps, d;
} Perturbing;

static int perturb_rows(void *job)
{
    Perturbing *p = job;
    count d = p->d;
    for (count row; (row = take(&p->rows)) >= 0;) {
        count sequence = row / p->n_trajectories;
        const real *own_mean = p->mean ? p->mean + (p->owners == 1 ? sequence : row) * p->steps * d : NULL;
        for (count t = 0; t < p->steps; t++) {
            const real *eps = p->noise + place(p->strides, sequence, p->trajectories[row * p->steps + t], t);
            real *target = p->out + (row * p->steps + t) * d;
            if (own_mean) multiply_add(target, p->factor, eps, own_mean + t * d, d);
            else
                for (count i = 0; i < d; i++) target[i] = p->factor[i] * eps[i];
        }
    }
    return 0;
}

void perturb_trajectories(const real *mean, count owners, const real *factor, const real *noise, const Strides *strides,
                          const count *trajectories, real *out, count batch, count n_trajectories, count steps, count d,
                          int n_threads)
{
    Perturbing job = {{0, batch * n_trajectories}, mean, factor, noise, strides, trajectories, out, owners,
                      n_trajectories, steps, d};
    work_together(perturb_rows, &job, n_threads);
}

typedef struct {
    Pieces sequences;
    const real *gradient, *noise;
    const Strides *strides;
    const count *trajectories;
    real *mean_gradient, *factor_gradient;
    count n_trajectories, steps, d;
} PerturbingBack;

static int add_up_sequences(void *job)
{
    PerturbingBack *p = job;
    count d = p->d, steps = p->steps;
    for (count sequence; (sequence = take(&p->sequences)) >= 0;) {
        real *factor_sum = p->factor_gradient + sequence * d;
        real *mean_sum = p->mean_gradient ? p->mean_gradient + sequence * steps * d : NULL;
        memset(factor_sum, 0, d * sizeof(real));
        if (mean_sum) memset(mean_sum, 0, steps * d * sizeof(real));
        for (count trajectory = 0; trajectory < p->n_trajectories; trajectory++)
            for (count t = 0; t < steps; t++) {
                count row = (sequence * p->n_trajectories + trajectory) * steps + t;
                const real *eps = p->noise + place(p->strides, sequence, p->trajectories[row], t);
                const real *g = p->gradient + row * d;
                multiply_add(factor_sum, g, eps, factor_sum, d);
                if (mean_sum) add_scaled(mean_sum + t * d, 1, g, d);
            }
    }
    return 0;
}

/* The gradients of the above: factor_gradient (batch, d), to be summed over the batch, and, where owners share their
   mean, mean_gradient (batch, steps, d); NULL where it is not wanted. */
void perturb_trajectories_backward(const real *gradient, const real *noise, const Strides *strides,
                                   const count *trajectories, real *mean_gradient, real *factor_gradient, count batch,
                                   count n_trajectories, count steps, count d, int n_threads)
{
    PerturbingBack job = {{0, batch}, gradient, noise, strides, trajectories, mean_gradient, factor_gradient,
                          n_trajectories, steps, d};
    work_together(add_up_sequences, &job, n_threads);
}
