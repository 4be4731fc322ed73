/* Forecast paths: every path draws latents and an observation at each step, and goes on with it as its own input.

   One thread takes a block of paths of a sequence through all steps. With gradients it keeps what each step leaves, and
   goes back through all of them: from the gradient of the paths to those of all parameters, of the latents before the
   first step, and of the draws. */

#include "encoder.h"
#include "gamma.h"
#include "gradient.h"
#include "noise.h"
#include "pool.h"

typedef struct {
    count batch, paths, steps, window, n_inputs, n_targets, n_parameters, adds_last;
    const real *last, *previous; /* (batch, paths, n_inputs): the inputs to start from, and those before them */
    const real *hidden;          /* (batch, paths, d): states of a GRU, or NULL */
    const real *known;           /* (batch, steps, n_inputs - n_targets): they come with the targets of a step */
    const real *positions;       /* (batch, steps, d): added to the embeddings, or NULL */
    const real *query, *key, *value; /* (d, d): Wq, Wk, Wv */
    const real *query_noise, *key_noise, *value_noise, *attention_noise; /* (batch, paths, steps, d) */
    Strides noise_strides;
    const uint64_t *seeds;       /* (steps): the noise of a step is (4, batch, paths, d) normal numbers of its seed; or NULL */
    /* (batch): with these, or NULL, the noise of a step is (4, paths, d) numbers of each sequence's own stream, and its
       seed is the number of the draw there. */
    const uint64_t *stream_keys, *stream_steps;
    const real *draws;           /* (batch, paths, steps, n_targets): X = location + scale * (root draw) */
    const real *root, *lowest, *highest; /* as in filter.c */
    /* (steps, 2), or NULL. With these X is a count, negative binomial by its log-mean and log-dispersion, each at most
       `largest_log` from 0: a Poisson number whose rate is a Gamma number, the draws of these numbers of each sequence's
       own stream. Inputs hold log(1 + count). Counts have no gradient. */
    const uint64_t *count_draws;
    double largest_log;
    /* Slots before the first step, those of the particles that the paths descend from. */
    count past_particles, past_slots;
    const real *past_keys, *past_values; /* (batch, past_particles, past_slots, d) */
    const count *past_trajectories;      /* (batch, past_particles, past_slots) */
    const count *parents;                /* (batch, paths) */
    const count *n_past;                 /* (batch): how many of the slots a sequence has, the first ones */
    real *targets, *parameters;          /* (batch, paths, steps, n) */
    /* For going back. */
    count groups, n_sums;
    const real *targets_gradient;        /* like targets */
    real *draws_gradient, *hidden_gradient, *past_keys_gradient, *past_values_gradient; /* the last two zeroed */
    real *sums;                          /* (groups, n_sums), zeroed: in the order of `PathSums` */
} Paths;

SIZE_OF(Paths, paths)
SIZE_OF(Encoder, encoder)

typedef struct {
    Sums layer;
    real *query, *key, *value, *weight, *bias, *recurrent, *recurrent_bias;
} PathSums;

static count place_path_sums(PathSums *sums, const Layer *layer, const Encoder *encoder, real *memory)
{
    count used = place_sums(&sums->layer, layer, memory), d = padded(layer->d), gates = padded(n_gates(encoder));
    count recurrent = encoder->recurrent ? gates : 0;
    struct { real **part; count size; } parts[] = {
        {&sums->query, d * d}, {&sums->key, d * d}, {&sums->value, d * d},
        {&sums->weight, gates * padded(encoder->width)}, {&sums->bias, gates},
        {&sums->recurrent, recurrent * d}, {&sums->recurrent_bias, recurrent},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].part = memory ? memory + used : NULL;
        used += parts[i].size;
    }
    return used;
}

count count_path_sums(const Layer *layer, const Encoder *encoder)
{
    PathSums sums;
    return place_path_sums(&sums, layer, encoder, NULL);
}

/* What one thread needs. Rows are the paths of a block, one step after the other; without gradients there is room for
   one step, and only keys, values and drawn inputs are kept. */
