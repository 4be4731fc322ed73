/* Standard normal noise from a counter: Threefry, then the inverse of the normal cdf.

   Numbers depend on the seed and their place alone, so threads share the work and change nothing. A stream of its own
   for each row of a batch has the key (key of the row, step), and numbers its draws in the counter: what a row draws
   does not depend on the rows beside it. */

#include "noise.h"
#include "pool.h"
#include "threefry.h"

enum { COUNTERS = 16, AT_ONCE = 4 * COUNTERS }; /* each counter gives four numbers */

/* For tests: the four words of one counter. */
void threefry_words(const uint32_t counter[4], const uint32_t key[4], uint32_t out[4])
{
    words x[4];
    for (int i = 0; i < 4; i++) x[i] = (words){0} + counter[i];
    threefry(x, key);
    for (int i = 0; i < 4; i++) out[i] = x[i][0];
}

enum { BLOCKS_AT_ONCE = 256 }; /* in a piece of work */

/* The words of a block of counters; the fourth word of a counter is the number of the draw. */
static void make_words(const uint32_t key[4], uint32_t draw, count block, uint32_t bits[AT_ONCE])
{
    for (int first = 0; first < COUNTERS; first += SIDE_BY_SIDE) {
        uint32_t numbers[SIDE_BY_SIDE];
        for (int i = 0; i < SIDE_BY_SIDE; i++) numbers[i] = (uint32_t)(first + i);
        words x[4] = {{0}, (words){0} + (uint32_t)block, (words){0} + (uint32_t)(block >> 32), (words){0} + draw};
        memcpy(&x[0], numbers, sizeof x[0]);
        threefry(x, key);
        for (int i = 0; i < 4; i++) memcpy(bits + i * COUNTERS + first, &x[i], sizeof x[i]);
    }
}

static void make_block(const uint32_t key[4], uint32_t draw, count block, real *restrict numbers)
{
    uint32_t bits[AT_ONCE];
    float quantiles[AT_ONCE];
    make_words(key, draw, block, bits);
    normal_quantiles(bits, quantiles, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) numbers[i] = (real)quantiles[i];
}

void normal_numbers(real *out, count first, count n, Stream stream)
{
    real numbers[AT_ONCE];
    for (count block = first / AT_ONCE; block * AT_ONCE < first + n; block++) {
        count begin = block * AT_ONCE, from = first > begin ? first - begin : 0;
        count to = first + n - begin < AT_ONCE ? first + n - begin : AT_ONCE;
        if (from == 0 && to == AT_ONCE) {
            make_block(stream.key, stream.draw, block, out + begin - first);
            continue;
        }
        make_block(stream.key, stream.draw, block, numbers);
        memcpy(out + begin + from - first, numbers + from, (to - from) * sizeof(real));
    }
}

typedef struct {
    Pieces pieces;
    real *out;
    count n, n_blocks;
    uint32_t key[4];
} Filling;

static void fill_block(const Filling *f, count block)
{
    real numbers[AT_ONCE];
    make_block(f->key, 0, block, numbers);
    count first = block * AT_ONCE, here = f->n - first < AT_ONCE ? f->n - first : AT_ONCE;
    memcpy(f->out + first, numbers, here * sizeof(real));
}

static int fill_blocks(void *job)
{
    Filling *f = job;
    for (count piece; (piece = take(&f->pieces)) >= 0;)
        for (count block = piece * BLOCKS_AT_ONCE; block < (piece + 1) * BLOCKS_AT_ONCE && block < f->n_blocks; block++)
            fill_block(f, block);
    return 0;
}

/* Fill `out` with n standard normal numbers. */
void fill_normal(real *out, count n, uint64_t seed, int n_threads)
{
    count n_blocks = (n + AT_ONCE - 1) / AT_ONCE;
    Filling job = {{0, (n_blocks + BLOCKS_AT_ONCE - 1) / BLOCKS_AT_ONCE}, out, n, n_blocks,
                   {(uint32_t)seed, (uint32_t)(seed >> 32), 0, 0}};
    work_together(fill_blocks, &job, n_threads);
}

void uniform_numbers(double *out, count n, Stream stream)
{
    uint32_t bits[AT_ONCE];
    for (count i = 0; i < n; i++) { /* 53 bits of two words each */
        count place = i % (AT_ONCE / 2);
        if (place == 0) make_words(stream.key, stream.draw, i / (AT_ONCE / 2), bits);
        uint64_t both = (uint64_t)bits[2 * place] << 32 | bits[2 * place + 1];
        out[i] = (double)(both >> 11) * 0x1p-53;
    }
}

typedef struct {
    Pieces rows;
    real *normal;     /* (rows, n), or NULL: uniforms are wanted */
    double *uniforms; /* (rows, n) */
    count n;
    const uint64_t *keys, *steps; /* (rows) */
    uint32_t draw;
} FillingRows;

static int fill_some_rows(void *job)
{
    FillingRows *f = job;
    for (count row; (row = take(&f->rows)) >= 0;) {
        Stream stream = stream_of(f->keys[row], f->steps[row], f->draw);
        if (f->normal) {
            normal_numbers(f->normal + row * f->n, 0, f->n, stream);
            continue;
        }
        uniform_numbers(f->uniforms + row * f->n, f->n, stream);
    }
    return 0;
}

/* Fill `out` with standard normal numbers, n for each row from a stream of its own. */
void fill_normal_rows(real *out, count rows, count n, const uint64_t *keys, const uint64_t *steps, uint32_t draw,
                      int n_threads)
{
    FillingRows job = {{0, rows}, out, NULL, n, keys, steps, draw};
    work_together(fill_some_rows, &job, n_threads);
}

/* The same with uniform numbers in [0, 1). */
void fill_uniform_rows(double *out, count rows, count n, const uint64_t *keys, const uint64_t *steps, uint32_t draw,
                       int n_threads)
{
    FillingRows job = {{0, rows}, NULL, out, n, keys, steps, draw};
    work_together(fill_some_rows, &job, n_threads);
}
