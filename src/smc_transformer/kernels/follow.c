/* One row of each of many series: select, draw the noise, move, judge the row before it is seen, weigh by it.

   The steps are those of filter.c and step.c, in one call, as for one series the calls themselves would take most of the
   time. Random numbers come from the stream of each series. What a series gets does not depend on those beside it. */

#include "encoder.h"
#include "noise.h"
#include "pool.h"
#include "student.h"
#include "view.h"
#include "weights.h"

typedef struct {
    count batch, particles, owners; /* owners: 1 where particles share their inputs, else particles */
    count capacity, window;         /* of slots; window 0: all of them are attended to */
    count n_inputs, n_targets, n_parameters, adds_last; /* adds_last: the last targets are added to the locations */
    count scheme;                /* as SCHEMES in filter.py */
    double ess_threshold;
    uint32_t selection, noise;   /* the numbers of the draws */
    const uint64_t *stream_keys; /* (batch) */
    const count *position;       /* (batch): steps taken, which tell the random numbers of this one */
    const count *n_slots;        /* (batch): slots written so far, those of a ring that were written over included */
    real *last;                  /* (batch, owners, n_inputs): targets of the last row, and what is known of this one */
    real *previous, *hidden;     /* (batch, owners, n_inputs or d): the encoder's state, or NULL; written */
    real *keys, *values;         /* (batch, particles, capacity, d), or those of more series; one slot is written */
    const count *held;           /* (batch): where those of each series are among them, or NULL: in their order */
    count *trajectories;         /* (batch, particles, capacity): written */
    real *log_weights;           /* (batch, particles): after the last row; written, before this one */
    uint8_t *informed;           /* (batch): whether these have changed since the last selection; written */
    uint8_t *resampled;          /* (batch): written */
    const real *query, *key, *value; /* (d, d): Wq, Wk, Wv */
    real *parameters;            /* (batch, particles, n_parameters): written */
    const real *targets;         /* (batch, n_targets): the row, NaN where it is missing; NULL: it is not judged */
    real *log_density, *pit;     /* (batch, n_targets): of each target alone; written */
    const real *root, *lowest, *highest; /* as in `Contours` */
    double constant, degrees;
} Follow;

SIZE_OF(Follow, follow)

typedef struct {
    Workspace layer;
    EncoderWeights encoder;
    EncoderRows rows;
    real *query_weight, *key_weight, *value_weight;                      /* transposed */
    real *before, *embedding, *query_mean, *key_mean, *value_mean;       /* (block, padded d) */
    real *noise;     /* (4, particles, d) */
    real *inherited; /* (particles, the widest of a particle's rows) */
    double *mass, *cumulative, *uniforms;
    count *parents, *lines;
} FollowWorkspace;

static int prepare_follow(FollowWorkspace *work, const Follow *f, const Layer *layer, const Encoder *encoder)
{
    count d = layer->d, block = BLOCK * padded(d), M = f->particles, wide = f->n_inputs > d ? f->n_inputs : d;
    int ready = prepare(&work->layer, layer, f->capacity);
    prepare_encoder(&work->encoder, encoder);
    prepare_encoder_rows(&work->rows, encoder, BLOCK);
    work->query_weight = transposed(f->query, d, d);
    work->key_weight = transposed(f->key, d, d);
    work->value_weight = transposed(f->value, d, d);
    real **blocks[] = {&work->before, &work->embedding, &work->query_mean, &work->key_mean, &work->value_mean};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) *blocks[i] = scratch(block);
    work->noise = scratch(4 * M * d);
    work->inherited = scratch(M * wide);
    work->mass = malloc((size_t)M * sizeof(double));
    work->cumulative = malloc((size_t)M * sizeof(double));
    work->uniforms = malloc((size_t)M * sizeof(double));
    work->parents = malloc((size_t)M * sizeof(count));
    work->lines = malloc((size_t)(M * f->capacity) * sizeof(count));
    void *parts[] = {work->encoder.weight, work->encoder.recurrent, work->rows.inputs, work->rows.gates,
                     work->rows.recalled, work->query_weight, work->key_weight, work->value_weight, work->before,
                     work->embedding, work->query_mean, work->key_mean, work->value_mean, work->noise, work->inherited,
                     work->mass, work->cumulative, work->uniforms, work->parents, work->lines};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) ready = ready && parts[i];
    return ready;
}