typedef struct {
    Weights weights;
    EncoderWeights encoder_weights;
    ReadOut read_out;
    EncoderRows encoder;
    real *query_weight, *key_weight, *value_weight, *query_as_is, *key_as_is, *value_as_is, *weight_as_is, *recurrent_as_is;
    real *embedding;            /* (1 + steps, block, d): the state of a GRU before each step, and after the last */
    real *query, *context;      /* (steps, block, d) */
    real *white;                /* (steps, block, n_targets): root draw, times the scale once there is one */
    real *keys, *values;        /* (block, steps, d): a path's own */
    /* What a step may attend to, slot s in place s % ring, so that a step reads whole vectors and no more of them than
       the window has: keys as columns (block, d, ring), values (block, ring, d), and which places are seen, as 1. */
    real *ring_keys, *ring_values, *seen;
    real *inputs;               /* (2 + steps, block, n_inputs): the one before the first, and all from then on */
    real *shares, *row;         /* of one query */
    real *noise;                /* (4, block, d): of one step, if it is made here */
    real *query_gradient, *key_gradient, *value_gradient; /* (steps, block, padded d) */
    real *gates_gradient, *recalled_gradient;             /* (steps, block, padded 3 d) */
    real *embedding_gradient, *context_gradient, *carried, *seen_gradient; /* (block, ...) */
    real *input_gradient;       /* (2 + steps, block, n_inputs) */
} PathWorkspace;

enum { N_PARTS = sizeof(PathWorkspace) / sizeof(real *) };

static inline count ring_of(const Paths *p)
{
    count slots = p->past_slots + p->steps;
    return padded(p->window && p->window < slots ? p->window : slots);
}

static int prepare_paths(PathWorkspace *work, const Paths *p, const Layer *layer, const Encoder *encoder, int back)
{
    count d = layer->d, stride = padded(d), kept = back ? p->steps : 1, rows = kept * BLOCK, room = back ? rows : 1;
    prepare_weights(&work->weights, layer);
    prepare_encoder(&work->encoder_weights, encoder);
    prepare_read_out(&work->read_out, layer, rows);
    prepare_encoder_rows(&work->encoder, encoder, rows);
    work->query_weight = transposed(p->query, d, d);
    work->key_weight = transposed(p->key, d, d);
    work->value_weight = transposed(p->value, d, d);
    work->query_as_is = with_padding(p->query, d, d);
    work->key_as_is = with_padding(p->key, d, d);
    work->value_as_is = with_padding(p->value, d, d);
    work->weight_as_is = with_padding(encoder->weight, n_gates(encoder), encoder->width);
    work->recurrent_as_is = encoder->recurrent ? with_padding(encoder->recurrent, 3 * d, d) : scratch(1);
    work->embedding = scratch((kept + 1) * BLOCK * stride);
    work->query = scratch(rows * stride);
    work->context = scratch(rows * stride);
    work->white = scratch(rows * p->n_targets);
    work->keys = scratch(BLOCK * p->steps * d);
    work->values = scratch(BLOCK * p->steps * d);
    work->ring_keys = scratch(BLOCK * d * ring_of(p));
    work->ring_values = scratch(BLOCK * ring_of(p) * d);
    work->seen = scratch(ring_of(p));
    work->inputs = scratch((2 + p->steps) * BLOCK * p->n_inputs);
    work->shares = scratch(padded(p->steps + p->past_slots));
    work->row = scratch(2 * stride + p->steps + p->past_slots);
    work->noise = scratch(4 * BLOCK * d);
    work->query_gradient = scratch(room * stride);
    work->key_gradient = scratch(room * stride);
    work->value_gradient = scratch(room * stride);
    work->gates_gradient = scratch(room * padded(3 * d));
    work->recalled_gradient = scratch(room * padded(3 * d));
    work->embedding_gradient = scratch(BLOCK * stride);
    work->context_gradient = scratch(BLOCK * stride);
    work->carried = scratch(BLOCK * stride);
    work->seen_gradient = scratch(BLOCK * padded(encoder->width));
    work->input_gradient = scratch(back ? (2 + p->steps) * BLOCK * p->n_inputs : 1);
    return all_there((real **)work, N_PARTS);
}

/* A block of paths: rows beyond the last path repeat it, so that every row has sensible numbers. */
typedef struct {
    count sequence, first, n_rows;
} Block;

static inline count path_of(const Block *block, count row)
{
    return block->first + (row < block->n_rows ? row : block->n_rows - 1);
}

/* The oldest slot that step t of a path of the block attends to, counted from the first slot of its past. */
static inline count first_visible(const Paths *p, const Block *block, count t)
{
    count last = p->n_past[block->sequence] + t;
    return p->window && last >= p->window ? last + 1 - p->window : 0;
}

