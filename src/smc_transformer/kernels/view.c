/* The local view of columns: what exponential smoothers forecast (`glance`), and how they learn from a value (`observe`).

   The rules are those of forecaster/view/bank.py and local.py, which say them in numpy; here each column goes through all
   of them by itself, in double. A row of the state is a column of a series; `rows` tells which ones are meant. */

#include "pool.h"
#include "view.h"

enum { MOST_ORIGINS = 16 };

SIZE_OF(Bank, bank)
SIZE_OF(View, view)

static inline double largest_of(double a, double b) { return a > b ? a : b; }
static inline double smallest_of(double a, double b) { return a < b ? a : b; }
static inline double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* The profile entries of a column so many steps after its next row. A place of a season that has had no value yet has the
   entry of the shorter season before it, if that fits in. */
static void find_entries(const Bank *bank, count column, count steps, double *entries)
{
    const double *profiles = bank->profile_entries + column * bank->entries;
    const count *visits = bank->visits + column * bank->places;
    count now = bank->n_rows[column] + steps, each = bank->seasons ? bank->profiles / bank->seasons : 0;
    for (count p = 0; p < bank->profiles; p++)
        entries[p] = profiles[bank->starts[p] + now % bank->lengths[bank->season_of[p]]];
    for (count s = 1; s < bank->seasons; s++) {
        count length = bank->lengths[s];
        if (length % bank->lengths[s - 1] || visits[bank->season_starts[s] + now % length]) continue;
        for (count i = 0; i < each; i++) entries[s * each + i] = entries[(s - 1) * each + i];
    }
}

/* The value without a profile. */
static inline double without(const Bank *bank, count p, double value, double entry)
{
    return bank->multiplies[p] ? value / largest_of(entry, 2 * bank->smallest_factor) : value - entry;
}

/* The errors of the running forecasts of this row. */
static void judge(const Bank *bank, count column, double value, const double *entries)
{
    count S = bank->smoothers, C = (1 + bank->profiles) * S, n_rows = bank->n_rows[column], n_new = 0;
    count turn = n_rows / bank->stride; /* of the newest possible start */
    double *errors = bank->errors + column * C;
    const double *level[MOST_ORIGINS], *trend[MOST_ORIGINS], *sums[MOST_ORIGINS];
    for (count o = 0; o < bank->origins; o++) {
        count behind = ((turn - o) % bank->origins + bank->origins) % bank->origins;
        count age = n_rows + 1 - (turn - behind) * bank->stride; /* steps ahead that the forecast is at now */
        const double *own = bank->origin_level + (column * bank->origins + o) * C;
        if (own[0] != own[0] || age > bank->horizon || age > bank->oldest) continue;
        level[n_new] = own;
        trend[n_new] = bank->origin_trend + (column * bank->origins + o) * C;
        sums[n_new++] = bank->sums + age * S;
    }
    double kept = n_new ? bank->remembered : 1;
    for (count p = 0; p <= bank->profiles; p++) {
        double factor = p && bank->multiplies[p - 1] ? entries[p - 1] : 1;
        double term = p && !bank->multiplies[p - 1] ? entries[p - 1] : 0;
        for (count s = 0; s < S; s++) {
            count c = p * S + s;
            double total = 0;
            for (count o = 0; o < n_new; o++)
                total += fabs(value - ((level[o][c] + sums[o][s] * trend[o][c]) * factor + term));
            errors[c] = kept * errors[c] + total;
        }
    }
    bank->n_errors[column] = kept * bank->n_errors[column] + (double)n_new;
}

/* Level and trend of each candidate take the value, or go on without it. */
static void smooth(const Bank *bank, count column, double value, int learns, const double *entries)
{
    count S = bank->smoothers, C = (1 + bank->profiles) * S;
    double *level = bank->level + column * C, *trend = bank->trend + column * C;
    double least = 1 / ((double)bank->n_observed[column] + 1);
    for (count p = 0; p <= bank->profiles; p++) {
        double target = p ? without(bank, p - 1, value, entries[p - 1]) : value;
        for (count s = 0; s < S; s++) {
            count c = p * S + s;
            double moved = level[c] + bank->damping[s] * trend[c];
            double gain = largest_of(bank->level_rates[s], least), error = learns ? target - moved : 0;
            level[c] = moved + gain * error;
            trend[c] = bank->damping[s] * trend[c] + gain * bank->trend_rates[s] * error;
        }
    }
}

