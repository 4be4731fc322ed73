/* The state of the local view, and what it does for a row (view.c). */

#ifndef SMC_TRANSFORMER_VIEW_H
#define SMC_TRANSFORMER_VIEW_H

#include "common.h"

typedef struct {
    count seasons, profiles, smoothers, origins, places, entries; /* how many there are */
    count horizon, stride, judged_every, rows_before_judging;
    double remembered; /* of the errors so far, when new ones come */
    double size_rate, profile_level_rate, profile_level_seasons, smallest_factor, largest_factor;
    const count *lengths, *season_starts;             /* (seasons) */
    const count *season_of, *starts;                  /* (profiles): and where its entries begin */
    const uint8_t *multiplies;                        /* (profiles) */
    const double *rates;                              /* (profiles) */
    const double *level_rates, *trend_rates, *damping; /* (smoothers) */
    const double *sums; /* (oldest + 1, smoothers): phi + ... + phi^age of forecasts that are running */
    count oldest;
    /* The state, a row for each column. */
    count *n_rows, *n_observed, *silent;
    double *last, *size, *largest, *jump, *profile_entries, *latest;
    count *visits;
    double *reference, *level, *trend, *origin_level, *origin_trend, *errors, *n_errors;
} Bank;

typedef struct {
    count counts, ready_after; /* counts: whether the values are; ready_after: rows by which a column is known to be quiet */
    const double *prior;       /* (candidates) */
    double noise, floor, power, prior_errors, prior_noise, least_noise, least_unit, smallest;
} View;

enum { FEW_PROFILES = 256 }; /* which need no memory of their own */

/* Let columns take their next values, in place; NaN is missing. Returns 0, or 1 when there was not enough memory, and then
   nothing has happened: never with few profiles. */
int observe_columns(const Bank *bank, const count *rows, count n, const double *y);

/* What is said about the next rows of columns: anchor (columns, steps), unit (columns), features (columns, steps,
   n_features). Returns 0, or 1 when there was not enough memory. */
int glance_columns(const Bank *bank, const View *view, const count *rows, count n, count steps, count n_features,
                   double *anchor, double *unit, double *features, int n_threads);

#endif
