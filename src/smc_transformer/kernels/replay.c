/* The gradient of the replay: from the gradient of the read-out along trajectories to those of all parameters.

   The filter has the read-outs of all lines already, so there is no forward pass to record. One thread takes one line,
   makes its latents and activations again, and goes back through them; all of it stays in cache. Sums over trajectories are
   kept by group of sequences and added up in order, so that they do not depend on the number of threads. */

#include "band.h"
#include "layer.h"

typedef struct {
    count batch, n_trajectories, particles, steps, window, owners, groups; /* owners of means and embedding: 1 or n_trajectories */
    const real *query_mean, *key_mean, *value_mean, *embedding;          /* (batch, owners, steps, d) */
    const real *query_noise, *key_noise, *value_noise, *attention_noise; /* (batch, particles, steps, d) */
    Strides noise_strides;
    const count *trajectories;                                                  /* (batch, n_trajectories, steps) */
    const real *gradient;                                                /* (batch, n_trajectories, steps, n_out) */
    real *query_mean_gradient, *key_mean_gradient, *value_mean_gradient, *embedding_gradient; /* zeroed */
    real *sums; /* (groups, n_sums), zeroed: gradients of the layer's parameters in the order of `Sums` */
    count n_sums;
} Replay;

SIZE_OF(Replay, replay)

/* Gradients of a layer's parameters, one after the other in memory, weights with padded rows. */
typedef struct {
    real *query_factor, *key_factor, *value_factor, *attention_factor;       /* padded(d) each */
    real *output;                                                            /* padded(d) x padded(d) */
    real *gain_1, *bias_1, *inner, *inner_bias, *outer, *outer_bias, *gain_2, *bias_2;
    real *projection, *projection_bias;
} Sums;

static count place_sums(Sums *sums, const Layer *layer, real *memory)
{
    count d = padded(layer->d), wide = padded(layer->d_ff), out = padded(layer->n_out), used = 0;
    count net = layer->inner != NULL;
    struct { real **part; count size; } parts[] = {
        {&sums->query_factor, d}, {&sums->key_factor, d}, {&sums->value_factor, d}, {&sums->attention_factor, d},
        {&sums->output, d * d},
        {&sums->gain_1, net * d}, {&sums->bias_1, net * d}, {&sums->inner, net * wide * d},
        {&sums->inner_bias, net * wide}, {&sums->outer, net * d * wide}, {&sums->outer_bias, net * d},
        {&sums->gain_2, net * d}, {&sums->bias_2, net * d},
        {&sums->projection, out * d}, {&sums->projection_bias, out},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].part = memory ? memory + used : NULL;
        used += parts[i].size;
    }
    return used;
}

count count_sums(const Layer *layer)
{
    Sums sums;
    return place_sums(&sums, layer, NULL);
}

/* Weights (n_out, n_in) as they are, with padded rows: for products with gradients. */
static real *with_padding(const real *weight, count n_out, count n_in)
{
    real *result = scratch(padded(n_out) * padded(n_in));
    if (result)
        for (count o = 0; o < n_out; o++) memcpy(result + o * padded(n_in), weight + o * n_in, n_in * sizeof(real));
    return result;
}

/* sums += gradient^T x over the steps of a trajectory: the gradient of a weight (n_out, n_in). */
static void add_outer(const real *restrict gradient, count n_out, const real *restrict x, count n_in, count steps,
                      real *restrict sums)
{
    count g_stride = padded(n_out), x_stride = padded(n_in);
    for (count o = 0; o < n_out; o += 4)
        for (count first = 0; first < x_stride; first += LANES) {
            real *target = sums + o * x_stride + first;
            vector sum_0 = load(target), sum_1 = load(target + x_stride);
            vector sum_2 = load(target + 2 * x_stride), sum_3 = load(target + 3 * x_stride);
            for (count t = 0; t < steps; t++) {
                vector part = load(x + t * x_stride + first);
                const real *g = gradient + t * g_stride + o;
                sum_0 += g[0] * part;
                sum_1 += g[1] * part;
                sum_2 += g[2] * part;
                sum_3 += g[3] * part;
            }
            store(target, sum_0);
            store(target + x_stride, sum_1);
            store(target + 2 * x_stride, sum_2);
            store(target + 3 * x_stride, sum_3);
        }
}

