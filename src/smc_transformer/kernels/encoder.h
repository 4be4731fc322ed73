/* The embeddings of a block of rows that see inputs of their own: a linear map or a GRU, maybe of levels and changes. */

#ifndef SMC_TRANSFORMER_ENCODER_H
#define SMC_TRANSFORMER_ENCODER_H

#include "layer.h"

/* Laid out as torch has it. Mirrored by `Encoder` in structures.py.

   The map sees u = x, or with scales u = (x / level, asinh((x - previous) / change)). A linear map gives
   e = weight u + bias; a GRU, whose state h is its embedding, has gates in the order r, z, n:

       r = s(W_r u + U_r h),  z = s(W_z u + U_z h),  n = tanh(W_n u + r * (U_n h)),  e = (1 - z) * n + z * h. */
typedef struct {
    count d, n_features, width;             /* width: how many numbers u has */
    const real *level_scale, *change_scale; /* (n_features), or NULL */
    const real *weight, *bias;              /* (d, width), (d); of a GRU (3 d, width), (3 d) */
    const real *recurrent, *recurrent_bias; /* (3 d, d), (3 d); NULL: a linear map */
} Encoder;

/* Transposed weights, and what a block of rows leaves for going back. */
typedef struct {
    real *weight, *recurrent;
} EncoderWeights;

typedef struct {
    real *inputs;  /* u, padded(width) a row */
    real *gates;   /* r, z, n, padded(3 d) a row */
    real *recalled; /* W h + b of all gates, padded(3 d) a row */
} EncoderRows;

static inline count n_gates(const Encoder *encoder) { return encoder->recurrent ? 3 * encoder->d : encoder->d; }

SHARED void prepare_encoder(EncoderWeights *weights, const Encoder *encoder)
{
    weights->weight = transposed(encoder->weight, n_gates(encoder), encoder->width);
    weights->recurrent = encoder->recurrent ? transposed(encoder->recurrent, 3 * encoder->d, encoder->d) : scratch(1);
}

SHARED void prepare_encoder_rows(EncoderRows *rows, const Encoder *encoder, count n_rows)
{
    rows->inputs = scratch(n_rows * padded(encoder->width));
    rows->gates = scratch(n_rows * padded(3 * encoder->d));
    rows->recalled = scratch(n_rows * padded(3 * encoder->d));
}

/* 1 / (1 + exp(-x)) and tanh(x) = 2 / (1 + exp(-2 x)) - 1 without branches; 87: beyond it floats are 0 and 1. */
static inline real sigmoid(real x) { return 1 / (1 + exp_negative(x < -87 ? 87 : -x)); }

static inline real hyperbolic_tangent(real x) { return 2 * sigmoid(2 * x) - 1; }

/* The inputs u of one row, from what it sees and what it saw before. */
static inline void see(const Encoder *encoder, const real *x, const real *previous, real *u)
{
    count n = encoder->n_features;
    for (count i = 0; i < n; i++) {
        if (!encoder->level_scale) {
            u[i] = x[i];
            continue;
        }
        real change = (x[i] - previous[i]) / encoder->change_scale[i];
        u[i] = x[i] / encoder->level_scale[i];
        u[n + i] = sizeof(real) == 4 ? (real)asinhf((float)change) : (real)asinh((double)change);
    }
}

/* Embeddings of some rows of a block whose inputs are in rows->inputs; `hidden` and `out` have padded(d) a row. */
SHARED void embed_some(const Encoder *encoder, const EncoderWeights *weights, EncoderRows *rows, const real *hidden,
                       real *out, count n_rows)
{
    count d = encoder->d, stride = padded(d), wide = padded(3 * d);
    if (!encoder->recurrent) {
        for (count row = 0; row < n_rows; row++) memcpy(out + row * stride, encoder->bias, d * sizeof(real));
        multiply_some(rows->inputs, encoder->width, weights->weight, out, d, n_rows);
        return;
    }
    for (count row = 0; row < n_rows; row++) {
        memcpy(rows->gates + row * wide, encoder->bias, 3 * d * sizeof(real));
        memcpy(rows->recalled + row * wide, encoder->recurrent_bias, 3 * d * sizeof(real));
    }
    multiply_some(rows->inputs, encoder->width, weights->weight, rows->gates, 3 * d, n_rows);
    multiply_some(hidden, d, weights->recurrent, rows->recalled, 3 * d, n_rows);
    for (count row = 0; row < n_rows; row++) {
        real *restrict gate = rows->gates + row * wide;
        const real *restrict recalled = rows->recalled + row * wide, *restrict h = hidden + row * stride;
        real *restrict e = out + row * stride;
        for (count i = 0; i < 2 * d; i++) gate[i] = sigmoid(gate[i] + recalled[i]);
        for (count i = 0; i < d; i++) gate[2 * d + i] = hyperbolic_tangent(gate[2 * d + i] + gate[i] * recalled[2 * d + i]);
        for (count i = 0; i < d; i++) e[i] = gate[2 * d + i] + gate[d + i] * (h[i] - gate[2 * d + i]);
    }
}

SHARED void embed_block(const Encoder *encoder, const EncoderWeights *weights, EncoderRows *rows, const real *hidden,
                        real *out)
{
    embed_some(encoder, weights, rows, hidden, out, BLOCK);
}

/* One row of a GRU: from the gradient of its embedding e to those of W u + b and U h + c of all gates, and of the state
   h before, as far as it does not come through U h. */
static inline void go_back_through_gates(count d, const real *restrict gate, const real *restrict recalled,
                                         const real *restrict h, const real *restrict e, real *restrict gates,
                                         real *restrict back, real *restrict carried)
{
    for (count i = 0; i < d; i++) {
        real r = gate[i], z = gate[d + i], candidate = gate[2 * d + i];
        real inner = e[i] * (1 - z) * (1 - candidate * candidate);
        gates[2 * d + i] = inner;
        gates[d + i] = e[i] * (h[i] - candidate) * z * (1 - z);
        gates[i] = inner * recalled[2 * d + i] * r * (1 - r);
        back[i] = gates[i];
        back[d + i] = gates[d + i];
        back[2 * d + i] = inner * r;
        carried[i] = e[i] * z;
    }
}

#endif
