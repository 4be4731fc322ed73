/* Causal self-attention of whole trajectories, and its gradient, for the replay.

   queries, keys, values and their results are (rows, steps, d); a head is a slice of d. The query of step t sees the
   steps t - window + 1, ..., t. The work of a trajectory grows with steps x window, and its numbers stay in cache. */

#include "band.h"
#include "pool.h"

typedef struct {
    count rows, steps, d, heads, window; /* window 0: all the past */
    const real *query, *key, *value;
    real *context;
    real *log_total; /* (rows, heads, steps): log sum_s exp(score), from which the backward pass has its shares */
    const real *context_gradient;
    real *query_gradient, *key_gradient, *value_gradient;
} Attention;

SIZE_OF(Attention, attention)

typedef struct {
    Pieces rows;
    const Attention *attention;
} Attending;

static int attend_rows(void *job)
{
    Pieces *rows = &((Attending *)job)->rows;
    const Attention *a = ((Attending *)job)->attention;
    count d = a->d, size = d / a->heads, T = a->steps, stride = padded(T) + LANES;
    real root = 1 / square_root(size);
    real *keys = scratch(size * stride), *shares = scratch(stride);
    int ready = keys && shares;
    for (count row; ready && (row = take(rows)) >= 0;) {
        for (count head = 0; head < a->heads; head++) {
            count base = row * T * d + head * size;
            transpose_head(a->key + base, T, d, size, stride, keys);
            for (count t = 0; t < T; t++) {
                count first = first_step(a->window, t), n = t + 1 - first;
                products(a->query + base + t * d, keys, stride, size, first, t + 1, shares);
                real top = -INFINITY, total = 0;
                for (count s = 0; s < n; s++) shares[s] *= root;
                for (count s = 0; s < n; s++) top = shares[s] > top ? shares[s] : top;
                for (count s = 0; s < n; s++) shares[s] = exp_negative(shares[s] - top);
                for (count s = 0; s < n; s++) total += shares[s];
                for (count s = 0; s < n; s++) shares[s] /= total;
                mix(shares, a->value + base, d, size, first, t + 1, a->context + base + t * d);
                a->log_total[(row * a->heads + head) * T + t] = top + (real)log((double)total);
            }
        }
    }
    free(keys); free(shares);
    return !ready;
}

/* Returns 0, or 1 when there was not enough memory. */
int attend_trajectories(const Attention *a, int n_threads)
{
    Attending job = {{0, a->rows}, a};
    return work_together(attend_rows, &job, n_threads);
}

/* With shares p and scores q . k / sqrt(r): dv_s += p_s dc, dscore_s = p_s (dc . v_s - dc . c), and from there dq, dk. */
static int attend_rows_backward(void *job)
{
    Pieces *rows = &((Attending *)job)->rows;
    const Attention *a = ((Attending *)job)->attention;
    count d = a->d, size = d / a->heads, T = a->steps, stride = padded(T) + LANES;
    real root = 1 / square_root(size);
    real *keys = scratch(size * stride), *values = scratch(size * stride);
    real *shares = scratch(stride), *changes = scratch(stride);
    int ready = keys && values && shares && changes;
    for (count row; ready && (row = take(rows)) >= 0;) {
        memset(a->key_gradient + row * T * d, 0, T * d * sizeof(real));
        memset(a->value_gradient + row * T * d, 0, T * d * sizeof(real));
        for (count head = 0; head < a->heads; head++) {
            count base = row * T * d + head * size;
            transpose_head(a->key + base, T, d, size, stride, keys);
            transpose_head(a->value + base, T, d, size, stride, values);
            for (count t = 0; t < T; t++) {
                count first = first_step(a->window, t), n = t + 1 - first;
                const real *query = a->query + base + t * d, *gradient = a->context_gradient + base + t * d;
                real log_total = a->log_total[(row * a->heads + head) * T + t];
                real along = dot(gradient, a->context + base + t * d, size);
                products(query, keys, stride, size, first, t + 1, shares);
                products(gradient, values, stride, size, first, t + 1, changes);
                for (count s = 0; s < n; s++) shares[s] = exp_negative(root * shares[s] - log_total);
                for (count s = 0; s < n; s++) changes[s] = root * shares[s] * (changes[s] - along);
                mix(changes, a->key + base, d, size, first, t + 1, a->query_gradient + base + t * d);
                for (count s = first; s <= t; s++) {
                    add_scaled(a->key_gradient + base + s * d, changes[s - first], query, size);
                    add_scaled(a->value_gradient + base + s * d, shares[s - first], gradient, size);
                }
            }
        }
    }
    free(keys); free(values); free(shares); free(changes);
    return !ready;
}

int attend_trajectories_backward(const Attention *a, int n_threads)
{
    Attending job = {{0, a->rows}, a};
    return work_together(attend_rows_backward, &job, n_threads);
}