/* The slots that step t of a row attends to: its own, and those before the first step. */
static int visible(const Paths *p, const PathWorkspace *work, const Block *block, const count *own_row, count row, count t,
                   count d, Slots out[2])
{
    count n_past = p->n_past[block->sequence], first = first_visible(p, block, t);
    count own_first = first > n_past ? first - n_past : 0;
    out[0] = (Slots){work->keys + row * p->steps * d, work->values + row * p->steps * d, own_row, own_first, t + 1,
                     p->steps};
    if (first >= n_past) return 1;
    count base = block->sequence * p->past_particles, path = block->sequence * p->paths + path_of(block, row);
    out[1] = (Slots){p->past_keys + base * p->past_slots * d, p->past_values + base * p->past_slots * d,
                     p->past_trajectories + (base + p->parents[path]) * p->past_slots, first, n_past, p->past_slots};
    return 2;
}

/* Put a key and a value of a row into its ring. */
static inline void keep(const PathWorkspace *work, count ring, count row, count slot, const real *key, const real *value,
                        count d)
{
    count place = slot % ring;
    memcpy(work->ring_values + (row * ring + place) * d, value, d * sizeof(real));
    real *column = work->ring_keys + row * d * ring + place;
    for (count i = 0; i < d; i++) column[i * ring] = key[i];
}

/* Keys and values before the first step, as far as they are ever seen. */
static void keep_past(const Paths *p, const PathWorkspace *work, const Block *block, count row, count d)
{
    count base = block->sequence * p->past_particles, path = block->sequence * p->paths + path_of(block, row);
    const count *trajectory = p->past_trajectories + (base + p->parents[path]) * p->past_slots;
    for (count s = first_visible(p, block, 0); s < p->n_past[block->sequence]; s++) {
        count slot = ((base + trajectory[s]) * p->past_slots + s) * d;
        keep(work, ring_of(p), row, s, p->past_keys + slot, p->past_values + slot, d);
    }
}

/* out = x . columns for two vectors of columns, or the last one. */
static inline void column_products(const real *restrict x, const real *restrict columns, count stride, count size,
                                   real *restrict out)
{
    count s = 0;
    for (; s + 2 * LANES <= stride; s += 2 * LANES) {
        vector sums[4] = {{0}, {0}, {0}, {0}}; /* as each addition waits for the one before */
        count i = 0;
        for (; i + 2 <= size; i += 2)
            for (int part = 0; part < 4; part++)
                sums[part] += x[i + part / 2] * load(columns + (i + part / 2) * stride + s + part % 2 * LANES);
        for (int part = 0; i < size && part < 2; part++) sums[part] += x[i] * load(columns + i * stride + s + part * LANES);
        store(out + s, sums[0] + sums[2]);
        store(out + s + LANES, sums[1] + sums[3]);
    }
    for (; s < stride; s += LANES) {
        vector sum = {0};
        for (count i = 0; i < size; i++) sum += x[i] * load(columns + i * stride + s);
        store(out + s, sum);
    }
}

/* The context of a row's query over its ring, whose places first, ..., last - 1 (twice, the first of them maybe none)
   are seen: sum of softmax(q . k / sqrt(r)) v, head by head. */
static void attend_ring(const PathWorkspace *work, count ring, const count places[4], count d, count size, real root,
                        count row, const real *restrict query, real *restrict context)
{
    real *restrict shares = work->shares;
    const real *restrict seen = work->seen;
    for (count offset = 0; offset < d; offset += size) {
        real tops[LANES], top = -INFINITY;
        column_products(query + offset, work->ring_keys + (row * d + offset) * ring, ring, size, shares);
        for (int lane = 0; lane < LANES; lane++) tops[lane] = -INFINITY;
        for (count i = 0; i < ring; i += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                real score = seen[i + lane] > 0 ? shares[i + lane] : -INFINITY;
                shares[i + lane] = score;
                tops[lane] = score > tops[lane] ? score : tops[lane];
            }
        for (int lane = 0; lane < LANES; lane++) top = tops[lane] > top ? tops[lane] : top;
        for (count i = 0; i < ring; i++) shares[i] = exp_negative(root * (shares[i] - top));
        real share = 1 / total(shares, ring);
        const real *values = work->ring_values + row * ring * d + offset;
        count i = 0;
        for (; i + LANES <= size; i += LANES) {
            vector sum = {0}, odd = {0};
            for (int part = 0; part < 4; part += 2) {
                count s = places[part], last = places[part + 1];
                for (; s + 2 <= last; s += 2) {
                    sum += shares[s] * load(values + s * d + i);
                    odd += shares[s + 1] * load(values + (s + 1) * d + i);
                }
                if (s < last) sum += shares[s] * load(values + s * d + i);
            }
            store(context + offset + i, (sum + odd) * share);
        }
        for (; i < size; i++) {
            real sum = 0;
            for (int part = 0; part < 4; part += 2)
                for (count s = places[part]; s < places[part + 1]; s++) sum += shares[s] * values[s * d + i];
            context[offset + i] = sum * share;
        }
    }
}