/* out += x weight for all steps of a trajectory. */
static void multiply_steps(const real *x, count n_in, const real *weight, real *out, count n_out, count steps)
{
    for (count t = 0; t < steps; t += BLOCK) multiply(x + t * padded(n_in), n_in, weight, out + t * padded(n_out), n_out);
}

/* From the gradient of gain * standard + bias to that of x, in place; adds up those of gain and bias. */
static inline void standardise_backward(real *restrict gradient, const real *restrict standard, real scale,
                                        const real *restrict gain, count n, real *restrict gain_sum,
                                        real *restrict bias_sum)
{
    count i = 0;
    for (; i + LANES <= n; i += LANES) {
        vector g = load(gradient + i);
        store(gain_sum + i, load(gain_sum + i) + g * load(standard + i));
        store(bias_sum + i, load(bias_sum + i) + g);
        store(gradient + i, g * load(gain + i));
    }
    for (; i < n; i++) {
        gain_sum[i] += gradient[i] * standard[i];
        bias_sum[i] += gradient[i];
        gradient[i] *= gain[i];
    }
    real mean = total(gradient, n) / n, along = dot(gradient, standard, n) / n;
    for (i = 0; i + LANES <= n; i += LANES)
        store(gradient + i, scale * (load(gradient + i) - mean - load(standard + i) * along));
    for (; i < n; i++) gradient[i] = scale * (gradient[i] - mean - standard[i] * along);
}

/* What one thread needs. Matrices have a row for each step, padded to whole vectors and whole blocks of steps. */
typedef struct {
    real *output, *inner, *outer;                         /* transposed weights, for going forward */
    real *output_as_is, *inner_as_is, *outer_as_is, *projection_as_is; /* for going back */
    real *query, *key, *value, *context, *hidden, *middle, *standard_1, *standard_2, *scale_1, *scale_2, *last;
    real *out_gradient, *gradient, *middle_gradient, *context_gradient, *query_gradient, *key_gradient, *value_gradient;
    real *columns, *shares, *changes; /* shares (heads, steps, share_stride): the attention weights */
} LineWorkspace;

/* Room for the attention weights of one step, in whole vectors. */
static inline count share_stride(const Replay *r)
{
    return padded(r->window && r->window < r->steps ? r->window : r->steps);
}

enum { N_PARTS = sizeof(LineWorkspace) / sizeof(real *) };

static int prepare_line(LineWorkspace *work, const Replay *r, const Layer *layer)
{
    count d = layer->d, d_ff = layer->inner ? layer->d_ff : 1, steps = (r->steps + BLOCK - 1) / BLOCK * BLOCK;
    count matrix = steps * padded(d), band = padded(r->steps) + LANES, size = d / layer->heads;
    work->output = transposed(layer->output, d, d);
    work->output_as_is = with_padding(layer->output, d, d);
    work->inner = layer->inner ? transposed(layer->inner, d_ff, d) : scratch(1);
    work->outer = layer->inner ? transposed(layer->outer, d, d_ff) : scratch(1);
    work->inner_as_is = layer->inner ? with_padding(layer->inner, d_ff, d) : scratch(1);
    work->outer_as_is = layer->inner ? with_padding(layer->outer, d, d_ff) : scratch(1);
    work->projection_as_is = with_padding(layer->projection, layer->n_out, d);
    real **matrices[] = {&work->query, &work->key, &work->value, &work->context, &work->hidden, &work->standard_1,
                         &work->standard_2, &work->last, &work->gradient, &work->context_gradient,
                         &work->query_gradient, &work->key_gradient, &work->value_gradient};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) *matrices[i] = scratch(matrix);
    work->middle = scratch(steps * padded(d_ff));
    work->middle_gradient = scratch(steps * padded(d_ff));
    work->out_gradient = scratch(steps * padded(layer->n_out));
    work->scale_1 = scratch(steps);
    work->scale_2 = scratch(steps);
    work->columns = scratch(size * band);
    work->shares = scratch(layer->heads * r->steps * share_stride(r));
    work->changes = scratch(band);
    real **parts = (real **)work;
    for (int i = 0; i < N_PARTS; i++)
        if (!parts[i]) return 0;
    return 1;
}

