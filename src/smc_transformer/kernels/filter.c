/* The particle filter over whole sequences of observed values, whose distribution is a Gaussian or a Student-t.

   One thread takes one sequence through all its steps: its keys, values and noise stay in the second-level cache,
   where a pass over the whole batch at every step would fetch them from memory again and again. */

#include "layer.h"

enum { MULTINOMIAL, RESIDUAL, STRATIFIED, SYSTEMATIC }; /* as SCHEMES in filter.py */

typedef struct {
    count batch, particles, steps, window, n_targets; /* window 0: all the past */
    const real *query_mean, *key_mean, *value_mean, *embedding;                     /* (batch, steps, d) */
    const real *query_noise, *key_noise, *value_noise, *attention_noise;            /* (batch, particles, steps, d) */
    Strides noise_strides;
    const real *targets, *last_targets; /* (batch, steps, n_targets); last_targets NULL: nothing is added */
    /* Log p(X_t | particle) = constant - log-scales + f(|root^-1 ((X_t - location) / scale)|^2), with f(s) = -s / 2, or
       -(degrees + n_targets) / 2 log(1 + s / degrees) for a Student-t. Parameters: locations, then log-scales. */
    count n_parameters;
    const real *root;            /* (n_targets, n_targets), lower triangular */
    const real *lowest, *highest; /* (n_targets): bounds of the log-scales, or NULL: no scales among the parameters */
    double constant, degrees;    /* degrees 0: a Gaussian */
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
} Filter;

SIZE_OF(Strides, strides)
SIZE_OF(Layer, layer)
SIZE_OF(Filter, filter)

/* The first particle whose cumulative mass exceeds the level. */
static count invert(const double *cumulative, count n, double level)
{
    count low = 0, high = n;
    while (low < high) {
        count middle = (low + high) / 2;
        if (cumulative[middle] > level) high = middle;
        else low = middle + 1;
    }
    return low < n ? low : n - 1;
}

/* Draw M parents in proportion to normalised log-weights (smc/resampling/base.py has the schemes in words). */
static void resample(const real *log_weights, count n, const double *uniforms, count scheme, double *mass,
                     double *cumulative, count *parents)
{
    double top = -INFINITY, total = 0;
    for (count m = 0; m < n; m++) top = log_weights[m] > top ? log_weights[m] : top;
    for (count m = 0; m < n; m++) total += mass[m] = exp(log_weights[m] - top);
    for (count m = 0; m < n; m++) mass[m] /= total;
    count certain = 0;
    if (scheme == RESIDUAL) /* floor(n W) copies for certain; what is left of the mass is drawn from below */
        for (count m = 0; m < n; m++) {
            double copies = floor(n * mass[m]);
            mass[m] = n * mass[m] - copies;
            certain += (count)copies;
            parents[m] = (count)copies; /* for now: how many copies */
        }
    double sum = 0;
    for (count m = 0; m < n; m++) cumulative[m] = sum += mass[m];
    double below = nextafter(sum, 0);
    if (scheme == RESIDUAL) {
        for (count i = 0; i < n - certain; i++) {
            double level = uniforms[i] * sum;
            parents[invert(cumulative, n, level < below ? level : below)]++;
        }
        for (count m = 0; m < n; m++) mass[m] = (double)parents[m];
        for (count m = 0, i = 0; m < n; m++)
            for (count copy = 0; copy < (count)mass[m]; copy++) parents[i++] = m;
        return;
    }
    for (count i = 0; i < n; i++) {
        double uniform = scheme == MULTINOMIAL ? uniforms[i] : (i + uniforms[scheme == SYSTEMATIC ? 0 : i]) / n;
        double level = uniform * sum;
        parents[i] = invert(cumulative, n, level < below ? level : below);
    }
}

/* Log p(X_t | particle); `white` is scratch. */
static real log_density(const Filter *f, const real *restrict x, const real *restrict parameters, real *restrict white)
{
    count n = f->n_targets;
    real squares = 0, log_scales = 0;
    for (count i = 0; i < n; i++) {
        real rest = x[i] - parameters[i];
        if (f->lowest) {
            real log_scale = parameters[n + i];
            log_scale = log_scale < f->lowest[i] ? f->lowest[i] : log_scale;
            log_scale = log_scale > f->highest[i] ? f->highest[i] : log_scale;
            real scale = (real)exp((double)log_scale);
            if (!(scale > 0) || isinf(scale)) return -INFINITY; /* as it rounds in the distribution itself */
            log_scales += log_scale;
            rest /= scale;
        }
        for (count j = 0; j < i; j++) rest -= f->root[i * n + j] * white[j];
        white[i] = rest / f->root[i * n + i];
        squares += white[i] * white[i];
    }
    double degrees = f->degrees;
    real shape = degrees > 0 ? (real)(-(degrees + n) / 2 * log1p(squares / degrees)) : -squares / 2;
    return (real)f->constant - log_scales + shape;
}

typedef struct {
    Workspace layer;
    real *keys, *values, *white, *log_weights;
    double *mass, *cumulative;
    count *trajectories, *inherited, *parents;
} FilterWorkspace;

static int prepare_filter(FilterWorkspace *work, const Filter *f, const Layer *layer)
{
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
    return ready && work->keys && work->values && work->white && work->log_weights && work->mass && work->cumulative
        && work->trajectories && work->inherited && work->parents;
}

static void release_filter(FilterWorkspace *work)
{
    release(&work->layer);
    free(work->keys); free(work->values); free(work->white); free(work->log_weights);
    free(work->mass); free(work->cumulative); free(work->trajectories); free(work->inherited); free(work->parents);
}

