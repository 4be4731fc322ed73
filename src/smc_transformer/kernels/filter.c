/* The particle filter over whole sequences: Gaussian and Student-t values, counts and classes.

   Missing targets are drawn by each particle given those of the step that are observed; from there on the particle has
   inputs of its own, and so embeddings of its own, for as long as the encoder remembers them. Particles that descend from
   one particle of the last gap have the same inputs, and are embedded once.

   One thread takes one sequence through all its steps: its keys, values and noise stay in the second-level cache,
   where a pass over the whole batch at every step would fetch them from memory again and again. */

#include "encoder.h"
#include "pool.h"
#include "weights.h"

enum { ELLIPTICAL, NEGATIVE_BINOMIAL, CATEGORICAL };

typedef struct {
    count batch, particles, steps, window, n_targets; /* window 0: all the past */
    const real *query_mean, *key_mean, *value_mean, *embedding;                     /* (batch, steps, d) */
    const real *query_noise, *key_noise, *value_noise, *attention_noise;            /* (batch, particles, steps, d) */
    Strides noise_strides;
    const real *targets, *last_targets; /* (batch, steps, n_targets); last_targets NULL: nothing is added */
    count n_parameters, density; /* density: as KINDS in filter.py */
    /* Elliptical: log p(X_t | particle) = constant - log-scales + f(|root^-1 ((X_t - location) / scale)|^2), with f(s) = -s / 2, or
       -(degrees + n_targets) / 2 log(1 + s / degrees) for a Student-t. Parameters: locations, then log-scales. */
    const real *root;            /* (n_targets, n_targets), lower triangular */
    const real *lowest, *highest; /* (n_targets): bounds of the log-scales, or NULL: no scales among the parameters */
    double constant, degrees;    /* degrees 0: a Gaussian */
    double largest_log;          /* of a negative binomial: its log-means and log-dispersions are kept within it */
    const double *uniforms;             /* (steps, batch, n_uniforms): row 0 is not used */
    count n_uniforms, scheme, stop_at_collapse;
    double ess_threshold;
    real *keys, *values;   /* (batch, particles, steps, d), or NULL when nobody wants them */
    count *trajectories;          /* (batch, particles, steps), or NULL */
    count *ancestors;      /* (batch, particles, steps) */
    uint8_t *resampled;    /* (batch, steps) */
    real *increments;      /* (batch, steps) */
    real *prior, *posterior; /* (batch, particles, steps): log-weights before and after each observation */
    real *parameters;      /* (batch, particles, steps, n_parameters) */
    real *attention;       /* (batch, particles, steps, d), or NULL */
    count *collapsed;      /* (batch): step at which a sequence lost all its weight, or -1 */
    /* For missing targets; `observed` is NULL where there are none, and nothing below is used. */
    const uint8_t *observed; /* (batch, steps, n_targets) */
    count n_inputs, reach;   /* reach: how many inputs before the last an embedding sees; -1: all of them */
    const real *inputs;      /* (batch, steps + 1, n_inputs); numbers in place of missing targets are not used */
    const real *positions;   /* (steps, d): added to the embeddings, or NULL */
    const real *query, *key, *value; /* (d, d): Wq, Wk, Wv */
    const real *normal;      /* (batch, particles, steps, n_targets): standard normal draws */
    const real *gamma;       /* (batch, particles, steps): standard Gamma draws, or NULL: a Gaussian */
    real *completed;         /* (batch, particles, steps, n_targets): the targets as each particle has them */
    real *last, *previous;   /* (batch, particles, n_inputs): the inputs after the last step, and before it */
    real *hidden;            /* (batch, particles, d): the embeddings before the last inputs */
} Filter;

SIZE_OF(Strides, strides)
SIZE_OF(Layer, layer)
SIZE_OF(Filter, filter)

static double within(double x, double largest) { return x < -largest ? -largest : x > largest ? largest : x; }