/* Latents, context, attention vector and read-out of one line, as the filter made them; leaves what going back needs. */
static void go_forward(const Replay *r, const Layer *layer, LineWorkspace *work, count row)
{
    count d = layer->d, stride = padded(d), wide = padded(layer->d_ff), T = r->steps;
    count sequence = row / r->n_trajectories, owner = (r->owners == 1 ? sequence : row) * T;
    count size = d / layer->heads, band = padded(T) + LANES;
    real root = 1 / square_root(size);
    real *z = work->last; /* its place is free until the end */
    for (count t = 0; t < T; t++) {
        count mean = (owner + t) * d, noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
        if (t + 1 < T) { /* trajectories jump between particles: no processor guesses where to */
            count next = place(&r->noise_strides, sequence, r->trajectories[row * T + t + 1], t + 1);
            prefetch(r->query_noise + next, d);
            prefetch(r->key_noise + next, d);
            prefetch(r->value_noise + next, d);
            prefetch(r->attention_noise + next, d);
        }
        multiply_add(work->query + t * stride, layer->query_factor, r->query_noise + noise, r->query_mean + mean, d);
        multiply_add(work->key + t * stride, layer->key_factor, r->key_noise + noise, r->key_mean + mean, d);
        multiply_add(work->value + t * stride, layer->value_factor, r->value_noise + noise, r->value_mean + mean, d);
        /* z + e, which is all that the read-out sees */
        multiply_add(z + t * stride, layer->attention_factor, r->attention_noise + noise, r->embedding + mean, d);
    }
    for (count offset = 0; offset < d; offset += size) {
        transpose_head(work->key + offset, T, stride, size, band, work->columns);
        for (count t = 0; t < T; t++) {
            count first = first_step(r->window, t), n = t + 1 - first;
            real top = -INFINITY, total = 0, *shares = work->shares + (offset / size * T + t) * share_stride(r);
            products(work->query + t * stride + offset, work->columns, band, size, first, t + 1, shares);
            for (count s = 0; s < n; s++) shares[s] *= root;
            for (count s = 0; s < n; s++) top = shares[s] > top ? shares[s] : top;
            for (count s = 0; s < n; s++) shares[s] = exp_negative(shares[s] - top);
            for (count s = 0; s < n; s++) total += shares[s];
            for (count s = 0; s < n; s++) shares[s] /= total;
            mix(shares, work->value + offset, stride, size, first, t + 1, work->context + t * stride + offset);
        }
    }
    multiply_steps(work->context, d, work->output, z, d, T);
    if (!layer->inner) return; /* the projection sees z + e itself */
    for (count t = 0; t < T; t++) {
        real *standard = work->standard_1 + t * stride, *hidden = work->hidden + t * stride;
        work->scale_1[t] = standardise(z + t * stride, standard, d, (real)layer->epsilon_1);
        multiply_add(hidden, layer->gain_1, standard, layer->bias_1, d);
        memcpy(z + t * stride, hidden, d * sizeof(real));
        add_scaled(z + t * stride, 1, layer->outer_bias, d);
        memcpy(work->middle + t * wide, layer->inner_bias, layer->d_ff * sizeof(real));
    }
    multiply_steps(work->hidden, d, work->inner, work->middle, layer->d_ff, T);
    for (count i = 0; i < T * wide; i++) work->middle[i] = work->middle[i] < 0 ? 0 : work->middle[i];
    multiply_steps(work->middle, layer->d_ff, work->outer, z, d, T);
    for (count t = 0; t < T; t++) {
        real *standard = work->standard_2 + t * stride, *last = work->last + t * stride;
        work->scale_2[t] = standardise(last, standard, d, (real)layer->epsilon_2);
        multiply_add(last, layer->gain_2, standard, layer->bias_2, d);
    }
}