static void learn_profiles(const Bank *bank, count column, double value, int learns, const double *entries)
{
    count n_rows = bank->n_rows[column];
    double least = 1 / ((double)bank->n_observed[column] + 1);
    for (count p = 0; p < bank->profiles; p++) {
        count season = bank->season_of[p], length = bank->lengths[season], place = n_rows % length;
        double visits = (double)bank->visits[column * bank->places + bank->season_starts[season] + place];
        double *reference = bank->reference + column * bank->profiles + p, level = *reference, entry = entries[p];
        double error = 0;
        if (learns && bank->multiplies[p]) error = between((level != 0 ? value / level : 1) - entry, -1, 1);
        else if (learns) error = value - level - entry;
        double rate = smallest_of(bank->profile_level_rate, bank->profile_level_seasons / (double)length);
        double gain = largest_of(rate, least);
        double learned = entry + largest_of(bank->rates[p], 1 / (visits + 1.5)) * (1 - gain / 2) * error;
        if (bank->multiplies[p]) learned = between(learned, bank->smallest_factor, bank->largest_factor);
        bank->profile_entries[column * bank->entries + bank->starts[p] + place] = learned;
        if (learns) *reference = level + gain * (without(bank, p, value, entry) - level);
    }
}

static void observe(const Bank *bank, count column, double y, double *entries)
{
    int seen = y == y, first = bank->n_rows[column] == 0;
    if (first && !seen) return; /* a column begins with its first value */
    int learns = seen && !first;
    count S = bank->smoothers, C = (1 + bank->profiles) * S, n_rows = bank->n_rows[column];
    double value = seen ? y : 0;
    find_entries(bank, column, 0, entries);
    if (learns && n_rows % bank->judged_every == 0) judge(bank, column, value, entries);
    smooth(bank, column, value, learns, entries);
    learn_profiles(bank, column, value, learns, entries);
    if (first) {
        for (count c = 0; c < C; c++) bank->level[column * C + c] = value;
        for (count p = 0; p < bank->profiles; p++) bank->reference[column * bank->profiles + p] = value;
    }
    if (learns) bank->jump[column] = largest_of(bank->jump[column], fabs(value - bank->last[column]));
    if (seen) {
        bank->last[column] = value;
        bank->largest[column] = largest_of(bank->largest[column], fabs(value));
        bank->n_observed[column]++;
        double gain = largest_of(bank->size_rate, 1 / (double)bank->n_observed[column]);
        bank->size[column] += gain * (fabs(value) - bank->size[column]);
        for (count s = 0; s < bank->seasons; s++) {
            count place = column * bank->places + bank->season_starts[s] + n_rows % bank->lengths[s];
            bank->latest[place] = value;
            bank->visits[place]++;
        }
    }
    bank->silent[column] = seen ? 0 : bank->silent[column] + 1;
    bank->n_rows[column] = ++n_rows;
    /* The candidates start a running forecast here, if it is time for one. */
    if (!seen || n_rows < bank->rows_before_judging || n_rows % bank->stride) return;
    count origin = column * bank->origins + n_rows / bank->stride % bank->origins;
    memcpy(bank->origin_level + origin * C, bank->level + column * C, C * sizeof(double));
    memcpy(bank->origin_trend + origin * C, bank->trend + column * C, C * sizeof(double));
}

int observe_columns(const Bank *bank, const count *rows, count n, const double *y)
{
    double few[FEW_PROFILES], *entries = bank->profiles <= FEW_PROFILES ? few : malloc((size_t)bank->profiles * sizeof(double));
    for (count i = 0; entries && i < n; i++) observe(bank, rows ? rows[i] : i, y[i], entries);
    if (entries != few) free(entries);
    return !entries;
}

/* The smallest unit, by the largest value that a column has had. */
static double floor_of(const Bank *bank, const View *view, count column)
{
    double largest = bank->largest[column], own = largest > 0 ? view->least_unit * view->noise * largest : INFINITY;
    return largest_of(smallest_of(own, view->floor), view->smallest);
}

/* What each candidate counts for: by its errors here, and in all series while there are few. */
static void weigh_candidates(const Bank *bank, const View *view, count column, double *weights)
{
    count C = (1 + bank->profiles) * bank->smoothers;
    double n = bank->n_errors[column], scale = 1 / largest_of(n, 1e-12), mean = 0, top = -INFINITY, total = 0;
    const double *errors = bank->errors + column * C;
    for (count c = 0; c < C; c++) mean += errors[c];
    mean *= scale / (double)C;
    for (count c = 0; c < C; c++) {
        /* A candidate that has been exact so far may still be wrong. */
        double own = n > 0 && mean > 0 ? log(largest_of(errors[c] * scale, 1e-6 * mean) / mean) : 0;
        weights[c] = -view->power * (n * own + view->prior_errors * view->prior[c]) / (n + view->prior_errors);
        top = largest_of(top, weights[c]);
    }
    for (count c = 0; c < C; c++) total += weights[c] = exp(weights[c] - top);
    for (count c = 0; c < C; c++) weights[c] /= total;
}