/* Counts with means mu and dispersions a, so that the variance is mu + a mu^2. */
static real log_mass_of_counts(const Filter *f, const real *x, const real *parameters)
{
    double sum = 0;
    int sign;
    for (count i = 0; i < f->n_targets; i++) {
        double log_mean = within(parameters[i], f->largest_log);
        double log_dispersion = within(parameters[f->n_targets + i], f->largest_log);
        double product = (real)exp(log_mean) * (double)(real)exp(log_dispersion), size = 1 / (double)(real)exp(log_dispersion);
        sum += lgamma_r(x[i] + size, &sign) - lgamma_r(size, &sign) - lgamma_r(x[i] + 1.0, &sign)
             - (x[i] + size) * log1p(product) + x[i] * log(product);
    }
    return (real)sum;
}

/* One target, the number of a class, by its logits. */
static real log_mass_of_class(const Filter *f, const real *x, const real *logits)
{
    count chosen = (count)x[0];
    if (!(x[0] >= 0) || chosen >= f->n_parameters) return -INFINITY;
    real top = -INFINITY;
    double total = 0;
    for (count i = 0; i < f->n_parameters; i++) top = logits[i] > top ? logits[i] : top;
    for (count i = 0; i < f->n_parameters; i++) total += exp((double)(logits[i] - top));
    return (real)((double)(logits[chosen] - top) - log(total));
}

/* Log p(X_t | particle); `white` is scratch. */
static real log_density(const Filter *f, const real *restrict x, const real *restrict parameters, real *restrict white)
{
    if (f->density == NEGATIVE_BINOMIAL) return log_mass_of_counts(f, x, parameters);
    if (f->density == CATEGORICAL) return log_mass_of_class(f, x, parameters);
    const Contours contours = {f->n_targets, f->root, f->lowest, f->highest, f->constant, f->degrees};
    return elliptical_log_density(&contours, x, parameters, white);
}

#define LEAST (sizeof(real) == 4 ? 1.17549435e-38 : 2.2250738585072014e-308) /* the least normal number */

/* What particles with inputs of their own need. */
typedef struct {
    EncoderWeights encoder;
    EncoderRows rows;
    real *query_weight, *key_weight, *value_weight;         /* transposed */
    real *before, *seen;                                    /* (block, padded d) */
    real *embedding, *query_mean, *key_mean, *value_mean;   /* (kinds of inputs, padded d), as many as particles at most */
    real *inherited; /* (particles, n_inputs or d) */
    real *covariance, *masked_root, *exact_root, *standard, *solved; /* of the targets: root root^T, and that of the observed ones */
} OwnInputs;

enum { N_OWN = sizeof(OwnInputs) / sizeof(real *) };

typedef struct {
    Workspace layer;
    OwnInputs own;
    real *keys, *values, *white, *log_weights;
    double *mass, *cumulative;
    count *trajectories, *inherited, *parents;
    count *kind, *place, *place_of, *first_of; /* (particles): whose inputs each has since the last gap, and where these
                                                  are embedded; where each kind is; one of the kind at each place */
} FilterWorkspace;

static int prepare_own(OwnInputs *own, const Filter *f, const Encoder *encoder, count d)
{
    count block = BLOCK * padded(d), n = f->n_targets, wide = f->n_inputs > d ? f->n_inputs : d;
    count kinds = f->particles * padded(d);
    prepare_encoder(&own->encoder, encoder);
    prepare_encoder_rows(&own->rows, encoder, BLOCK);
    own->query_weight = transposed(f->query, d, d);
    own->key_weight = transposed(f->key, d, d);
    own->value_weight = transposed(f->value, d, d);
    own->before = scratch(block);
    own->seen = scratch(block);
    real **of_kinds[] = {&own->embedding, &own->query_mean, &own->key_mean, &own->value_mean};
    for (size_t i = 0; i < sizeof of_kinds / sizeof *of_kinds; i++) *of_kinds[i] = scratch(kinds);
    own->inherited = scratch(f->particles * wide);
    own->covariance = scratch(n * n);
    own->masked_root = scratch(n * n);
    own->exact_root = scratch(2 * n * n); /* doubles */
    own->standard = scratch(n);
    own->solved = scratch(n);
    if (own->covariance)
        for (count i = 0; i < n; i++)
            for (count j = 0; j < n; j++)
                own->covariance[i * n + j] = dot(f->root + i * n, f->root + j * n, (i < j ? i : j) + 1);
    real **parts = (real **)own;
    for (int i = 0; i < N_OWN; i++)
        if (!parts[i]) return 0;
    return 1;
}

