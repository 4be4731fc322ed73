/* Going forward and back through the read-out of many rows: the steps of a trajectory, or paths side by side.

   Matrices have a row for each of them, padded to whole vectors, and rows are padded to whole blocks. Gradients of
   weights are sums over all rows, and are added up at the end, when all rows have been through. */

#ifndef SMC_TRANSFORMER_GRADIENT_H
#define SMC_TRANSFORMER_GRADIENT_H

#include "layer.h"

/* Gradients of a layer's parameters, one after the other in memory, weights with padded rows. */
typedef struct {
    real *query_factor, *key_factor, *value_factor, *attention_factor;       /* padded(d) each */
    real *output;                                                            /* padded(d) x padded(d) */
    real *gain_1, *bias_1, *inner, *inner_bias, *outer, *outer_bias, *gain_2, *bias_2;
    real *projection, *projection_bias;
} Sums;

/* Lays the sums out in memory (NULL: nowhere); returns how many numbers they are. */
SHARED count place_sums(Sums *sums, const Layer *layer, real *memory)
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

/* Weights (n_out, n_in) as they are, with padded rows: for products with gradients. */
SHARED real *with_padding(const real *weight, count n_out, count n_in)
{
    real *result = scratch(padded(n_out) * padded(n_in));
    if (result)
        for (count o = 0; o < n_out; o++) memcpy(result + o * padded(n_in), weight + o * n_in, n_in * sizeof(real));
    return result;
}

/* sums += gradient^T x over rows: the gradient of a weight (n_out, n_in). */
SHARED void add_outer(const real *restrict gradient, count n_out, const real *restrict x, count n_in, count n_rows,
                      real *restrict sums)
{
    count g_stride = padded(n_out), x_stride = padded(n_in);
    for (count o = 0; o < n_out; o += 8) /* rows of sums are padded to whole eights, in double too */
        for (count first = 0; first < n_in; first += LANES) {
            real *target = sums + o * x_stride + first;
            vector parts[8];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) parts[i] = load(target + i * x_stride);
            for (count row = 0; row < n_rows; row++) {
                vector part = load(x + row * x_stride + first);
                const real *g = gradient + row * g_stride + o;
#pragma GCC unroll 8
                for (int i = 0; i < 8; i++) parts[i] += g[i] * part;
            }
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) store(target + i * x_stride, parts[i]);
        }
}

/* out += x weight for all rows. */
SHARED void multiply_rows(const real *x, count n_in, const real *weight, real *out, count n_out, count n_rows)
{
    for (count row = 0; row < n_rows; row += BLOCK)
        multiply(x + row * padded(n_in), n_in, weight, out + row * padded(n_out), n_out);
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

/* Weights of the layer: transposed for going forward, as they are for going back. */
typedef struct {
    real *output, *inner, *outer, *output_as_is, *inner_as_is, *outer_as_is, *projection_as_is;
} Weights;

/* What the read-out leaves of each row for going back, and the gradients on the way. */
typedef struct {
    real *last; /* z + e at first, and in the end what the projection sees */
    real *hidden, *middle, *standard_1, *standard_2, *scale_1, *scale_2;
    real *out_gradient, *second_gradient, *middle_gradient, *gradient; /* gradient: that of z + e */
} ReadOut;

enum { N_WEIGHTS = sizeof(Weights) / sizeof(real *), N_MATRICES = sizeof(ReadOut) / sizeof(real *) };

SHARED void prepare_weights(Weights *weights, const Layer *layer)
{
    count d = layer->d, d_ff = layer->d_ff;
    weights->output = transposed(layer->output, d, d);
    weights->output_as_is = with_padding(layer->output, d, d);
    weights->inner = layer->inner ? transposed(layer->inner, d_ff, d) : scratch(1);
    weights->outer = layer->inner ? transposed(layer->outer, d, d_ff) : scratch(1);
    weights->inner_as_is = layer->inner ? with_padding(layer->inner, d_ff, d) : scratch(1);
    weights->outer_as_is = layer->inner ? with_padding(layer->outer, d, d_ff) : scratch(1);
    weights->projection_as_is = with_padding(layer->projection, layer->n_out, d);
}

SHARED void prepare_read_out(ReadOut *rows, const Layer *layer, count n_rows)
{
    count d_ff = layer->inner ? layer->d_ff : 1, whole = (n_rows + BLOCK - 1) / BLOCK * BLOCK;
    real **matrices[] = {&rows->last, &rows->hidden, &rows->standard_1, &rows->standard_2, &rows->second_gradient,
                         &rows->gradient};
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) *matrices[i] = scratch(whole * padded(layer->d));
    rows->middle = scratch(whole * padded(d_ff));
    rows->middle_gradient = scratch(whole * padded(d_ff));
    rows->out_gradient = scratch(whole * padded(layer->n_out));
    rows->scale_1 = scratch(whole);
    rows->scale_2 = scratch(whole);
}

