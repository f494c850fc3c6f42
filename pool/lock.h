/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of the fast paths: held for a few instructions, never across a call of the device or the
 * system, so that a waiter spins. Half the atomic operations of a mutex, of which an allocation
 * would pay four. A holder that was preempted is waited for by sleeping, whatever the scheduling
 * class.
 */
#pragma once

#include "base.h"

#include <stdatomic.h>
#include <time.h>

typedef _Atomic uint32_t zone_lock_t;

static inline void zone_lock_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static ZONE_COLD __attribute__((unused)) void zone_lock_contended(zone_lock_t *lock)
{
    /* About a tenth of a millisecond of looking, further and further apart. */
    enum { LOOKS = 200, PAUSES_MAX = 32, NAP_NS = 50000 };
    unsigned pauses = 1;
    for (unsigned looks = 0;; looks++) {
        if (atomic_load_explicit(lock, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(lock, 1, memory_order_acquire) == 0) {
            return;
        }
        if (looks < LOOKS) {
            for (unsigned i = 0; i < pauses; i++) {
                zone_lock_pause();
            }
            pauses = pauses < PAUSES_MAX ? 2 * pauses : pauses;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        }
    }
}

static inline void zone_lock(zone_lock_t *lock)
{
    if (ZONE_UNLIKELY(atomic_exchange_explicit(lock, 1, memory_order_acquire) != 0)) {
        zone_lock_contended(lock);
    }
}

static inline void zone_unlock(zone_lock_t *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* Adds to a number that is only changed under a lock, but read without it. */
static inline void zone_tally_add(_Atomic uint64_t *count, uint64_t more)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + more, memory_order_relaxed);
}