static int prepare_filter(FilterWorkspace *work, const Filter *f, const Layer *layer, const Encoder *encoder)
{
    memset(&work->own, 0, sizeof work->own);
    int own_ready = !f->observed || prepare_own(&work->own, f, encoder, layer->d);
    count cache = f->keys ? 1 : f->particles * f->steps * layer->d;
    int ready = prepare(&work->layer, layer, f->steps);
    work->keys = scratch(cache);
    work->values = scratch(cache);
    work->white = scratch(f->n_targets);
    work->log_weights = scratch(f->particles);
    work->mass = calloc(f->particles, sizeof(double));
    work->cumulative = calloc(f->particles, sizeof(double));
    work->trajectories = calloc(f->trajectories ? 1 : f->particles * f->steps, sizeof(count));
    work->inherited = calloc(f->particles * f->steps, sizeof(count));
    work->parents = calloc(f->particles, sizeof(count));
    work->kind = calloc(f->particles, sizeof(count));
    work->place = calloc(f->particles, sizeof(count));
    work->place_of = calloc(f->particles, sizeof(count));
    work->first_of = calloc(f->particles, sizeof(count));
    return ready && own_ready && work->keys && work->values && work->white && work->log_weights && work->mass && work->cumulative
        && work->trajectories && work->inherited && work->parents && work->kind && work->place && work->place_of
        && work->first_of;
}

static void release_filter(FilterWorkspace *work)
{
    release(&work->layer);
    real **parts = (real **)&work->own;
    for (int i = 0; i < N_OWN; i++) free(parts[i]);
    free(work->keys); free(work->values); free(work->white); free(work->log_weights);
    free(work->mass); free(work->cumulative); free(work->trajectories); free(work->inherited); free(work->parents);
    free(work->kind); free(work->place); free(work->place_of); free(work->first_of);
}

/* Children take over rows of n numbers from their parents. */
static void inherit(real *rows, count n, const FilterWorkspace *work, count particles)
{
    memcpy(work->own.inherited, rows, particles * n * sizeof(real));
    for (count m = 0; m < particles; m++)
        memcpy(rows + m * n, work->own.inherited + work->parents[m] * n, n * sizeof(real));
}

/* Select: parents, and the trajectories that their children inherit. `informed` is whether the weights have changed
   since the last time. */
static void select_parents(const Filter *f, const Layer *layer, FilterWorkspace *work, count sequence, count step,
                           count *trajectories, real *log_weights, int *informed)
{
    count M = f->particles, first = f->window && step > f->window ? step - f->window : 0;
    int due = *informed && are_unequal(log_weights, M, f->ess_threshold);
    f->resampled[sequence * f->steps + step] = (uint8_t)due;
    for (count m = 0; m < M; m++) work->parents[m] = m;
    if (due) {
        const double *uniforms = f->uniforms + (step * f->batch + sequence) * f->n_uniforms;
        resample(log_weights, M, uniforms, f->scheme, work->mass, work->cumulative, work->parents);
        size_t held = (size_t)(step - first) * sizeof(count);
        for (count m = 0; m < M; m++)
            memcpy(work->inherited + m * f->steps, trajectories + work->parents[m] * f->steps + first, held);
        for (count m = 0; m < M; m++) memcpy(trajectories + m * f->steps + first, work->inherited + m * f->steps, held);
        for (count m = 0; m < M; m++) log_weights[m] = -(real)log((double)M);
        *informed = 0;
        if (f->observed) {
            inherit(f->last + sequence * M * f->n_inputs, f->n_inputs, work, M);
            inherit(f->previous + sequence * M * f->n_inputs, f->n_inputs, work, M);
            inherit(f->hidden + sequence * M * layer->d, layer->d, work, M);
            memcpy(work->place, work->kind, M * sizeof(count));
            for (count m = 0; m < M; m++) work->kind[m] = work->place[work->parents[m]];
        }
    }
    for (count m = 0; m < M; m++) {
        f->ancestors[(sequence * M + m) * f->steps + step] = work->parents[m];
        f->prior[(sequence * M + m) * f->steps + step] = log_weights[m];
    }
}