/* The same rows from `first` on. */
SHARED ReadOut rows_from(const ReadOut *rows, const Layer *layer, count first)
{
    count d = first * padded(layer->d), wide = layer->inner ? first * padded(layer->d_ff) : 0;
    return (ReadOut){
        .last = rows->last + d, .hidden = rows->hidden + d, .middle = rows->middle + wide,
        .standard_1 = rows->standard_1 + d, .standard_2 = rows->standard_2 + d,
        .scale_1 = rows->scale_1 + first, .scale_2 = rows->scale_2 + first,
        .out_gradient = rows->out_gradient + first * padded(layer->n_out),
        .second_gradient = rows->second_gradient + d, .middle_gradient = rows->middle_gradient + wide,
        .gradient = rows->gradient + d,
    };
}

/* h = LN(z + e), y = LN(h + FFN(h)): from z + e in rows->last to y, in its place. */
SHARED void go_through_net(const Layer *layer, const Weights *weights, ReadOut *rows, count n_rows)
{
    count d = layer->d, stride = padded(d), wide = padded(layer->d_ff);
    if (!layer->inner) return; /* the projection sees z + e itself */
    for (count row = 0; row < n_rows; row++) {
        real *standard = rows->standard_1 + row * stride, *hidden = rows->hidden + row * stride;
        real *last = rows->last + row * stride;
        rows->scale_1[row] = standardise(last, standard, d, (real)layer->epsilon_1);
        multiply_add(hidden, layer->gain_1, standard, layer->bias_1, d);
        memcpy(last, hidden, d * sizeof(real));
        add_scaled(last, 1, layer->outer_bias, d);
        memcpy(rows->middle + row * wide, layer->inner_bias, layer->d_ff * sizeof(real));
    }
    multiply_rows(rows->hidden, d, weights->inner, rows->middle, layer->d_ff, n_rows);
    for (count i = 0; i < n_rows * wide; i++) rows->middle[i] = rows->middle[i] < 0 ? 0 : rows->middle[i];
    multiply_rows(rows->middle, layer->d_ff, weights->outer, rows->last, d, n_rows);
    for (count row = 0; row < n_rows; row++) {
        real *standard = rows->standard_2 + row * stride, *last = rows->last + row * stride;
        rows->scale_2[row] = standardise(last, standard, d, (real)layer->epsilon_2);
        multiply_add(last, layer->gain_2, standard, layer->bias_2, d);
    }
}

/* From the gradient of the read-out, in rows->out_gradient, to that of z + e; adds up those of biases and gains. */
SHARED void go_back_through_net(const Layer *layer, const Weights *weights, ReadOut *rows, count n_rows, Sums *sums)
{
    count d = layer->d, d_ff = layer->d_ff, stride = padded(d), wide = padded(d_ff), n_out = layer->n_out;
    real *last = layer->inner ? rows->second_gradient : rows->gradient; /* that of what the projection sees */
    memset(last, 0, n_rows * stride * sizeof(real));
    for (count row = 0; row < n_rows; row++)
        add_scaled(sums->projection_bias, 1, rows->out_gradient + row * padded(n_out), n_out);
    multiply_rows(rows->out_gradient, n_out, weights->projection_as_is, last, d, n_rows);
    if (!layer->inner) return;
    memset(rows->middle_gradient, 0, n_rows * wide * sizeof(real));
    for (count row = 0; row < n_rows; row++) {
        real *gradient = last + row * stride;
        standardise_backward(gradient, rows->standard_2 + row * stride, rows->scale_2[row], layer->gain_2, d,
                             sums->gain_2, sums->bias_2);
        add_scaled(sums->outer_bias, 1, gradient, d);
    }
    memcpy(rows->gradient, last, n_rows * stride * sizeof(real));
    multiply_rows(last, d, weights->outer_as_is, rows->middle_gradient, d_ff, n_rows);
    for (count row = 0; row < n_rows; row++) {
        real *gradient = rows->middle_gradient + row * wide;
        for (count i = 0; i < d_ff; i++) gradient[i] = rows->middle[row * wide + i] > 0 ? gradient[i] : 0;
        add_scaled(sums->inner_bias, 1, gradient, d_ff);
    }
    multiply_rows(rows->middle_gradient, d_ff, weights->inner_as_is, rows->gradient, d, n_rows);
    for (count row = 0; row < n_rows; row++)
        standardise_backward(rows->gradient + row * stride, rows->standard_1 + row * stride, rows->scale_1[row],
                             layer->gain_1, d, sums->gain_1, sums->bias_1);
}

/* The gradients of the read-out's weights, and of Wo, whose inputs are the contexts. */
SHARED void add_weights(const Layer *layer, const ReadOut *rows, const real *context, count n_rows, Sums *sums)
{
    count d = layer->d, d_ff = layer->d_ff;
    add_outer(rows->out_gradient, layer->n_out, rows->last, d, n_rows, sums->projection);
    add_outer(rows->gradient, d, context, d, n_rows, sums->output);
    if (!layer->inner) return;
    add_outer(rows->second_gradient, d, rows->middle, d_ff, n_rows, sums->outer);
    add_outer(rows->middle_gradient, d_ff, rows->hidden, d, n_rows, sums->inner);
}

SHARED int all_there(real **parts, int n)
{
    for (int i = 0; i < n; i++)
        if (!parts[i]) return 0;
    return 1;
}

SHARED void free_all(real **parts, int n)
{
    for (int i = 0; i < n; i++) free(parts[i]);
}

#endif
