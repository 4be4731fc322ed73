/* A GRU over trees of inputs, and its gradient.

   A node is an input that one or more trajectories have in common, with all the inputs before it; its parent is the one
   before. Complete sequences are trees without branches. Nodes lie in memory by group of sequences, and in a group by
   step, so that a block of rows is a stretch of nodes of the same step. The gates are made again on the way back: that
   is quicker than fetching them from memory. */

#include "encoder.h"
#include "gradient.h"
#include "pool.h"

typedef struct {
    count groups, steps, n_sums;
    const count *levels;    /* (groups, steps + 1): where the nodes of each step begin, and where the last ones end */
    const count *parents;   /* (nodes): -1 where there is none, and the state before is zero */
    const real *inputs;     /* (nodes, width) */
    real *embedding;        /* (nodes, d): the states */
    real *gradient;         /* (nodes, d): of the embeddings; those that come from later nodes are added to it */
    real *sums;             /* (groups, n_sums), zeroed: in the order of `RecurrentSums` */
} Recurrent;

SIZE_OF(Recurrent, recurrent)

typedef struct {
    real *weight, *bias, *recurrent, *recurrent_bias;
} RecurrentSums;

static count place_recurrent_sums(RecurrentSums *sums, const Encoder *encoder, real *memory)
{
    count gates = padded(3 * encoder->d), used = 0;
    struct { real **part; count size; } parts[] = {
        {&sums->weight, gates * padded(encoder->width)}, {&sums->bias, gates},
        {&sums->recurrent, gates * padded(encoder->d)}, {&sums->recurrent_bias, gates},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].part = memory ? memory + used : NULL;
        used += parts[i].size;
    }
    return used;
}

count count_recurrent_sums(const Encoder *encoder)
{
    RecurrentSums sums;
    return place_recurrent_sums(&sums, encoder, NULL);
}

/* What one thread needs: a block of rows. */
typedef struct {
    EncoderWeights weights;
    EncoderRows rows;
    real *hidden, *embedding, *recurrent_as_is, *gates_gradient, *recalled_gradient, *carried;
} RecurrentWorkspace;

enum { N_PARTS = sizeof(RecurrentWorkspace) / sizeof(real *) };

static int prepare_recurrent(RecurrentWorkspace *work, const Encoder *encoder)
{
    count d = encoder->d, state = BLOCK * padded(d), wide = BLOCK * padded(3 * d);
    prepare_encoder(&work->weights, encoder);
    prepare_encoder_rows(&work->rows, encoder, BLOCK);
    work->hidden = scratch(state);
    work->embedding = scratch(state);
    work->recurrent_as_is = with_padding(encoder->recurrent, 3 * d, d);
    work->gates_gradient = scratch(wide);
    work->recalled_gradient = scratch(wide);
    work->carried = scratch(state);
    return all_there((real **)work, N_PARTS);
}

/* Gates and states of a stretch of nodes, at most a block, whose parents have their states. */
static void embed_nodes(const Recurrent *r, const Encoder *encoder, RecurrentWorkspace *work, count first, count n_rows)
{
    count d = encoder->d, stride = padded(d), width = padded(encoder->width);
    for (count row = 0; row < n_rows; row++) {
        count parent = r->parents[first + row];
        real *hidden = work->hidden + row * stride;
        if (parent < 0) memset(hidden, 0, d * sizeof(real));
        else memcpy(hidden, r->embedding + parent * d, d * sizeof(real));
        memcpy(work->rows.inputs + row * width, r->inputs + (first + row) * encoder->width, encoder->width * sizeof(real));
    }
    embed_some(encoder, &work->weights, &work->rows, work->hidden, work->embedding, n_rows);
}

static void go_forward(const Recurrent *r, const Encoder *encoder, RecurrentWorkspace *work, const count *levels)
{
    count d = encoder->d, stride = padded(d);
    for (count t = 0; t < r->steps; t++)
        for (count first = levels[t], size = even_block(levels[t + 1] - first); first < levels[t + 1]; first += size) {
            count n_rows = levels[t + 1] - first < size ? levels[t + 1] - first : size;
            embed_nodes(r, encoder, work, first, n_rows);
            for (count row = 0; row < n_rows; row++)
                memcpy(r->embedding + (first + row) * d, work->embedding + row * stride, d * sizeof(real));
        }
}

static void go_back(const Recurrent *r, const Encoder *encoder, RecurrentWorkspace *work, const count *levels,
                    RecurrentSums *sums)
{
    count d = encoder->d, stride = padded(d), wide = padded(3 * d);
    real *gates = work->gates_gradient, *recalled = work->recalled_gradient;
    for (count t = r->steps - 1; t >= 0; t--)
        for (count first = levels[t], size = even_block(levels[t + 1] - first); first < levels[t + 1]; first += size) {
            count n_rows = levels[t + 1] - first < size ? levels[t + 1] - first : size;
            embed_nodes(r, encoder, work, first, n_rows);
            for (count row = 0; row < n_rows; row++) {
                go_back_through_gates(d, work->rows.gates + row * wide, work->rows.recalled + row * wide,
                                      work->hidden + row * stride, r->gradient + (first + row) * d, gates + row * wide,
                                      recalled + row * wide, work->carried + row * stride);
                add_scaled(sums->bias, 1, gates + row * wide, 3 * d);
                add_scaled(sums->recurrent_bias, 1, recalled + row * wide, 3 * d);
            }
            multiply_some(recalled, 3 * d, work->recurrent_as_is, work->carried, d, n_rows);
            for (count row = 0; row < n_rows; row++) {
                count parent = r->parents[first + row];
                if (parent >= 0) add_scaled(r->gradient + parent * d, 1, work->carried + row * stride, d);
            }
            add_outer(gates, 3 * d, work->rows.inputs, encoder->width, n_rows, sums->weight);
            add_outer(recalled, 3 * d, work->hidden, d, n_rows, sums->recurrent);
        }
}

typedef struct {
    Pieces pieces;
    const Recurrent *recurrent;
    const Encoder *encoder;
} Encoding;

static int encode_groups(void *job)
{
    Encoding *encoding = job;
    const Recurrent *r = encoding->recurrent;
    RecurrentWorkspace work;
    memset(&work, 0, sizeof work);
    int ready = prepare_recurrent(&work, encoding->encoder);
    for (count group; ready && (group = take(&encoding->pieces)) >= 0;) {
        const count *levels = r->levels + group * (r->steps + 1);
        if (!r->sums) {
            go_forward(r, encoding->encoder, &work, levels);
            continue;
        }
        RecurrentSums sums;
        place_recurrent_sums(&sums, encoding->encoder, r->sums + group * r->n_sums);
        go_back(r, encoding->encoder, &work, levels, &sums);
    }
    free_all((real **)&work, N_PARTS);
    return !ready;
}

/* The states of all nodes or, with r->sums, the way back. Returns 0, or 1 when there was not enough memory. */
int encode_trees(const Recurrent *r, const Encoder *encoder, int n_threads)
{
    Encoding job = {{0, r->groups}, r, encoder};
    return work_together(encode_groups, &job, n_threads);
}
