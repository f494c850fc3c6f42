/* SPDX-License-Identifier: Apache-2.0
 *
 * A reset of the ledger's peaks beside a thread that allocates and frees, in every order of their
 * accesses. Broken are: a value that was reached after the reset and is above the peak, and a peak
 * that was reached before the reset began.
 */
#include "interleave.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLD_BYTES = 1 << 20, OLD_COUNT = 9 };

static struct world {
    bool started, done; /* the reset */
    uint64_t during;    /* the highest values since it started, and since it ended */
    uint64_t after;
    uint64_t requested_during;
    uint64_t requested_after;
} w;

static void saw(const void *at, uint64_t value);

static uint64_t step_load(const _Atomic uint64_t *at)
{
    interleave_step("load");
    return atomic_load(at);
}

static void step_store(_Atomic uint64_t *at, uint64_t value)
{
    interleave_step("store");
    atomic_store(at, value);
}

static uint64_t step_exchange(_Atomic uint64_t *at, uint64_t value)
{
    interleave_step("exchange");
    return atomic_exchange(at, value);
}

static uint64_t step_add(_Atomic uint64_t *at, uint64_t by)
{
    interleave_step("add");
    uint64_t before = atomic_fetch_add(at, by);
    saw(at, before + by);
    return before;
}

static bool step_replace(_Atomic uint64_t *at, uint64_t *expected, uint64_t value)
{
    interleave_step("replace");
    return atomic_compare_exchange_strong(at, expected, value);
}

/* From here on each access is a step. */
#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_load(at)                             step_load(at)
#define atomic_load_explicit(at, order)             step_load(at)
#define atomic_store(at, value)                     step_store(at, value)
#define atomic_store_explicit(at, value, order)     step_store(at, value)
#define atomic_exchange(at, value)                  step_exchange(at, value)
#define atomic_fetch_add_explicit(at, value, order) step_add(at, value)
#define atomic_fetch_sub_explicit(at, value, order) step_add(at, -(uint64_t)(value))
#define atomic_compare_exchange_weak_explicit(at, expected, value, yes, no)                        \
    step_replace(at, expected, value)
#include "ledger.h"

static struct zone_ledger ledger;

static void raise(uint64_t *highest, uint64_t value)
{
    *highest = value > *highest ? value : *highest;
}

static void saw(const void *at, uint64_t value)
{
    bool held = at == &ledger.held;
    if (w.started && (held || at == &ledger.requested.now)) {
        raise(held ? &w.during : &w.requested_during, value);
    }
    if (w.done && (held || at == &ledger.requested.now)) {
        raise(held ? &w.after : &w.requested_after, value);
    }
}

static uint64_t plain(const void *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

static void run_take(int thread, int units)
{
    (void)thread;
    zone_ledger_hand_out(&ledger, (size_t)units * ZONE_LEDGER_GRANULE, (size_t)units);
}

static void run_give(int thread, int units)
{
    (void)thread;
    zone_ledger_take_back(&ledger, (size_t)units * ZONE_LEDGER_GRANULE, (size_t)units);
}

static void run_reset(int thread, int arg)
{
    (void)thread;
    (void)arg;
    w.started = true;
    w.during = plain(&ledger.held);
    w.requested_during = plain(&ledger.requested.now);
    zone_ledger_reset_peaks(&ledger);
    w.done = true;
    w.after = plain(&ledger.held);
    w.requested_after = plain(&ledger.requested.now);
}

static void begin(void)
{
    uint64_t one = zone_ledger_entry(ZONE_LEDGER_GRANULE);
    memset(&w, 0, sizeof(w));
    memset((void *)&ledger, 0, sizeof(ledger));
    const uint64_t start[] = {one, OLD_BYTES, OLD_COUNT, 0, 1, OLD_BYTES};
    memcpy((void *)&ledger, start, sizeof(start));
}

static uint64_t hash(void)
{
    return interleave_mix(interleave_mix(1, &ledger, sizeof(ledger)), &w, sizeof(w));
}

static void between(const char *what, const void *peak, uint64_t low, uint64_t high)
{
    uint64_t value = plain(peak);
    if (value < low || value > high) {
        interleave_fail("the peak of %s is %llu, not from %llu to %llu", what,
                        (unsigned long long)value, (unsigned long long)low,
                        (unsigned long long)high);
    }
}

static void finish(void)
{
    between("bytes", &ledger.allocated_peak, zone_ledger_entry_bytes(w.after),
            zone_ledger_entry_bytes(w.during));
    between("blocks", &ledger.live_peak, zone_ledger_entry_count(w.after),
            zone_ledger_entry_count(w.during));
    between("requests", &ledger.requested.peak, w.requested_after, w.requested_during);
    between("all time", &ledger.allocated_before, OLD_BYTES, OLD_BYTES);
}

#define TAKE(n)                                                                                    \
    {                                                                                              \
        run_take, n, "take " #n                                                                    \
    }
#define GIVE(n)                                                                                    \
    {                                                                                              \
        run_give, n, "give " #n                                                                    \
    }
#define RESET                                                                                      \
    {                                                                                              \
        run_reset, 0, "reset"                                                                      \
    }

static const struct interleave_scenario scenarios[] = {
    {"a block that stays", {{TAKE(2)}, {RESET}}, begin, hash, finish},
    {"a block that goes", {{TAKE(2), GIVE(2), TAKE(1)}, {RESET}}, begin, hash, finish},
    {"less and more", {{GIVE(1), TAKE(3), GIVE(3), TAKE(2)}, {RESET}}, begin, hash, finish},
    {"two resets", {{TAKE(2), GIVE(2), TAKE(1)}, {RESET, RESET}}, begin, hash, finish},
};

/* Its checks of memory do not understand stacks that are looked at from outside. */
static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

/* All runs in one thread, and the checker does not know coroutines. */
static bool under_thread_sanitizer(void)
{
#if defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

int main(void)
{
    enum { SKIPPED = 77 };
    setvbuf(stdout, NULL, _IOLBF, 0);
    bool failed = false;
    if (under_valgrind() || under_thread_sanitizer()) {
        printf("skipped: coroutines under a checker\n");
        return SKIPPED;
    }
    for (unsigned i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]) && !failed; i++) {
        struct interleave_counts counts = interleave_explore(&scenarios[i]);
        failed = counts.failed;
        printf("%s: %llu states, %llu runs, %llu steps: %s\n", scenarios[i].name,
               (unsigned long long)counts.states, (unsigned long long)counts.runs,
               (unsigned long long)counts.steps, counts.failed ? counts.failure : "ok");
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