/* The contexts of the queries of step t of all rows. */
static void attend_block(const Paths *p, const Layer *layer, const PathWorkspace *work, const Block *block, count t,
                         const real *query, real *context)
{
    count d = layer->d, size = d / layer->heads, ring = ring_of(p), first = first_visible(p, block, t);
    count n = p->n_past[block->sequence] + t + 1 - first, from = first % ring, beyond = from + n - ring;
    const count places[4] = {0, beyond > 0 ? beyond : 0, from, beyond > 0 ? ring : from + n};
    for (count i = 0; i < ring; i++) work->seen[i] = i < places[1] || (i >= places[2] && i < places[3]);
    real root = 1 / square_root(size);
    for (count row = 0; row < BLOCK; row++)
        attend_ring(work, ring, places, d, size, root, row, query + row * padded(d), context + row * padded(d));
}

/* Makes the noise of step t, if it is made here. */
static void make_noise(const Paths *p, PathWorkspace *work, const Block *block, count t, count d)
{
    for (int kind = 0; p->seeds && kind < 4; kind++) {
        int own = p->stream_keys != NULL;
        count first = ((own ? kind : kind * p->batch + block->sequence) * p->paths + block->first) * d;
        Stream stream = own ? stream_of(p->stream_keys[block->sequence], p->stream_steps[block->sequence],
                                        (uint32_t)p->seeds[t])
                            : stream_of(p->seeds[t], 0, 0);
        normal_numbers(work->noise + kind * BLOCK * d, first, block->n_rows * d, stream);
    }
}

/* The noise of a row at step t: of its query, key, value and attention vector. */
static inline void noise_of(const Paths *p, const PathWorkspace *work, const Block *block, count row, count t, count d,
                            const real *eps[4])
{
    count path = path_of(block, row), given = p->seeds ? 0 : place(&p->noise_strides, block->sequence, path, t);
    const real *kinds[] = {p->query_noise, p->key_noise, p->value_noise, p->attention_noise};
    for (int kind = 0; kind < 4; kind++)
        eps[kind] = p->seeds ? work->noise + (kind * BLOCK + path - block->first) * d : kinds[kind] + given;
}

static void start_block(const Paths *p, PathWorkspace *work, const Block *block, count d)
{
    count n = p->n_inputs;
    for (count row = 0; row < BLOCK; row++) {
        count path = block->sequence * p->paths + path_of(block, row);
        memcpy(work->inputs + row * n, (p->previous ? p->previous : p->last) + path * n, n * sizeof(real));
        memcpy(work->inputs + (BLOCK + row) * n, p->last + path * n, n * sizeof(real));
        if (p->hidden) memcpy(work->embedding + row * padded(d), p->hidden + path * d, d * sizeof(real));
        keep_past(p, work, block, row, d);
    }
}

static inline double kept_within(double x, double largest) { return x < -largest ? -largest : x > largest ? largest : x; }

/* The count of target i of a row at step t; in the number type of the kernels, where torch rounds to it. */
static real draw_count(const Paths *p, const Block *block, count row, count t, count i, real log_mean, real log_dispersion)
{
    uint64_t key = p->stream_keys[block->sequence], step = p->stream_steps[block->sequence];
    Stream shares = stream_of(key, step, (uint32_t)p->count_draws[2 * t]);
    Stream counts = stream_of(key, step, (uint32_t)p->count_draws[2 * t + 1]);
    count number = path_of(block, row) * p->n_targets + i;
    real mean = (real)exp(kept_within((double)log_mean, p->largest_log));
    real dispersion = (real)exp(kept_within((double)log_dispersion, p->largest_log));
    real gamma = (real)draw_alone(&shares, number, (double)(1 / dispersion), 0);
    return (real)draw_alone(&counts, number, (double)(gamma * dispersion * mean), 1);
}

