/* The stochastic attention and the read-out of a block of particles, whose numbers stay in the first-level cache. */

#ifndef SMC_TRANSFORMER_LAYER_H
#define SMC_TRANSFORMER_LAYER_H

#include "common.h"

/* A model's parameters, laid out as torch has them: weights are (n_out, n_in). Mirrored by `Layer` in structures.py. */
typedef struct {
    count d, heads, d_ff, n_out;
    const real *query_factor, *key_factor, *value_factor, *attention_factor; /* (d): scales of the noises */
    const real *output;                                                      /* Wo (d, d) */
    const real *gain_1, *bias_1, *inner, *inner_bias, *outer, *outer_bias, *gain_2, *bias_2; /* NULL: linear */
    const real *projection, *projection_bias;
    double epsilon_1, epsilon_2;
} Layer;

/* What one thread needs: weights transposed to (n_in, padded n_out), and blocks of rows. */
typedef struct {
    real *output, *inner, *outer, *query, *context, *z, *hidden, *middle, *shares;
} Workspace;

SHARED real *transposed(const real *weight, count n_out, count n_in)
{
    count stride = padded(n_out);
    real *result = scratch(n_in * stride);
    if (result)
        for (count i = 0; i < n_in; i++)
            for (count o = 0; o < n_out; o++) result[i * stride + o] = weight[o * n_in + i];
    return result;
}

