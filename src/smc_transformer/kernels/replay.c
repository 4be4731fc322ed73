/* The gradient of the replay: from the gradient of the read-out along trajectories to those of all parameters.

   The filter has the read-outs along all trajectories already, so there is no forward pass to record. One thread takes one
   trajectory, makes its latents and activations again, and goes back through them; all of it stays in cache. Sums over trajectories are
   kept by group of sequences and added up in order, so that they do not depend on the number of threads. */

#include "band.h"
#include "gradient.h"
#include "pool.h"

typedef struct {
    count batch, n_trajectories, particles, steps, window, owners, groups; /* owners of means and embedding: 1 or n_trajectories */
    const real *query_mean, *key_mean, *value_mean, *embedding; /* (batch, owners, steps, d), or with nodes (node, d) */
    const count *nodes; /* (batch, n_trajectories, steps): whose mean and embedding, each of one sequence only; or NULL */
    const real *query_noise, *key_noise, *value_noise, *attention_noise; /* (batch, particles, steps, d) */
    Strides noise_strides;
    const count *trajectories;                                                  /* (batch, n_trajectories, steps) */
    const real *gradient;                                                /* (batch, n_trajectories, steps, n_out) */
    real *query_mean_gradient, *key_mean_gradient, *value_mean_gradient, *embedding_gradient; /* zeroed */
    real *sums; /* (groups, n_sums), zeroed: gradients of the layer's parameters in the order of `Sums` */
    count n_sums;
} Replay;

SIZE_OF(Replay, replay)

count count_sums(const Layer *layer)
{
    Sums sums;
    return place_sums(&sums, layer, NULL);
}

/* Where the means and the embedding of a step of a trajectory are. */
static inline count mean_of(const Replay *r, count row, count t, count d)
{
    if (r->nodes) return r->nodes[row * r->steps + t] * d;
    return ((r->owners == 1 ? row / r->n_trajectories : row) * r->steps + t) * d;
}

/* What one thread needs. Matrices have a row for each step, padded to whole vectors and whole blocks of steps. */
typedef struct {
    Weights weights;
    ReadOut read_out;
    real *query, *key, *value, *context, *context_gradient, *query_gradient, *key_gradient, *value_gradient;
    real *columns, *shares, *changes; /* shares (heads, steps, share_stride): the attention weights */
} TrajectoryWorkspace;

/* Room for the attention weights of one step, in whole vectors. */
static inline count share_stride(const Replay *r)
{
    return padded(r->window && r->window < r->steps ? r->window : r->steps);
}

enum { N_PARTS = sizeof(TrajectoryWorkspace) / sizeof(real *) };

static int prepare_trajectory(TrajectoryWorkspace *work, const Replay *r, const Layer *layer)
{
    count d = layer->d, steps = (r->steps + BLOCK - 1) / BLOCK * BLOCK;
    count matrix = steps * padded(d), band = padded(r->steps) + LANES, size = d / layer->heads;
    prepare_weights(&work->weights, layer);
    prepare_read_out(&work->read_out, layer, r->steps);
    real **matrices[] = {&work->query, &work->key, &work->value, &work->context, &work->context_gradient,
                         &work->query_gradient, &work->key_gradient, &work->value_gradient};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) *matrices[i] = scratch(matrix);
    work->columns = scratch(size * band);
    work->shares = scratch(layer->heads * r->steps * share_stride(r));
    work->changes = scratch(band);
    return all_there((real **)work, N_PARTS);
}

