/* SPDX-License-Identifier: Apache-2.0
 *
 * How many things of each kind live, so that a test can see what a program, or a library under it,
 * has lost.
 */
#include "sim.h"
#include "zsim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum sim_kind kinds[2];
} kinds[] = {
    {"arrays", {SIM_ARRAY, SIM_NONE}},   {"events", {SIM_EVENT, SIM_NONE}},
    {"graphs", {SIM_GRAPH, SIM_EXEC}},   {"libraries", {SIM_LIBRARY, SIM_EXTERNAL}},
    {"modules", {SIM_MODULE, SIM_NONE}}, {"physical", {SIM_PHYSICAL, SIM_NONE}},
    {"pools", {SIM_POOL, SIM_NONE}},     {"streams", {SIM_STREAM, SIM_NONE}},
};

static uint64_t contexts(void)
{
    uint64_t count = 0;
    for (const struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        count += ctx->alive;
    }
    return count;
}

uint64_t zsim_live(const char *kind)
{
    uint64_t count = 0;
    bool known = false;
    sim_lock();
    if (strcmp(kind, "allocations") == 0) {
        count = sim_block_count();
        known = true;
    } else if (strcmp(kind, "contexts") == 0) {
        count = contexts();
        known = true;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            count = sim_handle_count(kinds[i].kinds[0]);
            count += kinds[i].kinds[1] ? sim_handle_count(kinds[i].kinds[1]) : 0;
            known = true;
        }
    }
    sim_unlock();
    if (!known) {
        fprintf(stderr, "zsim: nothing is called %s\n", kind);
        abort();
    }
    return count;
}