/* From the gradient of the read-out to that of z + e, in work->gradient. */
static void read_out_backward(const Replay *r, const Layer *layer, LineWorkspace *work, count row, Sums *sums)
{
    count d = layer->d, d_ff = layer->d_ff, stride = padded(d), wide = padded(d_ff), T = r->steps;
    count n_out = layer->n_out, out_stride = padded(n_out);
    memset(work->gradient, 0, T * stride * sizeof(real));
    for (count t = 0; t < T; t++) {
        const real *given = r->gradient + (row * T + t) * n_out;
        memcpy(work->out_gradient + t * out_stride, given, n_out * sizeof(real));
        add_scaled(sums->projection_bias, 1, given, n_out);
    }
    multiply_steps(work->out_gradient, n_out, work->projection_as_is, work->gradient, d, T);
    add_outer(work->out_gradient, n_out, work->last, d, T, sums->projection);
    if (!layer->inner) return;
    memset(work->middle_gradient, 0, T * wide * sizeof(real));
    for (count t = 0; t < T; t++) {
        real *gradient = work->gradient + t * stride;
        standardise_backward(gradient, work->standard_2 + t * stride, work->scale_2[t], layer->gain_2, d, sums->gain_2,
                             sums->bias_2);
        add_scaled(sums->outer_bias, 1, gradient, d);
    }
    multiply_steps(work->gradient, d, work->outer_as_is, work->middle_gradient, d_ff, T);
    add_outer(work->gradient, d, work->middle, d_ff, T, sums->outer);
    for (count t = 0; t < T; t++) {
        real *gradient = work->middle_gradient + t * wide;
        for (count i = 0; i < d_ff; i++) gradient[i] = work->middle[t * wide + i] > 0 ? gradient[i] : 0;
        add_scaled(sums->inner_bias, 1, gradient, d_ff);
    }
    multiply_steps(work->middle_gradient, d_ff, work->inner_as_is, work->gradient, d, T);
    add_outer(work->middle_gradient, d_ff, work->hidden, d, T, sums->inner);
    for (count t = 0; t < T; t++)
        standardise_backward(work->gradient + t * stride, work->standard_1 + t * stride, work->scale_1[t],
                             layer->gain_1, d, sums->gain_1, sums->bias_1);
}

/* From the gradient of the contexts to those of queries, keys and values. */
static void attend_backward(const Replay *r, const Layer *layer, LineWorkspace *work)
{
    count d = layer->d, stride = padded(d), T = r->steps, size = d / layer->heads, band = padded(T) + LANES;
    real root = 1 / square_root(size), *changes = work->changes;
    memset(work->key_gradient, 0, T * stride * sizeof(real));
    memset(work->value_gradient, 0, T * stride * sizeof(real));
    for (count offset = 0; offset < d; offset += size) {
        transpose_head(work->value + offset, T, stride, size, band, work->columns);
        for (count t = 0; t < T; t++) {
            count first = first_step(r->window, t), n = t + 1 - first;
            const real *query = work->query + t * stride + offset, *gradient = work->context_gradient + t * stride + offset;
            const real *shares = work->shares + (offset / size * T + t) * share_stride(r);
            real along = dot(gradient, work->context + t * stride + offset, size);
            products(gradient, work->columns, band, size, first, t + 1, changes);
            for (count s = 0; s < n; s++) changes[s] = root * shares[s] * (changes[s] - along);
            mix(changes, work->key + offset, stride, size, first, t + 1, work->query_gradient + t * stride + offset);
            for (count s = first; s <= t; s++) {
                add_scaled(work->key_gradient + s * stride + offset, changes[s - first], query, size);
                add_scaled(work->value_gradient + s * stride + offset, shares[s - first], gradient, size);
            }
        }
    }
}