/* Select: parents, and the trajectories that their children inherit. */
static void select_parents(const Filter *f, FilterWorkspace *work, count sequence, count step, count *trajectories,
                           real *log_weights)
{
    count M = f->particles, first = f->window && step > f->window ? step - f->window : 0;
    real squares = 0;
    for (count m = 0; m < M; m++) squares += (real)exp(2 * (double)log_weights[m]);
    int due = step > 0 && (f->ess_threshold >= 1 || 1 / squares < (real)f->ess_threshold * M);
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
    }
    for (count m = 0; m < M; m++) {
        f->ancestors[(sequence * M + m) * f->steps + step] = work->parents[m];
        f->prior[(sequence * M + m) * f->steps + step] = log_weights[m];
    }
}

/* Mutate: latents, attention vectors and parameters of the distribution of X_t, BLOCK particles at a time. */
static void mutate(const Filter *f, const Layer *layer, Workspace *work, count sequence, count step, real *keys,
                   real *values, count *trajectories)
{
    count M = f->particles, T = f->steps, d = layer->d, n = f->n_parameters, stride = padded(d);
    count first = f->window && step + 1 > f->window ? step + 1 - f->window : 0;
    count mean = (sequence * T + step) * d;
    for (count start = 0; start < M; start += BLOCK) {
        count n_rows = M - start < BLOCK ? M - start : BLOCK;
        for (count row = 0; row < n_rows; row++) {
            count m = start + row, noise = place(&f->noise_strides, sequence, m, step), slot = (m * T + step) * d;
            multiply_add(work->query, layer->query_factor, f->query_noise + noise, f->query_mean + mean, d);
            multiply_add(keys + slot, layer->key_factor, f->key_noise + noise, f->key_mean + mean, d);
            multiply_add(values + slot, layer->value_factor, f->value_noise + noise, f->value_mean + mean, d);
            trajectories[m * T + step] = m;
            Slots past = {keys, values, trajectories + m * T, first, step + 1, T};
            attend(work->query, &past, 1, layer, work->shares, work->context + row * stride);
            for (count i = 0; i < d; i++)
                work->z[row * stride + i] = layer->attention_factor[i] * f->attention_noise[noise + i];
        }
        multiply(work->context, d, work->output, work->z, d);
        real *parameters = f->parameters + ((sequence * M + start) * T + step) * n;
        read_out(layer, work, f->embedding + mean, 0, n_rows, parameters, T * n);
        for (count row = 0; row < n_rows; row++) {
            if (f->last_targets)
                add_scaled(parameters + row * T * n, 1, f->last_targets + (sequence * T + step) * f->n_targets,
                           f->n_targets);
            if (f->attention)
                memcpy(f->attention + ((sequence * M + start + row) * T + step) * d, work->z + row * stride,
                       d * sizeof(real));
        }
    }
}

/* Weight by X_t; returns whether any weight is left. */
static int weigh(const Filter *f, FilterWorkspace *work, count sequence, count step, real *log_weights)
{
    count M = f->particles, T = f->steps;
    const real *x = f->targets + (sequence * T + step) * f->n_targets;
    real top = -INFINITY;
    for (count m = 0; m < M; m++) {
        const real *parameters = f->parameters + ((sequence * M + m) * T + step) * f->n_parameters;
        real density = log_density(f, x, parameters, work->white);
        log_weights[m] = density != density ? -INFINITY : log_weights[m] + density;
        top = log_weights[m] > top ? log_weights[m] : top;
    }
    double total = 0;
    for (count m = 0; m < M; m++) total += exp((double)(log_weights[m] - top));
    real log_total = (real)log(total);
    int alive = isfinite(top) && isfinite(log_total);
    for (count m = 0; m < M; m++) {
        log_weights[m] = alive ? log_weights[m] - top - log_total : -(real)log((double)M);
        f->posterior[(sequence * M + m) * T + step] = log_weights[m];
    }
    f->increments[sequence * T + step] = alive ? top + log_total : -INFINITY;
    return alive;
}

/* Returns 0, or 1 when there was not enough memory. */
int particle_filter(const Filter *f, const Layer *layer, int n_threads)
{
    count M = f->particles, T = f->steps, d = layer->d;
    int failed = 0;
#pragma omp parallel num_threads(n_threads)
    {
        FilterWorkspace work;
        int ready = prepare_filter(&work, f, layer);
#pragma omp for schedule(dynamic)
        for (count sequence = 0; sequence < f->batch; sequence++) {
            if (!ready) continue;
            real *keys = f->keys ? f->keys + sequence * M * T * d : work.keys;
            real *values = f->values ? f->values + sequence * M * T * d : work.values;
            count *trajectories = f->trajectories ? f->trajectories + sequence * M * T : work.trajectories;
            for (count m = 0; m < M; m++) work.log_weights[m] = -(real)log((double)M);
            f->collapsed[sequence] = -1;
            for (count step = 0; step < T; step++) {
                select_parents(f, &work, sequence, step, trajectories, work.log_weights);
                mutate(f, layer, &work.layer, sequence, step, keys, values, trajectories);
                if (!weigh(f, &work, sequence, step, work.log_weights) && f->collapsed[sequence] < 0) {
                    f->collapsed[sequence] = step;
                    if (f->stop_at_collapse) break;
                }
            }
        }
        if (!ready) {
#pragma omp atomic write
            failed = 1;
        }
        release_filter(&work);
    }
    return failed;
}
