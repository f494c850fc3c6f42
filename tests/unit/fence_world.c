/* SPDX-License-Identifier: Apache-2.0
 *
 * A number for the state of fence_interleave.c's world and fence: see fence_world.h.
 */
#include "fence_world.h"

static uint64_t mix_number(uint64_t hash, uint64_t number)
{
    return interleave_mix(hash, &number, sizeof(number));
}

/* How much work below that number runs: all that its order means from here on. */
static uint64_t running_below(unsigned number)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < number && i < w.works; i++) {
        count += !w.work[i].complete;
    }
    return count;
}

static bool is_spare(const struct event *event)
{
    for (unsigned i = 0; i < fence.spares; i++) {
        if (fence.spare[i] == event) {
            return true;
        }
    }
    return false;
}

static uint64_t hash_world(void)
{
    uint64_t hash = 1;
    for (int i = 0; i < BLOCKS; i++) {
        hash = mix_number(hash, w.blocks[i].state);
        hash = mix_number(hash, w.blocks[i].state == BLOCK_FREED ? w.blocks[i].stamp : 0);
    }
    hash = interleave_mix(hash, w.queue, w.queued * sizeof(w.queue[0]));
    hash = mix_number(hash, w.generation);
    for (unsigned i = 0; i < w.works; i++) {
        if (!w.work[i].complete) {
            hash = mix_number(hash, (uint64_t)w.work[i].block);
        }
    }
    for (unsigned i = 0; i < w.made; i++) {
        const struct event *event = &w.events[i];
        if (event->state == EVENT_DEAD || is_spare(event)) {
            continue;
        }
        hash = mix_number(hash, (uint64_t)i << 8 | event->state);
        hash = mix_number(hash, running_below(event->covers));
        for (int t = 0; t < INTERLEAVE_THREADS; t++) {
            hash = mix_number(hash, event->changed[t]);
            hash = mix_number(hash, event->covers > w.actors[t].may_await);
        }
    }
    for (int t = 0; t < INTERLEAVE_THREADS; t++) {
        hash = mix_number(hash, (uint64_t)w.actors[t].held);
        hash = mix_number(hash, running_below(w.actors[t].may_await));
    }
    return hash;
}

static uint64_t hash_fence(uint64_t hash)
{
    hash = mix_number(hash, fence.open);
    hash = mix_number(hash, fence.ready);
    hash = mix_number(hash, fence.pending);
    hash = mix_number(hash, fence.head);
    hash = mix_number(hash, fence.tail);
    hash = mix_number(hash, fence.recording);
    hash = mix_number(hash, fence.ask_newest);
    hash = mix_number(hash, fence.carry);
    hash = mix_number(hash, fence.spares);
    hash = interleave_mix(hash, (const void *)fence.spare, fence.spares * sizeof(fence.spare[0]));
    for (uint64_t i = fence.head; i < fence.tail; i++) {
        const struct zone_mark *mark = &fence.marks[i % ZONE_FENCE_MARKS];
        hash = mix_number(hash, mark->epoch);
        hash = mix_number(hash, (uintptr_t)mark->event);
        hash = mix_number(hash, mark->bytes);
        hash = mix_number(hash, (uint64_t)mark->users << 1 | mark->settled);
    }
    return hash;
}

uint64_t fence_world_hash(void)
{
    return hash_fence(hash_world());
}