/* One step of a block: embed the last inputs, attend, read out, draw. `at` is where the step is kept. */
static void take_step(const Paths *p, const Layer *layer, const Encoder *encoder, PathWorkspace *work,
                      const Block *block, count t, count at)
{
    count d = layer->d, stride = padded(d), n = p->n_inputs, k = p->n_targets, n_known = n - k, rows = at * BLOCK;
    EncoderRows seen = {work->encoder.inputs + rows * padded(encoder->width), work->encoder.gates + rows * padded(3 * d),
                        work->encoder.recalled + rows * padded(3 * d)};
    ReadOut read_out = rows_from(&work->read_out, layer, rows);
    real *embedding = work->embedding + (rows + BLOCK) * stride, *query = work->query + rows * stride;
    real *context = work->context + rows * stride;
    for (count row = 0; row < BLOCK; row++)
        see(encoder, work->inputs + ((t + 1) * BLOCK + row) * n, work->inputs + (t * BLOCK + row) * n,
            seen.inputs + row * padded(encoder->width));
    embed_block(encoder, &work->encoder_weights, &seen, work->embedding + rows * stride, embedding);
    if (p->positions)
        for (count row = 0; row < BLOCK; row++) {
            const real *position = p->positions + (block->sequence * p->steps + t) * d;
            add_scaled(embedding + row * stride, 1, position, d);
        }
    real *key = read_out.hidden, *value = read_out.gradient; /* room that is not needed yet */
    real *parts[] = {query, key, value}, *weights[] = {work->query_weight, work->key_weight, work->value_weight};
    for (int i = 0; i < 3; i++) {
        memset(parts[i], 0, BLOCK * stride * sizeof(real));
        multiply(embedding, d, weights[i], parts[i], d);
    }
    make_noise(p, work, block, t, d);
    for (count row = 0; row < BLOCK; row++) {
        count slot = (row * p->steps + t) * d;
        real *q = query + row * stride, *z = read_out.last + row * stride;
        const real *eps[4];
        noise_of(p, work, block, row, t, d, eps);
        multiply_add(q, layer->query_factor, eps[0], q, d);
        multiply_add(work->keys + slot, layer->key_factor, eps[1], key + row * stride, d);
        multiply_add(work->values + slot, layer->value_factor, eps[2], value + row * stride, d);
        keep(work, ring_of(p), row, p->n_past[block->sequence] + t, work->keys + slot, work->values + slot, d);
        multiply_add(z, layer->attention_factor, eps[3], embedding + row * stride, d);
    }
    attend_block(p, layer, work, block, t, query, context);
    multiply(context, d, work->weights.output, read_out.last, d);
    go_through_net(layer, &work->weights, &read_out, BLOCK);
    real out[layer->n_out];
    for (count row = 0; row < BLOCK; row++) {
        count path = (block->sequence * p->paths + path_of(block, row)) * p->steps + t;
        const real *last = work->inputs + ((t + 1) * BLOCK + row) * n;
        real *next = work->inputs + ((t + 2) * BLOCK + row) * n, *white = work->white + (rows + row) * k;
        for (count o = 0; o < layer->n_out; o++)
            out[o] = layer->projection_bias[o] + dot(read_out.last + row * stride, layer->projection + o * d, d);
        for (count i = 0; i < k; i++) {
            if (p->adds_last) out[i] += last[i];
            if (p->count_draws) {
                white[i] = draw_count(p, block, row, t, i, out[i], out[k + i]);
                next[i] = (real)log1p((double)white[i]);
                continue;
            }
            white[i] = dot(p->root + i * k, p->draws + path * k, i + 1);
            if (p->lowest) {
                real log_scale = out[k + i] < p->lowest[i] ? p->lowest[i] : out[k + i];
                white[i] *= (real)exp((double)(log_scale > p->highest[i] ? p->highest[i] : log_scale));
            }
            next[i] = out[i] + white[i];
        }
        memcpy(next + k, p->known + (block->sequence * p->steps + t) * n_known, n_known * sizeof(real));
        if (row < block->n_rows) {
            memcpy(p->parameters + path * p->n_parameters, out, p->n_parameters * sizeof(real));
            memcpy(p->targets + path * k, p->count_draws ? white : next, k * sizeof(real));
        }
    }
}