/* Whether all targets of an input are observed; X_0 always is. */
static int is_complete(const Filter *f, count sequence, count input)
{
    if (input == 0) return 1;
    const uint8_t *observed = f->observed + (sequence * f->steps + input - 1) * f->n_targets;
    for (count i = 0; i < f->n_targets; i++)
        if (!observed[i]) return 0;
    return 1;
}

/* Whether particles have an embedding of their own at a step: an input that it sees was missing, `gap` the last such. */
static int has_own(const Filter *f, count step, count gap) { return gap >= 0 && (f->reach < 0 || step - gap <= f->reach); }

/* Gives each kind of inputs that there is a place; returns how many there are. */
static count place_kinds(FilterWorkspace *work, count particles)
{
    count n_kinds = 0;
    for (count kind = 0; kind < particles; kind++) work->place_of[kind] = -1;
    for (count m = 0; m < particles; m++) {
        count *place = work->place_of + work->kind[m];
        if (*place < 0) {
            *place = n_kinds;
            work->first_of[n_kinds++] = m;
        }
        work->place[m] = *place;
    }
    return n_kinds;
}

/* Embeddings and means of particles with inputs of their own, each kind of inputs once. */
static void embed_own(const Filter *f, const Encoder *encoder, FilterWorkspace *work, count sequence, count step)
{
    OwnInputs *own = &work->own;
    count d = encoder->d, stride = padded(d), n = f->n_inputs, M = f->particles, n_kinds = place_kinds(work, M);
    real *means[] = {own->query_mean, own->key_mean, own->value_mean};
    real *weights[] = {own->query_weight, own->key_weight, own->value_weight};
    for (count start = 0, size = even_block(n_kinds); start < n_kinds; start += size) {
        count n_rows = n_kinds - start < size ? n_kinds - start : size;
        real *embedding = own->embedding + start * stride;
        for (count row = 0; row < n_rows; row++) {
            count m = sequence * M + work->first_of[start + row];
            see(encoder, f->last + m * n, f->previous + m * n, own->rows.inputs + row * padded(encoder->width));
            memcpy(own->before + row * stride, f->hidden + m * d, d * sizeof(real));
        }
        embed_some(encoder, &own->encoder, &own->rows, own->before, embedding, n_rows);
    }
    for (count m = 0; m < M; m++)
        memcpy(f->hidden + (sequence * M + m) * d, own->embedding + work->place[m] * stride, d * sizeof(real));
    for (count kind = 0; f->positions && kind < n_kinds; kind++)
        add_scaled(own->embedding + kind * stride, 1, f->positions + step * d, d);
    for (int i = 0; i < 3; i++) {
        memset(means[i], 0, n_kinds * stride * sizeof(real));
        for (count start = 0, size = even_block(n_kinds); start < n_kinds; start += size)
            multiply_some(own->embedding + start * stride, d, weights[i], means[i] + start * stride, d,
                          n_kinds - start < size ? n_kinds - start : size);
    }
}