static void go_back(const Replay *r, const Layer *layer, LineWorkspace *work, count row, Sums *sums)
{
    count d = layer->d, stride = padded(d), T = r->steps, sequence = row / r->n_trajectories;
    count owner = (r->owners == 1 ? sequence : row) * T;
    read_out_backward(r, layer, work, row, sums);
    memset(work->context_gradient, 0, T * stride * sizeof(real));
    multiply_steps(work->gradient, d, work->output_as_is, work->context_gradient, d, T);
    add_outer(work->gradient, d, work->context, d, T, sums->output);
    attend_backward(r, layer, work);
    for (count t = 0; t < T; t++) {
        count mean = (owner + t) * d, noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
        const real *query = work->query_gradient + t * stride, *key = work->key_gradient + t * stride;
        const real *value = work->value_gradient + t * stride, *z = work->gradient + t * stride;
        add_scaled(r->query_mean_gradient + mean, 1, query, d);
        add_scaled(r->key_mean_gradient + mean, 1, key, d);
        add_scaled(r->value_mean_gradient + mean, 1, value, d);
        add_scaled(r->embedding_gradient + mean, 1, z, d);
        multiply_add(sums->query_factor, query, r->query_noise + noise, sums->query_factor, d);
        multiply_add(sums->key_factor, key, r->key_noise + noise, sums->key_factor, d);
        multiply_add(sums->value_factor, value, r->value_noise + noise, sums->value_factor, d);
        multiply_add(sums->attention_factor, z, r->attention_noise + noise, sums->attention_factor, d);
    }
}

/* The read-outs of trajectories that no filter has been through, (batch, n_trajectories, steps, n_out). Returns 0, or 1. */
int replay_forward(const Replay *r, const Layer *layer, real *read_outs, int n_threads)
{
    count T = r->steps, stride = padded(layer->d), n_out = layer->n_out;
    int failed = 0;
#pragma omp parallel num_threads(n_threads)
    {
        LineWorkspace work;
        memset(&work, 0, sizeof work);
        int ready = prepare_line(&work, r, layer);
#pragma omp for schedule(dynamic)
        for (count row = 0; row < r->batch * r->n_trajectories; row++) {
            if (!ready) continue;
            go_forward(r, layer, &work, row);
            for (count t = 0; t < T; t++)
                for (count o = 0; o < n_out; o++)
                    read_outs[(row * T + t) * n_out + o] = layer->projection_bias[o]
                        + dot(work.last + t * stride, layer->projection + o * layer->d, layer->d);
        }
        if (!ready) {
#pragma omp atomic write
            failed = 1;
        }
        real **parts = (real **)&work;
        for (int i = 0; i < N_PARTS; i++) free(parts[i]);
    }
    return failed;
}

/* Returns 0, or 1 when there was not enough memory. */
int replay_backward(const Replay *r, const Layer *layer, int n_threads)
{
    int failed = 0;
#pragma omp parallel num_threads(n_threads)
    {
        LineWorkspace work;
        memset(&work, 0, sizeof work);
        int ready = prepare_line(&work, r, layer);
#pragma omp for schedule(dynamic)
        for (count group = 0; group < r->groups; group++) {
            if (!ready) continue;
            Sums sums;
            place_sums(&sums, layer, r->sums + group * r->n_sums);
            count first = r->batch * group / r->groups, last = r->batch * (group + 1) / r->groups;
            for (count row = first * r->n_trajectories; row < last * r->n_trajectories; row++) {
                go_forward(r, layer, &work, row);
                go_back(r, layer, &work, row, &sums);
            }
        }
        if (!ready) {
#pragma omp atomic write
            failed = 1;
        }
        real **parts = (real **)&work;
        for (int i = 0; i < N_PARTS; i++) free(parts[i]);
    }
    return failed;
}