/* From the gradient of the paths' next inputs to that of the read-out, in read_out->out_gradient. */
static void go_back_through_draws(const Paths *p, const Layer *layer, PathWorkspace *work, const Block *block, count t)
{
    count n = p->n_inputs, k = p->n_targets, out_stride = padded(layer->n_out);
    for (count row = 0; row < block->n_rows; row++) {
        count path = (block->sequence * p->paths + block->first + row) * p->steps + t;
        const real *parameters = p->parameters + path * p->n_parameters, *white = work->white + (t * BLOCK + row) * k;
        real *x = work->input_gradient + ((t + 2) * BLOCK + row) * n, *last = x - BLOCK * n;
        real *out = work->read_out.out_gradient + (t * BLOCK + row) * out_stride, *draws = p->draws_gradient + path * k;
        memset(draws, 0, k * sizeof(real));
        for (count i = 0; i < k; i++) {
            real gradient = x[i] + p->targets_gradient[path * k + i], scale = 1;
            out[i] = gradient;
            if (p->adds_last) last[i] += gradient;
            if (p->lowest) {
                real log_scale = parameters[k + i];
                int inside = log_scale >= p->lowest[i] && log_scale <= p->highest[i];
                log_scale = log_scale < p->lowest[i] ? p->lowest[i] : log_scale;
                scale = (real)exp((double)(log_scale > p->highest[i] ? p->highest[i] : log_scale));
                out[k + i] = inside ? gradient * white[i] : 0;
            }
            add_scaled(draws, gradient * scale, p->root + i * k, i + 1);
        }
    }
}

/* From the gradient of the contexts of step t to those of its queries, and of the keys and values it attended to. */
static void go_back_through_attention(const Paths *p, const Layer *layer, PathWorkspace *work, const Block *block,
                                      const count *own_row, count t)
{
    count d = layer->d, stride = padded(d), size = d / layer->heads;
    real root = 1 / square_root(size), *shares = work->shares, *changes = work->row;
    for (count row = 0; row < block->n_rows; row++) {
        const real *query = work->query + (t * BLOCK + row) * stride;
        const real *context = work->context + (t * BLOCK + row) * stride;
        const real *gradient = work->context_gradient + row * stride;
        real *query_gradient = work->query_gradient + (t * BLOCK + row) * stride;
        count path = block->sequence * p->paths + block->first + row;
        Slots stretches[2];
        int n_stretches = visible(p, work, block, own_row, row, t, d, stretches);
        for (count offset = 0; offset < d; offset += size) {
            real top = -INFINITY, total = 0, along = dot(gradient + offset, context + offset, size);
            count n = 0;
            for (const Slots *from = stretches; from < stretches + n_stretches; from++)
                for (count s = from->first; s < from->last; s++) {
                    count slot = (from->trajectory[s] * from->capacity + s) * d + offset;
                    real score = root * dot(query + offset, from->keys + slot, size);
                    changes[n] = dot(gradient + offset, from->values + slot, size);
                    shares[n++] = score;
                    top = score > top ? score : top;
                }
            for (count i = 0; i < n; i++) {
                shares[i] = exp_negative(shares[i] - top);
                total += shares[i];
            }
            for (count i = 0; i < n; i++) {
                shares[i] /= total;
                changes[i] = root * shares[i] * (changes[i] - along);
            }
            n = 0;
            for (const Slots *from = stretches; from < stretches + n_stretches; from++)
                for (count s = from->first; s < from->last; s++, n++) {
                    count slot = (from->trajectory[s] * from->capacity + s) * d + offset;
                    real *key, *value;
                    if (from == stretches) {
                        key = work->key_gradient + (s * BLOCK + row) * stride + offset;
                        value = work->value_gradient + (s * BLOCK + row) * stride + offset;
                    } else {
                        key = p->past_keys_gradient + (path * p->past_slots + s) * d + offset;
                        value = p->past_values_gradient + (path * p->past_slots + s) * d + offset;
                    }
                    add_scaled(query_gradient + offset, changes[n], from->keys + slot, size);
                    add_scaled(key, changes[n], query + offset, size);
                    add_scaled(value, shares[n], gradient + offset, size);
                }
        }
    }
}