/* Mutate: latents, attention vectors and parameters of the distribution of X_t, a block of particles at a time. */
static void mutate(const Filter *f, const Layer *layer, const Encoder *encoder, FilterWorkspace *all, count sequence,
                   count step, int is_own, real *keys, real *values, count *trajectories)
{
    Workspace *work = &all->layer;
    OwnInputs *own = &all->own;
    count M = f->particles, T = f->steps, d = layer->d, n = f->n_parameters, stride = padded(d);
    count first = f->window && step + 1 > f->window ? step + 1 - f->window : 0;
    count mean = (sequence * T + step) * d;
    if (is_own) embed_own(f, encoder, all, sequence, step);
    for (count start = 0, size = even_block(M); start < M; start += size) {
        count n_rows = M - start < size ? M - start : size;
        for (count row = 0; row < n_rows; row++) {
            count kind = is_own ? all->place[start + row] * stride : 0;
            const real *query_mean = is_own ? own->query_mean + kind : f->query_mean + mean;
            const real *key_mean = is_own ? own->key_mean + kind : f->key_mean + mean;
            const real *value_mean = is_own ? own->value_mean + kind : f->value_mean + mean;
            if (is_own) memcpy(own->seen + row * stride, own->embedding + kind, d * sizeof(real));
            count m = start + row, noise = place(&f->noise_strides, sequence, m, step), slot = (m * T + step) * d;
            multiply_add(work->query, layer->query_factor, f->query_noise + noise, query_mean, d);
            multiply_add(keys + slot, layer->key_factor, f->key_noise + noise, key_mean, d);
            multiply_add(values + slot, layer->value_factor, f->value_noise + noise, value_mean, d);
            trajectories[m * T + step] = m;
            Slots past = {keys, values, trajectories + m * T, first, step + 1, T};
            attend(work->query, &past, 1, layer, work->shares, work->context + row * stride);
            for (count i = 0; i < d; i++)
                work->z[row * stride + i] = layer->attention_factor[i] * f->attention_noise[noise + i];
        }
        multiply_some(work->context, d, work->output, work->z, d, n_rows);
        real *parameters = f->parameters + ((sequence * M + start) * T + step) * n;
        if (is_own) read_out(layer, work, own->seen, stride, n_rows, parameters, T * n);
        else read_out(layer, work, f->embedding + mean, 0, n_rows, parameters, T * n);
        for (count row = 0; row < n_rows; row++) {
            const real *last = f->last_targets + (sequence * T + step) * f->n_targets;
            if (f->observed) last = f->last + (sequence * M + start + row) * f->n_inputs;
            if (f->last_targets) add_scaled(parameters + row * T * n, 1, last, f->n_targets);
            if (f->attention)
                memcpy(f->attention + ((sequence * M + start + row) * T + step) * d, work->z + row * stride,
                       d * sizeof(real));
        }
    }
}

/* The scale of a target, or 1 where there are none among the parameters. */
static real scale_of(const Filter *f, const real *parameters, count target)
{
    if (!f->lowest) return 1;
    real log_scale = parameters[f->n_targets + target];
    log_scale = log_scale < f->lowest[target] ? f->lowest[target] : log_scale;
    return (real)exp((double)(log_scale > f->highest[target] ? f->highest[target] : log_scale));
}

/* The lower triangular root of the covariance with the identity in place of unobserved coordinates. */
static void root_of_observed(const Filter *f, OwnInputs *own, const uint8_t *observed)
{
    count n = f->n_targets;
    double *root = (double *)own->exact_root; /* in double, as a thin covariance may have rounded to one without a root */
    for (count i = 0; i < n; i++)
        for (count j = 0; j <= i; j++) {
            double sum = observed[i] && observed[j] ? (double)own->covariance[i * n + j] : i == j;
            if (i == j) sum *= 1 + 1e-9; /* as in observation/masked.py */
            for (count k = 0; k < j; k++) sum -= root[i * n + k] * root[j * n + k];
            root[i * n + j] = i == j ? sqrt(sum) : sum / root[j * n + j];
            own->masked_root[i * n + j] = (real)root[i * n + j];
        }
}

/* |root^-1 r|^2 of the observed residuals r = (x - location) / scale; leaves root^-1 r in `white`. */
static real norm_of_observed(const Filter *f, const OwnInputs *own, const uint8_t *observed, const real *residual,
                             real *white)
{
    count n = f->n_targets;
    real squares = 0;
    for (count i = 0; i < n; i++) {
        real rest = observed[i] ? residual[i] : 0;
        for (count j = 0; j < i; j++) rest -= own->masked_root[i * n + j] * white[j];
        white[i] = rest / own->masked_root[i * n + i];
        squares += white[i] * white[i];
    }
    return squares;
}

