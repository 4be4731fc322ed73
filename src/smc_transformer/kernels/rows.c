/* Maps of single rows: a step of an encoder, or a linear map.

   A matrix product of a library may sum in another order for another number of rows. Here a row's numbers are the same
   to the bit whatever rows are beside it. */

#include "encoder.h"
#include "pool.h"

typedef struct {
    Pieces blocks;
    const Encoder *encoder;              /* of an encoder's step, or NULL: a linear map */
    const real *x, *previous, *hidden;   /* (rows, n_features), (rows, n_features), (rows, d) */
    const real *weight, *bias;           /* of a linear map: (n_out, n_in), (n_out) or NULL */
    real *out;                           /* (rows, n_out) */
    count rows, n_in, n_out;
} Mapping;

static int map_blocks(void *job)
{
    Mapping *of = job;
    const Encoder *encoder = of->encoder;
    count stride = padded(of->n_out), width = padded(of->n_in);
    EncoderWeights weights = {NULL, NULL};
    EncoderRows rows = {NULL, NULL, NULL};
    real *out = scratch(BLOCK * stride), *hidden = scratch(BLOCK * stride);
    if (encoder) {
        prepare_encoder(&weights, encoder);
        prepare_encoder_rows(&rows, encoder, BLOCK);
    } else {
        weights.weight = transposed(of->weight, of->n_out, of->n_in);
        rows.inputs = scratch(BLOCK * width);
    }
    int ready = out && hidden && weights.weight && rows.inputs && (!encoder || (weights.recurrent && rows.gates && rows.recalled));
    for (count block; ready && (block = take(&of->blocks)) >= 0;) {
        count start = block * BLOCK, n_rows = of->rows - start < BLOCK ? of->rows - start : BLOCK;
        for (count row = 0; row < n_rows; row++) {
            count r = start + row;
            real *u = rows.inputs + row * width;
            if (encoder) {
                count n = encoder->n_features;
                see(encoder, of->x + r * n, of->previous ? of->previous + r * n : NULL, u);
                if (of->hidden) memcpy(hidden + row * stride, of->hidden + r * of->n_out, of->n_out * sizeof(real));
            } else {
                memcpy(u, of->x + r * of->n_in, of->n_in * sizeof(real));
                memset(out + row * stride, 0, stride * sizeof(real));
                if (of->bias) memcpy(out + row * stride, of->bias, of->n_out * sizeof(real));
            }
        }
        if (encoder) embed_block(encoder, &weights, &rows, hidden, out);
        else multiply(rows.inputs, of->n_in, weights.weight, out, of->n_out);
        for (count row = 0; row < n_rows; row++)
            memcpy(of->out + (start + row) * of->n_out, out + row * stride, of->n_out * sizeof(real));
    }
    free(out); free(hidden); free(weights.weight); free(weights.recurrent);
    free(rows.inputs); free(rows.gates); free(rows.recalled);
    return !ready;
}

/* The next embeddings: `previous` are the inputs before x, for an encoder that sees changes, `hidden` the states of a
   GRU. Returns 0, or 1 when there was not enough memory. */
int embed_rows(const Encoder *encoder, const real *x, const real *previous, const real *hidden, real *out, count rows,
               int n_threads)
{
    Mapping job = {{0, (rows + BLOCK - 1) / BLOCK}, encoder, x, previous, hidden, NULL, NULL, out, rows,
                   encoder->width, encoder->d};
    return work_together(map_blocks, &job, n_threads);
}

/* out = weight x + bias of each row. Returns 0, or 1 when there was not enough memory. */
int map_rows(const real *weight, const real *bias, const real *x, real *out, count rows, count n_in, count n_out,
             int n_threads)
{
    Mapping job = {{0, (rows + BLOCK - 1) / BLOCK}, NULL, x, NULL, NULL, weight, bias, out, rows, n_in, n_out};
    return work_together(map_blocks, &job, n_threads);
}