SHARED void release(Workspace *work)
{
    real *parts[] = {work->output, work->inner, work->outer, work->query, work->context,
                     work->z, work->hidden, work->middle, work->shares};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Returns whether there was memory for all of it. */
SHARED int prepare(Workspace *work, const Layer *layer, count n_slots)
{
    count d = layer->d, wide = layer->inner ? layer->d_ff : 1;
    work->output = transposed(layer->output, d, d);
    work->inner = layer->inner ? transposed(layer->inner, wide, d) : scratch(1);
    work->outer = layer->inner ? transposed(layer->outer, d, wide) : scratch(1);
    work->query = scratch(d);
    work->context = scratch(BLOCK * padded(d));
    work->z = scratch(BLOCK * padded(d));
    work->hidden = scratch(BLOCK * padded(d));
    work->middle = scratch(BLOCK * padded(wide));
    work->shares = scratch(n_slots);
    return work->output && work->inner && work->outer && work->query && work->context && work->z && work->hidden
        && work->middle && work->shares;
}

/* out += x weight for a block of rows, all of them by one vector of outputs at a time. */
SHARED void multiply(const real *restrict x, count n_in, const real *restrict weight, real *restrict out, count n_out)
{
    count stride = padded(n_out), x_stride = padded(n_in);
    for (count first = 0; first < n_out; first += LANES) {
        vector sums[BLOCK];
#pragma GCC unroll 8
        for (int row = 0; row < BLOCK; row++) sums[row] = load(out + row * stride + first);
        for (count i = 0; i < n_in; i++) {
            vector column = load(weight + i * stride + first);
#pragma GCC unroll 8
            for (int row = 0; row < BLOCK; row++) sums[row] += x[row * x_stride + i] * column;
        }
#pragma GCC unroll 8
        for (int row = 0; row < BLOCK; row++) store(out + row * stride + first, sums[row]);
    }
}

/* The same for a few rows, their number and that of the vectors of outputs at a time known to the compiler. */
static inline __attribute__((always_inline)) void multiply_stripe(const real *restrict x, count n_in,
                                                                  const real *restrict weight, real *restrict out,
                                                                  count stride, const int n_rows, const int n_vectors)
{
    vector sums[BLOCK][2];
    count x_stride = padded(n_in);
    for (int row = 0; row < n_rows; row++)
        for (int v = 0; v < n_vectors; v++) sums[row][v] = load(out + row * stride + v * LANES);
    for (count i = 0; i < n_in; i++) {
        vector columns[2];
        for (int v = 0; v < n_vectors; v++) columns[v] = load(weight + i * stride + v * LANES);
        for (int row = 0; row < n_rows; row++)
            for (int v = 0; v < n_vectors; v++) sums[row][v] += x[row * x_stride + i] * columns[v];
    }
    for (int row = 0; row < n_rows; row++)
        for (int v = 0; v < n_vectors; v++) store(out + row * stride + v * LANES, sums[row][v]);
}

static inline __attribute__((always_inline)) void multiply_few(const real *restrict x, count n_in,
                                                               const real *restrict weight, real *restrict out,
                                                               count n_out, const int n_rows)
{
    count stride = padded(n_out), first = 0;
    /* Two vectors at a time: a few rows alone are too few sums to hide how long each addition takes. */
    for (; first + LANES < n_out; first += 2 * LANES)
        multiply_stripe(x, n_in, weight + first, out + first, stride, n_rows, 2);
    for (; first < n_out; first += LANES)
        multiply_stripe(x, n_in, weight + first, out + first, stride, n_rows, 1);
}

/* out += x weight for the first rows of a block, with the numbers that `multiply` gives them. */
SHARED void multiply_some(const real *x, count n_in, const real *weight, real *out, count n_out, count n_rows)
{
    switch (n_rows) {
    case 1: multiply_few(x, n_in, weight, out, n_out, 1); return;
    case 2: multiply_few(x, n_in, weight, out, n_out, 2); return;
    case 3: multiply_few(x, n_in, weight, out, n_out, 3); return;
    case 4: multiply_few(x, n_in, weight, out, n_out, 4); return;
    case 5: multiply_few(x, n_in, weight, out, n_out, 5); return;
    case 6: multiply_few(x, n_in, weight, out, n_out, 6); return;
    case 7: multiply_few(x, n_in, weight, out, n_out, 7); return;
    default: multiply(x, n_in, weight, out, n_out);
    }
}

/* How many of n rows are a block, so that blocks are as even as they can be: 10 rows are 5 and 5, not 8 and 2. */
static inline count even_block(count n)
{
    count n_blocks = (n + BLOCK - 1) / BLOCK;
    return n_blocks > 0 ? (n + n_blocks - 1) / n_blocks : BLOCK;
}

/* Slots first, ..., last - 1 of one line: keys and values (particles, capacity, d) are those of all particles of the
   sequence, and trajectory[s] is the particle that owns slot s. */
typedef struct {
    const real *keys, *values;
    const count *trajectory;
    count first, last, capacity;
} Slots;

static inline const real *key_of(const Slots *from, count s, count d)
{
    return from->keys + (from->trajectory[s] * from->capacity + s) * d;
}

static inline const real *value_of(const Slots *from, count s, count d)
{
    return from->values + (from->trajectory[s] * from->capacity + s) * d;
}

/* One or two vectors of a context, from `first` on: the mean of values by their shares. The sums stay in registers; in
   memory each addition would wait until the one before is stored. */
static inline void mix_values(const Slots *stretches, int n_stretches, const real *restrict shares, real total, count d,
                              count first, const int n_vectors, real *restrict context)
{
    vector sums[2] = {{0}, {0}};
    for (const Slots *from = stretches; from < stretches + n_stretches; from++)
        for (count s = from->first; s < from->last; s++, shares++)
            for (int i = 0; i < n_vectors; i++) sums[i] += *shares * load(value_of(from, s, d) + first + i * LANES);
    for (int i = 0; i < n_vectors; i++) store(context + first + i * LANES, sums[i] / total);
}

/* The context of one query over one or more stretches of slots: sum of softmax(q . k / sqrt(r)) v, head by head. */
static inline void attend(const real *restrict query, const Slots *stretches, int n_stretches, const Layer *layer,
                          real *restrict shares, real *restrict context)
{
    count d = layer->d, size = d / layer->heads;
    real root = 1 / square_root(size);
    for (count offset = 0; offset < d; offset += size) {
        real top = -INFINITY, total = 0;
        count n = 0;
        for (const Slots *from = stretches; from < stretches + n_stretches; from++)
            for (count s = from->first; s < from->last; s++) {
                real score = root * dot(query + offset, key_of(from, s, d) + offset, size);
                shares[n++] = score;
                top = score > top ? score : top;
            }
        for (count i = 0; i < n; i++) {
            shares[i] = exp_negative(shares[i] - top);
            total += shares[i];
        }
        count i = 0;
        for (; i + 2 * LANES <= size; i += 2 * LANES)
            mix_values(stretches, n_stretches, shares, total, d, offset + i, 2, context);
        for (; i + LANES <= size; i += LANES)
            mix_values(stretches, n_stretches, shares, total, d, offset + i, 1, context);
        for (; i < size; i++) {
            real sum = 0;
            const real *share = shares;
            for (const Slots *from = stretches; from < stretches + n_stretches; from++)
                for (count s = from->first; s < from->last; s++) sum += *share++ * value_of(from, s, d)[offset + i];
            context[offset + i] = sum / total;
        }
    }
}

/* Read-out of the block's attention vectors `work->z`; embeddings by row, `embedding_stride` apart (0: shared).

   h = LN(z + e), y = LN(h + FFN(h)), out = projection y + bias; or out = projection (z + e) + bias. */
SHARED void read_out(const Layer *layer, Workspace *work, const real *embedding, count embedding_stride, count n_rows,
                     real *out, count out_stride)
{
    count d = layer->d, d_ff = layer->d_ff, stride = padded(d), wide = padded(d_ff);
    for (count row = 0; row < n_rows; row++) {
        const real *e = embedding + row * embedding_stride, *z = work->z + row * stride;
        real *hidden = work->hidden + row * stride;
        memcpy(hidden, e, d * sizeof(real));
        add_scaled(hidden, 1, z, d);
        if (!layer->inner) continue;
        standardise(hidden, hidden, d, (real)layer->epsilon_1);
        multiply_add(hidden, layer->gain_1, hidden, layer->bias_1, d);
        memcpy(work->middle + row * wide, layer->inner_bias, d_ff * sizeof(real));
    }
    if (layer->inner) {
        multiply_some(work->hidden, d, work->inner, work->middle, d_ff, n_rows);
        for (count i = 0; i < n_rows * wide; i++) work->middle[i] = work->middle[i] < 0 ? 0 : work->middle[i];
        for (count row = 0; row < n_rows; row++) add_scaled(work->hidden + row * stride, 1, layer->outer_bias, d);
        multiply_some(work->middle, d_ff, work->outer, work->hidden, d, n_rows);
    }
    for (count row = 0; row < n_rows; row++) {
        real *hidden = work->hidden + row * stride;
        if (layer->inner) {
            standardise(hidden, hidden, d, (real)layer->epsilon_2);
            multiply_add(hidden, layer->gain_2, hidden, layer->bias_2, d);
        }
        for (count o = 0; o < layer->n_out; o++)
            out[row * out_stride + o] = layer->projection_bias[o] + dot(hidden, layer->projection + o * d, d);
    }
}

#endif
