/* The gradient of the replay: from the gradient of the read-out along trajectories to those of all parameters.

   The filter has the read-outs along all trajectories already, so there is no forward pass to record. One thread takes one
   trajectory, makes its latents and activations again, and goes back through them; all of it stays in cache. Sums over trajectories are
   kept by group of sequences and added up in order, so that they do not depend on the number of threads.

   Ancestral trajectories have their distant past in common, and what is the same up to a step has the same read-outs up
   to there: they are gone through once, with the sum of the gradients of all who share them. A trajectory is gone
   through from the first step that it shares with no earlier one. Those with means of their own share nothing, even
   where these are equal: each has its own gradient. */

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
    real *gradient; /* (n_trajectories, steps, n_out): of one sequence, those of shared steps at the first who has them */
} TrajectoryWorkspace;

/* Room for the attention weights of one step, in whole vectors. */
static inline count share_stride(const Replay *r)
{
    return padded(r->window && r->window < r->steps ? r->window : r->steps);
}

enum { N_PARTS = sizeof(TrajectoryWorkspace) / sizeof(real *) };

static int prepare_trajectory(TrajectoryWorkspace *work, const Replay *r, const Layer *layer)
{
    count d = layer->d, steps = r->steps + BLOCK; /* room for whole blocks, from whatever step on */
    count matrix = steps * padded(d), band = padded(r->steps) + LANES, size = d / layer->heads;
    prepare_weights(&work->weights, layer);
    prepare_read_out(&work->read_out, layer, steps);
    real **matrices[] = {&work->query, &work->key, &work->value, &work->context, &work->context_gradient,
                         &work->query_gradient, &work->key_gradient, &work->value_gradient};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) *matrices[i] = scratch(matrix);
    work->columns = scratch(size * band);
    work->shares = scratch(layer->heads * r->steps * share_stride(r));
    work->changes = scratch(band);
    work->gradient = scratch(r->gradient ? r->n_trajectories * r->steps * layer->n_out : 1);
    return all_there((real **)work, N_PARTS);
}

/* Whether two trajectories have the noise, the means and the embedding of a step in common. */
static inline int is_shared(const Replay *r, count row, count other, count t)
{
    count own = row * r->steps + t, its = other * r->steps + t;
    if (r->trajectories[own] != r->trajectories[its]) return 0;
    return r->nodes ? r->nodes[own] == r->nodes[its] : r->owners == 1;
}

/* How many steps each trajectory of a sequence has in common with an earlier one, and with which. */
static void find_shared(const Replay *r, count sequence, count *n_shared, count *with)
{
    count T = r->steps, first = sequence * r->n_trajectories;
    for (count row = 0; row < r->n_trajectories; row++) {
        n_shared[row] = with[row] = 0;
        for (count other = 0; other < row && n_shared[row] < T; other++) {
            if (!is_shared(r, first + row, first + other, n_shared[row])) continue; /* no more than with another one */
            count same = 0;
            while (same < T && is_shared(r, first + row, first + other, same)) same++;
            if (same <= n_shared[row]) continue;
            n_shared[row] = same;
            with[row] = other;
        }
    }
}

/* The gradients of the read-outs of a sequence, those of shared steps added up at the first trajectory that has them. */
static void gather_gradients(const Replay *r, count sequence, count n_out, const count *n_shared, const count *with,
                             real *gradient)
{
    count n = r->steps * n_out;
    memcpy(gradient, r->gradient + sequence * r->n_trajectories * n, r->n_trajectories * n * sizeof(real));
    for (count row = r->n_trajectories - 1; row > 0; row--) /* an earlier one may hand them on */
        add_scaled(gradient + with[row] * n, 1, gradient + row * n, n_shared[row] * n_out);
}

/* Latents, context, attention vector and read-out of one trajectory from step `from` on, as the filter made them; leaves
   what going back needs. */