/* Log p of the observed targets of X_t, of which there are k. */
static real log_density_of_observed(const Filter *f, const OwnInputs *own, const uint8_t *observed, count k,
                                    const real *x, const real *parameters, real *white)
{
    count n = f->n_targets;
    double log_scales = 0, nu = f->degrees;
    for (count i = 0; i < n; i++) {
        real scale = scale_of(f, parameters, i);
        if (!(scale > 0) || isinf(scale)) return -INFINITY;
        own->standard[i] = (x[i] - parameters[i]) / scale;
        log_scales += (observed[i] ? log((double)scale) : 0) + log((double)own->masked_root[i * n + i]);
    }
    real squares = norm_of_observed(f, own, observed, own->standard, white);
    if (nu > 0)
        return (real)(lgamma((nu + k) / 2) - lgamma(nu / 2) - 0.5 * k * log(3.14159265358979323846 * nu) - log_scales
                      - 0.5 * (nu + k) * log1p(squares / nu));
    return (real)(-0.5 * squares - log_scales - 0.5 * k * log(2 * 3.14159265358979323846));
}

/* Draw the missing targets of one particle given the observed ones (Matheron's rule), and make them its last inputs. */
static void complete(const Filter *f, FilterWorkspace *work, count sequence, count m, count step)
{
    OwnInputs *own = &work->own;
    count n = f->n_targets, T = f->steps, row = sequence * f->particles + m, place = row * T + step;
    const uint8_t *observed = f->observed + (sequence * T + step) * n;
    const real *x = f->targets + (sequence * T + step) * n, *parameters = f->parameters + place * f->n_parameters;
    real *last = f->last + row * f->n_inputs, *completed = f->completed + place * n, tail = 1;
    memcpy(f->previous + row * f->n_inputs, last, f->n_inputs * sizeof(real));
    memcpy(last, f->inputs + (sequence * (T + 1) + step + 1) * f->n_inputs, f->n_inputs * sizeof(real));
    if (!is_complete(f, sequence, step + 1)) {
        work->kind[m] = m; /* nobody else's any more */
        for (count i = 0; i < n; i++) own->solved[i] = observed[i] ? (x[i] - parameters[i]) / scale_of(f, parameters, i) : 0;
        if (f->gamma) { /* given what is observed, the precision that all targets share is Gamma distributed again */
            double norm = norm_of_observed(f, own, observed, own->solved, work->white);
            double precision = (double)f->gamma[place] / ((f->degrees + norm) / 2);
            tail = square_root((real)(precision > LEAST ? precision : LEAST));
        }
        for (count i = 0; i < n; i++) own->standard[i] = dot(f->root + i * n, f->normal + place * n, i + 1);
        for (count i = 0; i < n; i++) own->solved[i] = own->solved[i] * tail - own->standard[i];
        norm_of_observed(f, own, observed, own->solved, work->white);
        for (count i = n - 1; i >= 0; i--) { /* root^-T */
            real rest = work->white[i];
            for (count j = i + 1; j < n; j++) rest -= own->masked_root[j * n + i] * own->solved[j];
            own->solved[i] = rest / own->masked_root[i * n + i];
        }
        for (count i = 0; i < n; i++)
            if (!observed[i])
                last[i] = parameters[i]
                        + scale_of(f, parameters, i) * (own->standard[i] + dot(own->solved, own->covariance + i * n, n)) / tail;
    }
    memcpy(completed, last, n * sizeof(real));
}