/* Latents, context, attention vector and read-out of one trajectory, as the filter made them; leaves what going back needs. */
static void go_forward(const Replay *r, const Layer *layer, TrajectoryWorkspace *work, count row)
{
    count d = layer->d, stride = padded(d), T = r->steps;
    count sequence = row / r->n_trajectories;
    count size = d / layer->heads, band = padded(T) + LANES;
    real root = 1 / square_root(size);
    real *z = work->read_out.last; /* its place is free until the end */
    for (count t = 0; t < T; t++) {
        count mean = mean_of(r, row, t, d), noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
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
    multiply_rows(work->context, d, work->weights.output, z, d, T);
    go_through_net(layer, &work->weights, &work->read_out, T);
}

/* From the gradient of the contexts to those of queries, keys and values. */
static void attend_backward(const Replay *r, const Layer *layer, TrajectoryWorkspace *work)
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

static void go_back(const Replay *r, const Layer *layer, TrajectoryWorkspace *work, count row, Sums *sums)
{
    count d = layer->d, stride = padded(d), T = r->steps, sequence = row / r->n_trajectories;
    ReadOut *read_out = &work->read_out;
    for (count t = 0; t < T; t++)
        memcpy(read_out->out_gradient + t * padded(layer->n_out), r->gradient + (row * T + t) * layer->n_out,
               layer->n_out * sizeof(real));
    go_back_through_net(layer, &work->weights, read_out, T, sums);
    memset(work->context_gradient, 0, T * stride * sizeof(real));
    multiply_rows(read_out->gradient, d, work->weights.output_as_is, work->context_gradient, d, T);
    add_weights(layer, read_out, work->context, T, sums);
    attend_backward(r, layer, work);
    for (count t = 0; t < T; t++) {
        count mean = mean_of(r, row, t, d), noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
        const real *query = work->query_gradient + t * stride, *key = work->key_gradient + t * stride;
        const real *value = work->value_gradient + t * stride, *z = read_out->gradient + t * stride;
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

typedef struct {
    Pieces pieces;
    const Replay *replay;
    const Layer *layer;
    real *read_outs;
} Replaying;

static int read_out_rows(void *job)
{
    Replaying *replaying = job;
    const Replay *r = replaying->replay;
    const Layer *layer = replaying->layer;
    count T = r->steps, stride = padded(layer->d), n_out = layer->n_out;
    TrajectoryWorkspace work;
    memset(&work, 0, sizeof work);
    int ready = prepare_trajectory(&work, r, layer);
    for (count row; ready && (row = take(&replaying->pieces)) >= 0;) {
        go_forward(r, layer, &work, row);
        for (count t = 0; t < T; t++)
            for (count o = 0; o < n_out; o++)
                replaying->read_outs[(row * T + t) * n_out + o] = layer->projection_bias[o]
                    + dot(work.read_out.last + t * stride, layer->projection + o * layer->d, layer->d);
    }
    free_all((real **)&work, N_PARTS);
    return !ready;
}

static int go_back_through_groups(void *job)
{
    Replaying *replaying = job;
    const Replay *r = replaying->replay;
    const Layer *layer = replaying->layer;
    TrajectoryWorkspace work;
    memset(&work, 0, sizeof work);
    int ready = prepare_trajectory(&work, r, layer);
    for (count group; ready && (group = take(&replaying->pieces)) >= 0;) {
        Sums sums;
        place_sums(&sums, layer, r->sums + group * r->n_sums);
        count first = r->batch * group / r->groups, last = r->batch * (group + 1) / r->groups;
        for (count row = first * r->n_trajectories; row < last * r->n_trajectories; row++) {
            go_forward(r, layer, &work, row);
            go_back(r, layer, &work, row, &sums);
        }
    }
    free_all((real **)&work, N_PARTS);
    return !ready;
}

/* The read-outs of trajectories that no filter has been through, (batch, n_trajectories, steps, n_out). Returns 0, or 1
   when there was not enough memory. */
int replay_forward(const Replay *r, const Layer *layer, real *read_outs, int n_threads)
{
    Replaying job = {{0, r->batch * r->n_trajectories}, r, layer, read_outs};
    return work_together(read_out_rows, &job, n_threads);
}

/* Returns 0, or 1 when there was not enough memory. */
int replay_backward(const Replay *r, const Layer *layer, int n_threads)
{
    Replaying job = {{0, r->groups}, r, layer, NULL};
    return work_together(go_back_through_groups, &job, n_threads);
}