/* From the gradient of the embeddings of step t to those of its inputs, and of the state before it, in work->carried. */
static void go_back_through_encoder(const Paths *p, const Encoder *encoder, PathWorkspace *work, const Block *block,
                                    count t)
{
    count d = encoder->d, stride = padded(d), wide = padded(3 * d), width = padded(encoder->width), n = p->n_inputs;
    real *seen = work->seen_gradient, *gates = work->gates_gradient + t * BLOCK * padded(n_gates(encoder));
    memset(seen, 0, BLOCK * width * sizeof(real));
    if (encoder->recurrent) {
        real *recalled = work->recalled_gradient + t * BLOCK * wide;
        for (count row = 0; row < BLOCK; row++) {
            const real *gate = work->encoder.gates + (t * BLOCK + row) * wide;
            const real *before = work->encoder.recalled + (t * BLOCK + row) * wide;
            const real *h = work->embedding + (t * BLOCK + row) * stride;
            go_back_through_gates(d, gate, before, h, work->embedding_gradient + row * stride, gates + row * wide,
                                  recalled + row * wide, work->carried + row * stride);
        }
        multiply(recalled, 3 * d, work->recurrent_as_is, work->carried, d);
        multiply(gates, 3 * d, work->weight_as_is, seen, encoder->width);
    } else {
        memset(work->carried, 0, BLOCK * stride * sizeof(real));
        for (count row = 0; row < BLOCK; row++)
            memcpy(gates + row * stride, work->embedding_gradient + row * stride, stride * sizeof(real));
        multiply(gates, d, work->weight_as_is, seen, encoder->width);
    }
    for (count row = 0; row < block->n_rows; row++) {
        const real *g = seen + row * width, *x = work->inputs + ((t + 1) * BLOCK + row) * n, *previous = x - BLOCK * n;
        real *at = work->input_gradient + ((t + 1) * BLOCK + row) * n, *before = at - BLOCK * n;
        for (count i = 0; i < n; i++) {
            if (!encoder->level_scale) {
                at[i] += g[i];
                continue;
            }
            real change = (x[i] - previous[i]) / encoder->change_scale[i];
            real slope = g[n + i] / (encoder->change_scale[i] * square_root(1 + change * change));
            at[i] += g[i] / encoder->level_scale[i] + slope;
            before[i] -= slope;
        }
    }
}

static void go_back(const Paths *p, const Layer *layer, const Encoder *encoder, PathWorkspace *work,
                    const Block *block, const count *own_row, PathSums *sums)
{
    count d = layer->d, stride = padded(d), T = p->steps, rows = T * BLOCK;
    memset(work->input_gradient, 0, (2 + T) * BLOCK * p->n_inputs * sizeof(real));
    memset(work->query_gradient, 0, rows * stride * sizeof(real));
    memset(work->key_gradient, 0, rows * stride * sizeof(real));
    memset(work->value_gradient, 0, rows * stride * sizeof(real));
    memset(work->read_out.out_gradient, 0, rows * padded(layer->n_out) * sizeof(real)); /* no path beyond the last */
    memset(work->carried, 0, BLOCK * stride * sizeof(real));
    for (count t = T - 1; t >= 0; t--) {
        ReadOut read_out = rows_from(&work->read_out, layer, t * BLOCK);
        real *query = work->query_gradient + t * BLOCK * stride, *key = work->key_gradient + t * BLOCK * stride;
        real *value = work->value_gradient + t * BLOCK * stride, *embedding = work->embedding_gradient;
        go_back_through_draws(p, layer, work, block, t);
        go_back_through_net(layer, &work->weights, &read_out, BLOCK, &sums->layer);
        memset(work->context_gradient, 0, BLOCK * stride * sizeof(real));
        multiply(read_out.gradient, d, work->weights.output_as_is, work->context_gradient, d);
        go_back_through_attention(p, layer, work, block, own_row, t);
        /* e is seen by the read-out, by q, k and v, and by the GRU's next step. */
        memcpy(embedding, read_out.gradient, BLOCK * stride * sizeof(real));
        for (count row = 0; row < BLOCK; row++) add_scaled(embedding + row * stride, 1, work->carried + row * stride, d);
        multiply(query, d, work->query_as_is, embedding, d);
        multiply(key, d, work->key_as_is, embedding, d);
        multiply(value, d, work->value_as_is, embedding, d);
        for (count row = 0; row < block->n_rows; row++) {
            count noise = place(&p->noise_strides, block->sequence, block->first + row, t);
            Sums *of = &sums->layer;
            multiply_add(of->query_factor, query + row * stride, p->query_noise + noise, of->query_factor, d);
            multiply_add(of->key_factor, key + row * stride, p->key_noise + noise, of->key_factor, d);
            multiply_add(of->value_factor, value + row * stride, p->value_noise + noise, of->value_factor, d);
            multiply_add(of->attention_factor, read_out.gradient + row * stride, p->attention_noise + noise,
                         of->attention_factor, d);
        }
        go_back_through_encoder(p, encoder, work, block, t);
    }
    if (p->hidden)
        for (count row = 0; row < block->n_rows; row++)
            memcpy(p->hidden_gradient + (block->sequence * p->paths + block->first + row) * d,
                   work->carried + row * stride, d * sizeof(real));
    const real *embedding = work->embedding + BLOCK * stride;
    count gates = n_gates(encoder);
    add_weights(layer, &work->read_out, work->context, rows, &sums->layer);
    add_outer(work->query_gradient, d, embedding, d, rows, sums->query);
    add_outer(work->key_gradient, d, embedding, d, rows, sums->key);
    add_outer(work->value_gradient, d, embedding, d, rows, sums->value);
    add_outer(work->gates_gradient, gates, work->encoder.inputs, encoder->width, rows, sums->weight);
    for (count row = 0; row < rows; row++) add_scaled(sums->bias, 1, work->gates_gradient + row * padded(gates), gates);
    if (!encoder->recurrent) return;
    add_outer(work->recalled_gradient, gates, work->embedding, d, rows, sums->recurrent);
    for (count row = 0; row < rows; row++)
        add_scaled(sums->recurrent_bias, 1, work->recalled_gradient + row * padded(gates), gates);
}

