/* SPDX-License-Identifier: Apache-2.0
 *
 * Random pauses at the edges of driver calls and of queued work, by ZSIM_JITTER_US: threads and
 * streams then meet in orders that an undisturbed run hardly ever shows. The pauses of a thread
 * follow from ZSIM_JITTER_SEED and from how many threads paused first before it. Takes no lock and
 * must not be called with one held.
 */
#include "sim.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { UNKNOWN = -1 };

static atomic_long most_us = UNKNOWN;
static atomic_uint_least64_t threads_seen;

static long number(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : fallback;
}

static long jitter_us(void)
{
    long us = atomic_load_explicit(&most_us, memory_order_relaxed);
    if (us == UNKNOWN) {
        us = number("ZSIM_JITTER_US", 0);
        us = us < 0 ? 0 : us;
        atomic_store_explicit(&most_us, us, memory_order_relaxed);
    }
    return us;
}

bool sim_jitters(void)
{
    return jitter_us() > 0;
}

/* A step of splitmix64 (public domain, Sebastiano Vigna); 0 is a thread that has not drawn yet. */
static uint64_t draw(void)
{
    static __thread uint64_t state;
    if (state == 0) {
        uint64_t seed = (uint64_t)number("ZSIM_JITTER_SEED", 1);
        uint64_t thread = atomic_fetch_add_explicit(&threads_seen, 1, memory_order_relaxed) + 1;
        state = (seed << 32 ^ thread) * UINT64_C(0xD1342543DE82EF95) | 1;
    }
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Seldom, or a program would hardly get on; and often only to let others run. */
void sim_jitter(void)
{
    enum { PAUSE_ONCE_IN = 16, YIELD_ONCE_IN = 4 };
    long most = jitter_us();
    if (most == 0) {
        return;
    }
    uint64_t drawn = draw();
    if (drawn % PAUSE_ONCE_IN == 0) {
        long us = 1 + (long)((drawn >> 32) % (uint64_t)most);
        const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    } else if (drawn % YIELD_ONCE_IN == 1) {
        sched_yield();
    }
}