static double asinh_or_number(double x)
{
    double found = asinh(x);
    return found != found ? 0 : isinf(found) ? (found > 0 ? 1.7976931348623157e308 : -1.7976931348623157e308) : found;
}

typedef struct {
    Pieces columns;
    const Bank *bank;
    const View *view;
    const count *rows;
    count steps, n_features;
    double *anchor, *unit, *features; /* (columns, steps), (columns), (columns, steps, n_features) */
} Glancing;

/* What is said about the next rows of one column. */
static void glance(const Glancing *of, count place, double *weights, double *said, double *entries, double *powers)
{
    const Bank *bank = of->bank;
    const View *view = of->view;
    count column = of->rows ? of->rows[place] : place, S = bank->smoothers, C = (1 + bank->profiles) * S;
    const double *level = bank->level + column * C, *trend = bank->trend + column * C, *errors = bank->errors + column * C;
    weigh_candidates(bank, view, column, weights);
    double n = bank->n_errors[column], own = 0, usual = view->noise * bank->size[column];
    for (count c = 0; c < C; c++) own += weights[c] * errors[c];
    own /= largest_of(n, 1e-12);
    double floor = floor_of(bank, view, column);
    double error = largest_of((n * own + view->prior_noise * usual) / (n + view->prior_noise), view->least_noise * usual);
    error = largest_of(error, floor);
    double shrunk = 1;
    if (bank->n_observed[column] >= view->ready_after && usual > 0)
        shrunk = smallest_of(bank->jump[column] / largest_of(view->least_noise * usual, view->smallest), 1);
    double unit = largest_of(0.5 * (error + usual) * shrunk, floor);
    double quiet = log(view->least_noise); /* always 0: as quiet as can be told */
    if (bank->largest[column] > 0) quiet = log(error / largest_of(bank->size[column], floor)) - log(view->noise);
    of->unit[place] = unit;
    double *sums = powers + S;
    for (count s = 0; s < S; s++) powers[s] = 1, sums[s] = 0;
    for (count step = 0; step < of->steps; step++) {
        find_entries(bank, column, step, entries);
        for (count s = 0; s < S; s++) sums[s] += powers[s] *= bank->damping[s];
        double anchor = 0, spread = 0;
        for (count p = 0; p <= bank->profiles; p++) {
            double factor = p && bank->multiplies[p - 1] ? entries[p - 1] : 1;
            double term = p && !bank->multiplies[p - 1] ? entries[p - 1] : 0;
            for (count s = 0; s < S; s++) {
                count c = p * S + s;
                said[c] = (level[c] + sums[s] * trend[c]) * factor + term;
                anchor += weights[c] * said[c];
            }
        }
        for (count c = 0; c < C; c++) spread += weights[c] * (said[c] - anchor) * (said[c] - anchor);
        double *features = of->features + (place * of->steps + step) * of->n_features;
        /* How many steps ahead of the last observed row: what is seen beyond the horizon is seen as its end. */
        count ahead = bank->silent[column] + step + 1;
        *features++ = 2 * log((double)(ahead < bank->horizon ? ahead : bank->horizon)) / log((double)bank->horizon + 1);
        *features++ = asinh((bank->last[column] - anchor) / unit);
        *features++ = asinh(sqrt(spread) / unit);
        *features++ = between(quiet, -3, 3);
        for (count s = 0; s < bank->seasons; s++) {
            count at = bank->season_starts[s] + (bank->n_rows[column] + step) % bank->lengths[s];
            *features++ = asinh_or_number((bank->latest[column * bank->places + at] - anchor) / unit);
        }
        if (view->counts) *features++ = log(largest_of(anchor, 0) + 0.02);
        of->anchor[place * of->steps + step] = anchor;
    }
}

static int glance_at_columns(void *job)
{
    Glancing *of = job;
    count S = of->bank->smoothers, C = (1 + of->bank->profiles) * S;
    double *memory = malloc((size_t)(2 * C + of->bank->profiles + 2 * S) * sizeof(double));
    for (count column; memory && (column = take(&of->columns)) >= 0;)
        glance(of, column, memory, memory + C, memory + 2 * C, memory + 2 * C + of->bank->profiles);
    free(memory);
    return !memory;
}

int glance_columns(const Bank *bank, const View *view, const count *rows, count n, count steps, count n_features,
                   double *anchor, double *unit, double *features, int n_threads)
{
    Glancing job = {{0, n}, bank, view, rows, steps, n_features, anchor, unit, features};
    return work_together(glance_at_columns, &job, n_threads);
}