static void release_follow(FollowWorkspace *work)
{
    release(&work->layer);
    void *parts[] = {work->encoder.weight, work->encoder.recurrent, work->rows.inputs, work->rows.gates,
                     work->rows.recalled, work->query_weight, work->key_weight, work->value_weight, work->before,
                     work->embedding, work->query_mean, work->key_mean, work->value_mean, work->noise, work->inherited,
                     work->mass, work->cumulative, work->uniforms, work->parents, work->lines};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Children take over rows of n numbers from their parents. */
static void inherit_rows(real *rows, count n, const FollowWorkspace *work, count particles)
{
    memcpy(work->inherited, rows, particles * n * sizeof(real));
    for (count m = 0; m < particles; m++)
        memcpy(rows + m * n, work->inherited + work->parents[m] * n, n * sizeof(real));
}

/* Select: parents, and what their children inherit. Numbers are drawn from a stream, so none are where none are needed. */
static void select_parents(const Follow *f, FollowWorkspace *work, count sequence, count d)
{
    count M = f->particles, capacity = f->capacity, n_slots = f->n_slots[sequence];
    real *log_weights = f->log_weights + sequence * M;
    f->resampled[sequence] = f->ess_threshold > 0 && f->informed[sequence] && are_unequal(log_weights, M, f->ess_threshold);
    if (!f->resampled[sequence]) return;
    Stream stream = stream_of(f->stream_keys[sequence], (uint64_t)f->position[sequence], f->selection);
    uniform_numbers(work->uniforms, f->scheme == SYSTEMATIC ? 1 : M, stream);
    resample(log_weights, M, work->uniforms, f->scheme, work->mass, work->cumulative, work->parents);
    f->informed[sequence] = 0;
    for (count m = 0; m < M; m++) log_weights[m] = (real)-log((double)M);
    count *lines = f->trajectories + sequence * M * capacity, written = n_slots < capacity ? n_slots : capacity;
    for (count m = 0; m < M; m++)
        memcpy(work->lines + m * written, lines + work->parents[m] * capacity, written * sizeof(count));
    for (count m = 0; m < M; m++) memcpy(lines + m * capacity, work->lines + m * written, written * sizeof(count));
    if (f->owners == 1) return;
    inherit_rows(f->last + sequence * M * f->n_inputs, f->n_inputs, work, M);
    if (f->previous) inherit_rows(f->previous + sequence * M * f->n_inputs, f->n_inputs, work, M);
    if (f->hidden) inherit_rows(f->hidden + sequence * M * d, d, work, M);
}

/* Embeddings and means of a block of owners, and the encoder's state after them. */
static void embed_owners(const Follow *f, const Encoder *encoder, FollowWorkspace *work, count start, count n_rows)
{
    count d = encoder->d, stride = padded(d), n = f->n_inputs;
    for (count row = 0; row < n_rows; row++) {
        count r = start + row;
        const real *last = f->last + r * n;
        /* Nothing has changed yet at the first input. */
        const real *previous = f->previous && f->position[r / f->owners] > 0 ? f->previous + r * n : last;
        see(encoder, last, previous, work->rows.inputs + row * padded(encoder->width));
        if (f->hidden) memcpy(work->before + row * stride, f->hidden + r * d, d * sizeof(real));
        if (f->previous) memcpy(f->previous + r * n, last, n * sizeof(real));
    }
    embed_block(encoder, &work->encoder, &work->rows, work->before, work->embedding);
    real *means[] = {work->query_mean, work->key_mean, work->value_mean};
    real *weights[] = {work->query_weight, work->key_weight, work->value_weight};
    for (int i = 0; i < 3; i++) {
        memset(means[i], 0, BLOCK * stride * sizeof(real));
        multiply(work->embedding, d, weights[i], means[i], d);
    }
    for (count row = 0; row < n_rows && f->hidden; row++)
        memcpy(f->hidden + (start + row) * d, work->embedding + row * stride, d * sizeof(real));
}

/* Latents, attention vectors and parameters of BLOCK particles at a time; `shared` is the row of the block of embeddings
   that all particles of the series have, or -1: each has its own, which are made here. */
static void mutate(const Follow *f, const Layer *layer, const Encoder *encoder, FollowWorkspace *all, count sequence,
                   count shared)
{
    Workspace *work = &all->layer;
    count M = f->particles, d = layer->d, stride = padded(d), n = f->n_parameters;
    count n_slots = f->n_slots[sequence], written = n_slots % f->capacity;
    count begin = f->window && n_slots + 1 > f->window ? n_slots + 1 - f->window : 0;
    count first = n_slots < f->capacity ? begin : 0, last = n_slots < f->capacity ? n_slots + 1 : f->capacity;
    count base = (f->held ? f->held[sequence] : sequence) * M * f->capacity * d;
    real *keys = f->keys + base, *values = f->values + base;
    count *lines = f->trajectories + sequence * M * f->capacity;
    normal_numbers(all->noise, 0, 4 * M * d,
                   stream_of(f->stream_keys[sequence], (uint64_t)f->position[sequence], f->noise));
    const real *noise[4];
    for (int kind = 0; kind < 4; kind++) noise[kind] = all->noise + kind * M * d;
    for (count m = 0; m < M; m++) lines[m * f->capacity + written] = m;
    for (count start = 0; start < M; start += BLOCK) {
        count n_rows = M - start < BLOCK ? M - start : BLOCK;
        if (shared < 0) embed_owners(f, encoder, all, sequence * M + start, n_rows);
        for (count row = 0; row < n_rows; row++) {
            count m = start + row, mean = (shared < 0 ? row : shared) * stride, slot = (m * f->capacity + written) * d;
            multiply_add(work->query, layer->query_factor, noise[0] + m * d, all->query_mean + mean, d);
            multiply_add(keys + slot, layer->key_factor, noise[1] + m * d, all->key_mean + mean, d);
            multiply_add(values + slot, layer->value_factor, noise[2] + m * d, all->value_mean + mean, d);
            Slots seen = {keys, values, lines + m * f->capacity, first, last, f->capacity};
            attend(work->query, &seen, 1, layer, work->shares, work->context + row * stride);
            for (count i = 0; i < d; i++)
                work->z[row * stride + i] = layer->attention_factor[i] * noise[3][m * d + i];
        }
        multiply(work->context, d, work->output, work->z, d);
        real *parameters = f->parameters + (sequence * M + start) * n;
        if (shared < 0) read_out(layer, work, all->embedding, stride, n_rows, parameters, n);
        else read_out(layer, work, all->embedding + shared * stride, 0, n_rows, parameters, n);
        for (count row = 0; row < n_rows && f->adds_last; row++) {
            count owner = f->owners == 1 ? sequence : sequence * M + start + row;
            add_scaled(parameters + row * n, 1, f->last + owner * f->n_inputs, f->n_targets);
        }
    }
}

/* Log density and P(X <= x) of each target alone: those of a mixture of t (or normal) distributions in one dimension. */
static void judge(const Follow *f, FollowWorkspace *work, count sequence, double log_beta)
{
    count M = f->particles, n = f->n_targets;
    double nu = f->degrees, weight = 0;
    int sign;
    double constant = nu > 0 ? lgamma_r((nu + 1) / 2, &sign) - lgamma_r(nu / 2, &sign) - 0.5 * log(3.14159265358979323846 * nu)
                             : -0.5 * log(2 * 3.14159265358979323846);
    const real *log_weights = f->log_weights + sequence * M;
    for (count m = 0; m < M; m++) weight += work->mass[m] = exp((double)log_weights[m]);
    for (count i = 0; i < n; i++) {
        double x = (double)f->targets[sequence * n + i], below = 0, top = -INFINITY, total = 0, squares = 0;
        real *found = f->log_density + sequence * n + i, *pit = f->pit + sequence * n + i;
        *found = *pit = NAN;
        if (x != x) continue;
        for (count j = 0; j <= i; j++) squares += (double)f->root[i * n + j] * (double)f->root[i * n + j];
        double width = sqrt(squares);
        int is_number = 1;
        for (count m = 0; m < M; m++) {
            const real *parameters = f->parameters + (sequence * M + m) * f->n_parameters;
            double log_scale = f->lowest ? (double)parameters[n + i] : 0;
            if (f->lowest && log_scale < (double)f->lowest[i]) log_scale = (double)f->lowest[i];
            if (f->lowest && log_scale > (double)f->highest[i]) log_scale = (double)f->highest[i];
            double z = (x - (double)parameters[i]) / (exp(log_scale) * width);
            double shape = nu > 0 ? -0.5 * (nu + 1) * log1p(z * z / nu) : -0.5 * z * z;
            double density = (double)log_weights[m] + constant - log_scale - log(width) + shape;
            is_number = is_number && density == density;
            below += work->mass[m] * (nu > 0 ? student_cdf(z, nu, log_beta) : normal_cdf(z));
            work->cumulative[m] = density;
            top = density > top ? density : top;
        }
        if (!is_number) continue;
        for (count m = 0; m < M; m++) total += exp(work->cumulative[m] - top);
        *found = isinf(top) ? (real)top : (real)(top + log(total));
        *pit = (real)(below / weight);
    }
}

typedef struct {
    Pieces blocks;
    const Follow *follow;
    const Layer *layer;
    const Encoder *encoder;
} Following;

static int follow_blocks(void *job)
{
    const Follow *f = ((Following *)job)->follow;
    const Layer *layer = ((Following *)job)->layer;
    const Encoder *encoder = ((Following *)job)->encoder;
    FollowWorkspace work;
    int ready = prepare_follow(&work, f, layer, encoder);
    double log_beta = f->degrees > 0 ? log_beta_of(f->degrees) : 0;
    for (count block; ready && (block = take(&((Following *)job)->blocks)) >= 0;) {
        count start = block * BLOCK, n_rows = f->batch - start < BLOCK ? f->batch - start : BLOCK;
        if (f->owners == 1) embed_owners(f, encoder, &work, start, n_rows);
        for (count row = 0; row < n_rows; row++) {
            select_parents(f, &work, start + row, layer->d);
            mutate(f, layer, encoder, &work, start + row, f->owners == 1 ? row : -1);
            if (f->targets) judge(f, &work, start + row, log_beta);
        }
    }
    release_follow(&work);
    return !ready;
}

/* Compiled once, wherever it is called from: another copy might sum in another order. */
#define ALONE __attribute__((noinline, noclone))

/* Take the step up to the row and judge it. Returns 0, or 1 when there was not enough memory, and then (on one thread)
   nothing has happened. */
ALONE int follow_series(const Follow *f, const Layer *layer, const Encoder *encoder, int n_threads)
{
    Following job = {{0, (f->batch + BLOCK - 1) / BLOCK}, f, layer, encoder};
    return work_together(follow_blocks, &job, n_threads);
}

enum { FEW_TARGETS = 64 }; /* whose scratch needs no memory of its own */

/* Weigh by rows of which all targets are there, in place; the others are left as they are. Returns 0, or 1 when there
   was not enough memory. */
ALONE int weigh_series(const Contours *contours, const real *targets, const real *parameters, real *log_weights,
                 uint8_t *informed, count batch, count particles, count n_parameters)
{
    count n = contours->n;
    real few[FEW_TARGETS], *white = n <= FEW_TARGETS ? few : malloc((size_t)n * sizeof(real));
    for (count sequence = 0; white && sequence < batch; sequence++) {
        const real *x = targets + sequence * n;
        real *own = log_weights + sequence * particles;
        int complete = 1;
        for (count i = 0; i < n; i++) complete = complete && x[i] == x[i];
        if (!complete) continue;
        for (count m = 0; m < particles; m++) {
            real density = elliptical_log_density(contours, x, parameters + (sequence * particles + m) * n_parameters, white);
            own[m] = density != density ? -INFINITY : own[m] + density;
        }
        normalise(own, particles);
        informed[sequence] = 1;
    }
    if (white != few) free(white);
    return !white;
}

SIZE_OF(Contours, contours)

typedef struct {
    const count *columns;  /* (n_targets): which rows of the view are those of the series */
    const double *values;  /* (n_targets): the row, in units of the table; none is missing */
    const double *given;   /* (n_given): inputs that are known ahead, before those of the view */
    count n_given, n_features;
    double largest;        /* a number beyond this is none for the model */
    double *unit;          /* (n_targets): written */
    real *scaled;          /* (n_targets): written: the row as the model sees it */
    count *position, *n_slots; /* of the series: gone on by one */
} Row;

SIZE_OF(Row, row)

enum { DONE, NO_MEMORY, NOT_HELD };

/* All of one row of one series, where it stands: seen through the view, judged, weighed, and learned by the view.
   `f` is of one series, its targets are those written here. Needs few targets and profiles.

   Returns DONE; or, when nothing has happened, NO_MEMORY, or NOT_HELD: the model cannot hold a number. */
int take_row(const Follow *f, const Layer *layer, const Encoder *encoder, const Bank *bank, const View *view, const Row *row)
{
    count n = f->n_targets, wide = f->n_inputs, owned = f->owners * wide;
    if (n > FEW_TARGETS || bank->profiles > FEW_PROFILES) return NO_MEMORY;
    double anchor[FEW_TARGETS];
    double *features = malloc((size_t)(n * row->n_features + 1) * sizeof(double));
    real *last = malloc((size_t)owned * sizeof(real)); /* a copy: it is written before the last thing that may fail */
    int failed = !features || !last;
    failed = failed || glance_columns(bank, view, row->columns, n, 1, row->n_features, anchor, row->unit, features, 1);
    int found = failed ? NO_MEMORY : DONE;
    for (count i = 0; found == DONE && i < n; i++) {
        double scaled = (row->values[i] - anchor[i]) / row->unit[i];
        row->scaled[i] = (real)scaled;
        if (fabs(scaled) > row->largest) found = NOT_HELD;
    }
    if (found == DONE) {
        memcpy(last, f->last, owned * sizeof(real));
        for (count owner = 0; owner < f->owners; owner++) {
            real *known = last + owner * wide + n;
            for (count i = 0; i < row->n_given; i++) known[i] = (real)row->given[i];
            for (count i = 0; i < n * row->n_features; i++) known[row->n_given + i] = (real)features[i];
        }
        Follow own = *f;
        own.last = last;
        if (follow_series(&own, layer, encoder, 1)) found = NO_MEMORY;
    }
    if (found == DONE) {
        const Contours contours = {n, f->root, f->lowest, f->highest, f->constant, f->degrees};
        weigh_series(&contours, row->scaled, f->parameters, f->log_weights, f->informed, 1, f->particles, f->n_parameters);
        for (count i = 0; i < owned; i++) f->last[i] = i % wide < n ? row->scaled[i % wide] : 0;
        row->position[0]++;
        row->n_slots[0]++;
        observe_columns(bank, row->columns, n, row->values);
    }
    free(features); free(last);
    return found;
}