static void go_forward(const Replay *r, const Layer *layer, TrajectoryWorkspace *work, count row, count from)
{
    count d = layer->d, stride = padded(d), T = r->steps, oldest = first_step(r->window, from);
    count sequence = row / r->n_trajectories;
    count size = d / layer->heads, band = padded(T) + LANES;
    real root = 1 / square_root(size);
    real *z = work->read_out.last; /* its place is free until the end */
    for (count t = oldest; t < T; t++) {
        count mean = mean_of(r, row, t, d), noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
        if (t + 1 < T) { /* trajectories jump between particles: no processor guesses where to */
            count next = place(&r->noise_strides, sequence, r->trajectories[row * T + t + 1], t + 1);
            prefetch(r->query_noise + next, d);
            prefetch(r->key_noise + next, d);
            prefetch(r->value_noise + next, d);
            prefetch(r->attention_noise + next, d);
        }
        multiply_add(work->key + t * stride, layer->key_factor, r->key_noise + noise, r->key_mean + mean, d);
        multiply_add(work->value + t * stride, layer->value_factor, r->value_noise + noise, r->value_mean + mean, d);
        if (t < from) continue;
        multiply_add(work->query + t * stride, layer->query_factor, r->query_noise + noise, r->query_mean + mean, d);
        /* z + e, which is all that the read-out sees */
        multiply_add(z + t * stride, layer->attention_factor, r->attention_noise + noise, r->embedding + mean, d);
    }
    for (count offset = 0; offset < d; offset += size) {
        transpose_head(work->key + oldest * stride + offset, T - oldest, stride, size, band, work->columns + oldest);
        for (count t = from; t < T; t++) {
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
    ReadOut own = rows_from(&work->read_out, layer, from);
    multiply_rows(work->context + from * stride, d, work->weights.output, own.last, d, T - from);
    go_through_net(layer, &work->weights, &own, T - from);
}

/* From the gradient of the contexts, of step `from` on, to those of queries, keys and values. */
static void attend_backward(const Replay *r, const Layer *layer, TrajectoryWorkspace *work, count from)
{
    count d = layer->d, stride = padded(d), T = r->steps, size = d / layer->heads, band = padded(T) + LANES;
    count oldest = first_step(r->window, from);
    real root = 1 / square_root(size), *changes = work->changes;
    memset(work->key_gradient + oldest * stride, 0, (T - oldest) * stride * sizeof(real));
    memset(work->value_gradient + oldest * stride, 0, (T - oldest) * stride * sizeof(real));
    for (count offset = 0; offset < d; offset += size) {
        transpose_head(work->value + oldest * stride + offset, T - oldest, stride, size, band, work->columns + oldest);
        for (count t = from; t < T; t++) {
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

/* From the gradients of the read-outs of one trajectory from step `from` on to all others. */
static void go_back(const Replay *r, const Layer *layer, TrajectoryWorkspace *work, count row, count from, Sums *sums)
{
    count d = layer->d, stride = padded(d), T = r->steps, sequence = row / r->n_trajectories, n_out = layer->n_out;
    const real *gradient = work->gradient + row % r->n_trajectories * T * n_out;
    ReadOut own = rows_from(&work->read_out, layer, from);
    for (count t = from; t < T; t++)
        memcpy(own.out_gradient + (t - from) * padded(n_out), gradient + t * n_out, n_out * sizeof(real));
    go_back_through_net(layer, &work->weights, &own, T - from, sums);
    real *context = work->context + from * stride, *context_gradient = work->context_gradient + from * stride;
    memset(context_gradient, 0, (T - from) * stride * sizeof(real));
    multiply_rows(own.gradient, d, work->weights.output_as_is, context_gradient, d, T - from);
    add_weights(layer, &own, context, T - from, sums);
    attend_backward(r, layer, work, from);
    for (count t = first_step(r->window, from); t < T; t++) {
        count mean = mean_of(r, row, t, d), noise = place(&r->noise_strides, sequence, r->trajectories[row * T + t], t);
        const real *key = work->key_gradient + t * stride, *value = work->value_gradient + t * stride;
        add_scaled(r->key_mean_gradient + mean, 1, key, d);
        add_scaled(r->value_mean_gradient + mean, 1, value, d);
        multiply_add(sums->key_factor, key, r->key_noise + noise, sums->key_factor, d);
        multiply_add(sums->value_factor, value, r->value_noise + noise, sums->value_factor, d);
        if (t < from) continue;
        const real *query = work->query_gradient + t * stride, *z = work->read_out.gradient + t * stride;
        add_scaled(r->query_mean_gradient + mean, 1, query, d);
        add_scaled(r->embedding_gradient + mean, 1, z, d);
        multiply_add(sums->query_factor, query, r->query_noise + noise, sums->query_factor, d);
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
        go_forward(r, layer, &work, row, 0);
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
    count K = r->n_trajectories, *n_shared = calloc(2 * K, sizeof(count)), *with = n_shared + K;
    int ready = prepare_trajectory(&work, r, layer) && n_shared;
    for (count group; ready && (group = take(&replaying->pieces)) >= 0;) {
        Sums sums;
        place_sums(&sums, layer, r->sums + group * r->n_sums);
        for (count sequence = r->batch * group / r->groups; sequence < r->batch * (group + 1) / r->groups; sequence++) {
            find_shared(r, sequence, n_shared, with);
            gather_gradients(r, sequence, layer->n_out, n_shared, with, work.gradient);
            for (count row = 0; row < K; row++) {
                if (n_shared[row] == r->steps) continue;
                go_forward(r, layer, &work, sequence * K + row, n_shared[row]);
                go_back(r, layer, &work, sequence * K + row, n_shared[row], &sums);
            }
        }
    }
    free_all((real **)&work, N_PARTS);
    free(n_shared);
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
