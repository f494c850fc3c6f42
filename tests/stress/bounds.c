/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that look at how much of the device is taken: limits that the configuration sets, and
 * that everything cached comes back when it is needed. The world is stopped.
 */
#include "ops.h"

#include "claim.h"

enum { BURST = 1100, FILL_BLOCKS = 80 };

/* All that the program does not hold can be had, in one piece. */
static void op_all(struct thread *thread)
{
    struct place *place = place_any(&thread->rng);
    size_t held = claim_held();
    if (held + 1 >= claim_limit()) {
        return;
    }
    size_t chunks = claim_limit() - held;
    struct block *block = block_new(thread, place, PLAIN, chunks * 2 * MIB);
    if (block) {
        block_free_now(block);
    }
}

/* Takes all that is left in blocks of a new size, so that the driver is asked for each. */
static unsigned fill_device(struct thread *thread, struct place *place, struct block **ret_blocks)
{
    unsigned count = 0;
    size_t chunks = claim_limit() / 64 + 2;
    size_t bytes = chunks * 2 * MIB - 512 * (size_t)(1 + rng_below(&thread->rng, 4000));
    while (count < FILL_BLOCKS && claim_held() + chunks <= claim_limit()) {
        if (claim_held() + 2 * chunks > claim_limit()) {
            /* The pool looks how full the device is at most so often, if it seemed empty. */
            sleep_us(110000);
        }
        struct block *block = block_new(thread, place, PLAIN, bytes);
        if (!block) {
            break;
        }
        ret_blocks[count++] = block;
    }
    return count;
}

/* A full device is given back in the frees: what is pending, what is kept and what the driver is
 * left have their bounds. */
static void op_bounds(struct thread *thread)
{
    struct block *blocks[FILL_BLOCKS];
    struct place *place = place_any(&thread->rng);
    CUstream stream = place->streams[2];
    const struct conf *conf = &stress.conf;
    if (!stress.simulated || !conf->pools || !conf->fits || conf->unsafe || stress.plan.inject ||
        stress.plan.async) {
        return;
    }
    unsigned count = fill_device(thread, place, blocks);
    size_t freed = count * (count > 0 ? blocks[0]->bytes : 0);
    place_use(place);
    submit_spin(place, stream, 10000);
    for (unsigned i = 0; i < count; i++) {
        block_free_now(blocks[i]);
    }
    if (freed > conf->max_pending) {
        CUresult rc = cuStreamQuery(stream);
        REQUIRE(rc == CUDA_SUCCESS,
                "%zu bytes were freed, more than max_pending_mb, without a wait", freed);
    }
    size_t taken = zsim_bytes();
    size_t capacity = stress_capacity();
    size_t min_free = conf->min_free < capacity / 16 ? conf->min_free : capacity / 16;
    /* What goes back is counted in bytes, of which small blocks free a chunk only together. */
    if (freed > min_free + 8 * MIB) {
        REQUIRE(capacity - taken >= min_free / 2,
                "%zu of %zu bytes are left, less than min_free_mb", capacity - taken, capacity);
    }
    /* The other place may keep as much, and small blocks of the program share chunks with it. */
    size_t held = (claim_held() + 8) * 2 * MIB;
    if (conf->max_cached != SIZE_MAX) {
        REQUIRE(taken <= held + 2 * conf->max_cached + 24 * MIB,
                "%zu bytes are taken, %zu held: more than max_cached_mb is kept", taken, held);
    }
}

/* More frees that record than the pool has marks for, all while work goes on. */
static void op_burst(struct thread *thread)
{
    static struct block *blocks[BURST];
    struct place *place = &stress.places[0];
    unsigned count = 0;
    if (claim_limit() < claim_held() + BURST + 64) {
        return;
    }
    while (count < BURST && (blocks[count] = block_new(thread, place, PLAIN, MIB)) != NULL) {
        count++;
    }
    place_use(place);
    submit_spin(place, place->streams[2], 30000);
    for (unsigned i = 0; i < count; i++) {
        block_free_now(blocks[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = block_new(thread, place, PLAIN, MIB);
    }
    for (unsigned i = 0; i < count; i++) {
        if (blocks[i]) {
            block_free_now(blocks[i]);
        }
    }
}

const struct op ops_bounds[] = {
    {"all", 4, op_all, true, NULL},
    {"bounds", 2, op_bounds, true, NULL},
    {"burst", 4, op_burst, true, NULL},
    {NULL, 0, NULL, false, NULL},
};
