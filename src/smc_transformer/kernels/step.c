/* One step of all particles, for what the whole-sequence filter does not do: streams, gaps, forecasts, other distributions. */

#include "layer.h"
#include "pool.h"

typedef struct {
    count batch, particles, owners; /* owners: 1 where a sequence's particles share means and embedding, else particles */
    const real *query_mean, *key_mean, *value_mean, *embedding;          /* (batch, owners, d) */
    const real *query_noise, *key_noise, *value_noise, *attention_noise; /* (batch, particles, 1, d) */
    Strides noise_strides;
    real *keys, *values; /* (batch, particles, capacity, d), or those of more sequences */
    const count *held;   /* (batch): where the keys and values of each sequence are among them, or NULL: in their order */
    count *trajectories; /* (batch, particles, capacity) */
    count capacity, window; /* window: how many slots are attended to, 0: all */
    const count *n_slots; /* (batch): slots written so far; in a ring, as long as the window, also those written over */
    /* Forecast paths share what the particles they descend from remember; NULL for other particles. */
    const real *past_keys, *past_values; /* (batch, past_particles, past_slots, d) */
    const count *past_trajectories;      /* (batch, past_particles, past_slots) */
    const count *past_n_slots;           /* (batch): how many of the past's slots each sequence has, the first ones */
    const count *parents;                /* (batch, particles) */
    count past_particles, past_slots;
    real *z;                           /* (batch, particles, d) */
    real *parameters;                  /* (batch, particles, n_out), or NULL: no read-out here */
} Step;

SIZE_OF(Step, step)

static count at_least_0(count n) { return n > 0 ? n : 0; }

typedef struct {
    Pieces blocks;
    const Step *step;
    const Layer *layer;
} Stepping;

static int mutate_blocks(void *job)
{
    const Step *s = ((Stepping *)job)->step;
    const Layer *layer = ((Stepping *)job)->layer;
    count rows = s->batch * s->particles, d = layer->d, stride = padded(d);
    Workspace work;
    int ready = prepare(&work, layer, s->capacity + s->past_slots);
    for (count block; ready && (block = take(&((Stepping *)job)->blocks)) >= 0;) {
        count start = block * BLOCK, n_rows = rows - start < BLOCK ? rows - start : BLOCK;
        for (count row = 0; row < n_rows; row++) {
            count r = start + row, sequence = r / s->particles;
            count n_slots = s->n_slots[sequence], n_past = s->past_keys ? s->past_n_slots[sequence] : 0;
            count owned = (s->held ? s->held[sequence] : sequence) * s->particles;
            count written = n_slots % s->capacity, slot = ((owned + r % s->particles) * s->capacity + written) * d;
            /* What is attended to begins there, counted from the past's first slot. */
            count begin = s->window ? at_least_0(n_past + n_slots + 1 - s->window) : 0;
            count first = n_slots < s->capacity ? at_least_0(begin - n_past) : 0;
            count last = n_slots < s->capacity ? n_slots + 1 : s->capacity;
            count mean = (s->owners == 1 ? sequence : r) * d, noise = place(&s->noise_strides, sequence, r % s->particles, 0);
            count *trajectory = s->trajectories + r * s->capacity;
            multiply_add(work.query, layer->query_factor, s->query_noise + noise, s->query_mean + mean, d);
            multiply_add(s->keys + slot, layer->key_factor, s->key_noise + noise, s->key_mean + mean, d);
            multiply_add(s->values + slot, layer->value_factor, s->value_noise + noise, s->value_mean + mean, d);
            trajectory[written] = r % s->particles;
            count base = owned * s->capacity * d;
            Slots stretches[2] = {{s->keys + base, s->values + base, trajectory, first, last, s->capacity}};
            if (s->past_keys) {
                count past = sequence * s->past_particles, parent = past + s->parents[r];
                stretches[1] = (Slots){s->past_keys + past * s->past_slots * d,
                                       s->past_values + past * s->past_slots * d,
                                       s->past_trajectories + parent * s->past_slots,
                                       begin < n_past ? begin : n_past, n_past, s->past_slots};
            }
            attend(work.query, stretches, s->past_keys ? 2 : 1, layer, work.shares, work.context + row * stride);
            for (count i = 0; i < d; i++)
                work.z[row * stride + i] = layer->attention_factor[i] * s->attention_noise[noise + i];
        }
        multiply(work.context, d, work.output, work.z, d);
        for (count row = 0; row < n_rows; row++) {
            count r = start + row;
            memcpy(s->z + r * d, work.z + row * stride, d * sizeof(real));
            /* Rows of a block may belong to different sequences, so the embedding is added here. */
            const real *e = s->embedding + (s->owners == 1 ? r / s->particles : r) * d;
            memcpy(work.context + row * stride, e, d * sizeof(real));
        }
        if (s->parameters)
            read_out(layer, &work, work.context, stride, n_rows, s->parameters + start * layer->n_out,
                     layer->n_out);
    }
    release(&work);
    return !ready;
}

/* Returns 0, or 1 when there was not enough memory. */
int mutate_particles(const Step *s, const Layer *layer, int n_threads)
{
    Stepping job = {{0, (s->batch * s->particles + BLOCK - 1) / BLOCK}, s, layer};
    return work_together(mutate_blocks, &job, n_threads);
}

typedef struct {
    Pieces sequences;
    count *trajectories;
    const count *ancestors;
    count particles, capacity, first, last;
} Inheriting;

static int inherit_sequences(void *job)
{
    Inheriting *of = job;
    count held = of->last - of->first;
    count *inherited = malloc((size_t)(of->particles * held + 1) * sizeof(count));
    for (count sequence; inherited && (sequence = take(&of->sequences)) >= 0;) {
        count *own = of->trajectories + sequence * of->particles * of->capacity + of->first;
        const count *parents = of->ancestors + sequence * of->particles;
        for (count m = 0; m < of->particles; m++)
            memcpy(inherited + m * held, own + parents[m] * of->capacity, held * sizeof(count));
        for (count m = 0; m < of->particles; m++)
            memcpy(own + m * of->capacity, inherited + m * held, held * sizeof(count));
    }
    free(inherited);
    return !inherited;
}

/* Children take over the slots first, ..., last - 1 of their parents' trajectories:
   trajectories[m] <- trajectories[ancestors[m]]. */
int inherit_trajectories(count *trajectories, const count *ancestors, count batch, count particles, count capacity,
                         count first, count last, int n_threads)
{
    Inheriting job = {{0, batch}, trajectories, ancestors, particles, capacity, first, last};
    return work_together(inherit_sequences, &job, n_threads);
}
