/* SPDX-License-Identifier: Apache-2.0
 *
 * See initial.h.
 */
#include "initial.h"

#include "text.h"

static _Atomic bool initial_taken[ZONE_OPTIONS_DEVICES];

size_t zone_initial_claim(const struct zone_options *options, int device)
{
    size_t unit = 2 * ZONE_MIB;
    size_t bytes = zone_options_bytes(options->initial_pool_size_mb);
    if (ZONE_LIKELY(bytes == 0) || options->backend != ZONE_BACKEND_NATIVE || device < 0 ||
        device >= ZONE_OPTIONS_DEVICES || atomic_load(&initial_taken[device]) ||
        atomic_exchange(&initial_taken[device], true)) {
        return 0;
    }
    return (bytes + unit - 1) / unit * unit;
}

void zone_initial_unclaim(int device)
{
    atomic_store(&initial_taken[device], false);
}

void zone_initial_refused(const struct zone_process *process, int device)
{
    char line[ZONE_OPTIONS_LINE] = "";
    zone_text_append(line, sizeof(line),
                     "ZONE_ALLOC_CONF: initial_pool_size_mb: device %d does not have %llu MiB %s; "
                     "runs without an initial pool",
                     device, (unsigned long long)process->options->initial_pool_size_mb,
                     zone_limit_bytes(device) == SIZE_MAX ? "free" : "free within its limit");
    if (process->say) {
        process->say(line);
    }
}

bool zone_pool_add_initial(struct zone_pool *pool, zone_addr_t addr, size_t bytes)
{
    struct zone_block *block =
        zone_arena_add(&pool->large, pool, addr, bytes, bytes, &pool->large_rules);
    if (!block) {
        zone_limit_return(pool->device, bytes);
        return false;
    }
    pool->initial = true;
    zone_ledger_grow(&pool->ledger, bytes);
    /* Never old: it is the user's wish that it stays. */
    block->stamp = UINT64_MAX;
    zone_arena_put(&pool->large, block);
    zone_pool_look(pool, bytes);
    return true;
}

void zone_initial_forget(struct zone_pool *pool)
{
    if (pool->initial) {
        pool->initial = false;
        zone_initial_unclaim(pool->device);
    }
}

void zone_pool_start(struct zone_pool *pool)
{
    uint64_t ns;
    zone_addr_t addr;
    size_t bytes = zone_initial_claim(pool->process->options, pool->device);
    if (ZONE_LIKELY(bytes == 0)) {
        return;
    }
    int rc = zone_pool_driver_alloc(pool, bytes, &addr, &ns);
    if (rc == ZONE_GPU_OK) {
        zone_pool_add_initial(pool, addr, bytes);
    } else if (rc == ZONE_GPU_OUT_OF_MEMORY) {
        zone_initial_refused(pool->process, pool->device);
    } else {
        zone_initial_unclaim(pool->device);
    }
}