/* Weight by X_t; returns whether any weight is left. */
static int weigh(const Filter *f, FilterWorkspace *work, count sequence, count step, real *log_weights, int *informed)
{
    count M = f->particles, T = f->steps;
    const real *x = f->targets + (sequence * T + step) * f->n_targets;
    const uint8_t *observed = f->observed ? f->observed + (sequence * T + step) * f->n_targets : NULL;
    count k = f->n_targets;
    if (observed && !is_complete(f, sequence, step + 1)) {
        k = 0;
        for (count i = 0; i < f->n_targets; i++) k += observed[i];
        root_of_observed(f, &work->own, observed);
    }
    if (k == 0) { /* a step without an observation has no weight */
        for (count m = 0; m < M; m++) f->posterior[(sequence * M + m) * T + step] = log_weights[m];
        f->increments[sequence * T + step] = 0;
        return 1;
    }
    *informed = 1;
    for (count m = 0; m < M; m++) {
        const real *parameters = f->parameters + ((sequence * M + m) * T + step) * f->n_parameters;
        real density = k == f->n_targets ? log_density(f, x, parameters, work->white)
                     : log_density_of_observed(f, &work->own, observed, k, x, parameters, work->white);
        log_weights[m] = density != density ? -INFINITY : log_weights[m] + density;
    }
    real increment = normalise(log_weights, M);
    for (count m = 0; m < M; m++) f->posterior[(sequence * M + m) * T + step] = log_weights[m];
    f->increments[sequence * T + step] = increment;
    return isfinite(increment);
}

/* Give all particles the inputs of the start. */
static void start_inputs(const Filter *f, count sequence)
{
    const real *first = f->inputs + sequence * (f->steps + 1) * f->n_inputs;
    for (count row = sequence * f->particles; row < (sequence + 1) * f->particles; row++) {
        memcpy(f->last + row * f->n_inputs, first, f->n_inputs * sizeof(real));
        memcpy(f->previous + row * f->n_inputs, first, f->n_inputs * sizeof(real));
    }
}

/* Give all particles the embedding that they share at a step. */
static void share_embedding(const Filter *f, count sequence, count step, count d)
{
    for (count row = sequence * f->particles; row < (sequence + 1) * f->particles; row++)
        memcpy(f->hidden + row * d, f->embedding + (sequence * f->steps + step) * d, d * sizeof(real));
}

typedef struct {
    Pieces sequences;
    const Filter *filter;
    const Layer *layer;
    const Encoder *encoder;
} Filtering;

static int run_sequences(void *job)
{
    const Filter *f = ((Filtering *)job)->filter;
    const Layer *layer = ((Filtering *)job)->layer;
    const Encoder *encoder = ((Filtering *)job)->encoder;
    count M = f->particles, T = f->steps, d = layer->d;
    FilterWorkspace work;
    int ready = prepare_filter(&work, f, layer, encoder);
    for (count sequence; ready && (sequence = take(&((Filtering *)job)->sequences)) >= 0;) {
        real *keys = f->keys ? f->keys + sequence * M * T * d : work.keys;
        real *values = f->values ? f->values + sequence * M * T * d : work.values;
        count *trajectories = f->trajectories ? f->trajectories + sequence * M * T : work.trajectories;
        for (count m = 0; m < M; m++) work.log_weights[m] = -(real)log((double)M);
        f->collapsed[sequence] = -1;
        int informed = 0;
        count gap = -1; /* the last input with missing targets */
        if (f->observed) start_inputs(f, sequence);
        for (count step = 0; step < T; step++) {
            if (f->observed && !is_complete(f, sequence, step)) gap = step;
            int is_own = has_own(f, step, gap);
            select_parents(f, layer, &work, sequence, step, trajectories, work.log_weights, &informed);
            mutate(f, layer, encoder, &work, sequence, step, is_own, keys, values, trajectories);
            if (f->observed && !is_own) share_embedding(f, sequence, step, d);
            if (!weigh(f, &work, sequence, step, work.log_weights, &informed) && f->collapsed[sequence] < 0) {
                f->collapsed[sequence] = step;
                if (f->stop_at_collapse) break;
            }
            for (count m = 0; f->observed && m < M; m++) complete(f, &work, sequence, m, step);
        }
    }
    release_filter(&work);
    return !ready;
}

/* Returns 0, or 1 when there was not enough memory. The encoder is needed for missing targets only. */
int particle_filter(const Filter *f, const Layer *layer, const Encoder *encoder, int n_threads)
{
    Filtering job = {{0, f->batch}, f, layer, encoder};
    return work_together(run_sequences, &job, n_threads);
}
