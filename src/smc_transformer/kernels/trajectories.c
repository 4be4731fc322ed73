/* Latents along ancestral trajectories, for the replay: out = mean + factor * noise[trajectory], without a copy of the noise.

   out (batch, n_trajectories, steps, d); mean (batch, owners, steps, d) with owners 1 or n_trajectories, or NULL for none;
   noise (batch, particles, steps, d) in any order; trajectories (batch, n_trajectories, steps): whose noise a trajectory has at each step. */

#include "common.h"

void perturb_trajectories(const real *mean, count owners, const real *factor, const real *noise, const Strides *strides,
                   const count *trajectories, real *out, count batch, count n_trajectories, count steps, count d, int n_threads)
{
#pragma omp parallel for num_threads(n_threads)
    for (count row = 0; row < batch * n_trajectories; row++) {
        count sequence = row / n_trajectories;
        const real *own_mean = mean ? mean + (owners == 1 ? sequence : row) * steps * d : NULL;
        for (count t = 0; t < steps; t++) {
            const real *eps = noise + place(strides, sequence, trajectories[row * steps + t], t);
            real *target = out + (row * steps + t) * d;
            if (own_mean)
                for (count i = 0; i < d; i++) target[i] = own_mean[t * d + i] + factor[i] * eps[i];
            else
                for (count i = 0; i < d; i++) target[i] = factor[i] * eps[i];
        }
    }
}

/* The gradients of the above: factor_gradient (batch, d), to be summed over the batch, and, where owners share their
   mean, mean_gradient (batch, steps, d); NULL where it is not wanted. */
void perturb_trajectories_backward(const real *gradient, const real *noise, const Strides *strides, const count *trajectories,
                            real *mean_gradient, real *factor_gradient, count batch, count n_trajectories, count steps,
                            count d, int n_threads)
{
#pragma omp parallel for num_threads(n_threads)
    for (count sequence = 0; sequence < batch; sequence++) {
        real *factor_sum = factor_gradient + sequence * d;
        memset(factor_sum, 0, d * sizeof(real));
        if (mean_gradient) memset(mean_gradient + sequence * steps * d, 0, steps * d * sizeof(real));
        for (count trajectory = 0; trajectory < n_trajectories; trajectory++)
            for (count t = 0; t < steps; t++) {
                count row = (sequence * n_trajectories + trajectory) * steps + t;
                const real *eps = noise + place(strides, sequence, trajectories[row], t);
                const real *g = gradient + row * d;
                for (count i = 0; i < d; i++) factor_sum[i] += g[i] * eps[i];
                if (mean_gradient) add_scaled(mean_gradient + (sequence * steps + t) * d, 1, g, d);
            }
    }
}