typedef struct {
    Pieces pieces;
    const Paths *paths;
    const Layer *layer;
    const Encoder *encoder;
} Drawing;

/* A block of paths from the first step to the last, and back. */
static void draw_block(const Paths *p, const Layer *layer, const Encoder *encoder, PathWorkspace *work, count number,
                       const count *own_row, PathSums *sums)
{
    count blocks = (p->paths + BLOCK - 1) / BLOCK, state = BLOCK * padded(layer->d);
    Block block = {number / blocks, number % blocks * BLOCK, BLOCK};
    if (p->paths - block.first < BLOCK) block.n_rows = p->paths - block.first;
    start_block(p, work, &block, layer->d);
    for (count t = 0; t < p->steps; t++) {
        take_step(p, layer, encoder, work, &block, t, sums ? t : 0);
        if (!sums && p->hidden) /* one step is kept: what was after it is before the next */
            memcpy(work->embedding, work->embedding + state, state * sizeof(real));
    }
    if (sums) go_back(p, layer, encoder, work, &block, own_row, sums);
}

static int draw_pieces(void *job)
{
    Drawing *drawing = job;
    const Paths *p = drawing->paths;
    count blocks = (p->paths + BLOCK - 1) / BLOCK;
    PathWorkspace work;
    memset(&work, 0, sizeof work);
    count *own_row = calloc(p->steps, sizeof(count)); /* a path's own slots are all in its own row */
    int ready = prepare_paths(&work, p, drawing->layer, drawing->encoder, p->sums != NULL) && own_row;
    for (count piece; ready && (piece = take(&drawing->pieces)) >= 0;) {
        if (!p->sums) { /* a piece is a block of paths, or with gradients a group of sequences, whose sums are one */
            draw_block(p, drawing->layer, drawing->encoder, &work, piece, own_row, NULL);
            continue;
        }
        PathSums sums;
        place_path_sums(&sums, drawing->layer, drawing->encoder, p->sums + piece * p->n_sums);
        count first = p->batch * piece / p->groups * blocks, last = p->batch * (piece + 1) / p->groups * blocks;
        for (count number = first; number < last; number++)
            draw_block(p, drawing->layer, drawing->encoder, &work, number, own_row, &sums);
    }
    free_all((real **)&work, N_PARTS);
    free(own_row);
    return !ready;
}

/* Draws paths; with p->sums also goes back through them. Returns 0, or 1 when there was not enough memory. */
int draw_paths(const Paths *p, const Layer *layer, const Encoder *encoder, int n_threads)
{
    count blocks = (p->paths + BLOCK - 1) / BLOCK;
    Drawing job = {{0, p->sums ? p->groups : p->batch * blocks}, p, layer, encoder};
    return work_together(draw_pieces, &job, n_threads);
}
