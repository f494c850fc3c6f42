/* SPDX-License-Identifier: Apache-2.0
 *
 * A million blocks of a hundred thousand sizes: an allocation and a free take about as many
 * instructions as with a thousand blocks, in random order and by address; the records take at most
 * 120 bytes a block; and neither records nor the device's memory grow with time. On a device that
 * is always ready and never full, so that what is counted is the pool's own.
 */
#include "meta.h"
#include "pool.h"
#include "ptrmap.h"
#include "registry.h"
#include "steps.h"
#include "unit_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEW = 1000, MANY = 1000000, SIZES = 100000, SAMPLE = 50, MOST_BYTES = 120 };

static zone_addr_t flat_next = (zone_addr_t)1 << 32;
static uint64_t flat_clock;
static size_t flat_held;

static int flat_alloc(zone_addr_t *ret_addr, size_t bytes)
{
    *ret_addr = flat_next;
    flat_next += (bytes + 2 * ZONE_MIB - 1) / (2 * ZONE_MIB) * (2 * ZONE_MIB);
    flat_held += bytes;
    return ZONE_GPU_OK;
}

static int flat_free(zone_addr_t addr)
{
    (void)addr;
    return ZONE_GPU_OK;
}

static int flat_context(void *ctx)
{
    (void)ctx;
    return ZONE_GPU_OK;
}

static int flat_event_create(void *ctx, void **ret_event)
{
    *ret_event = ctx;
    return ZONE_GPU_OK;
}

static int flat_record(void *ctx, void *event)
{
    return ctx == event ? ZONE_GPU_OK : ZONE_GPU_INVALID_VALUE;
}

static int flat_event(void *event)
{
    (void)event;
    return ZONE_GPU_OK;
}

static int flat_mem_info(void *ctx, size_t *ret_free, size_t *ret_total)
{
    (void)ctx;
    *ret_total = 1024 * ZONE_GIB;
    *ret_free = *ret_total - flat_held;
    return ZONE_GPU_OK;
}

static uint64_t flat_now(void)
{
    return flat_clock += 100;
}

static void flat_sleep(uint64_t ns)
{
    flat_clock += ns;
}

static const struct zone_gpu flat_gpu = {
    .alloc = flat_alloc,
    .free = flat_free,
    .free_nothing = flat_context,
    .event_create = flat_event_create,
    .record = flat_record,
    .query = flat_event,
    .wait = flat_event,
    .synchronize = flat_context,
    .mem_info = flat_mem_info,
    .now_ns = flat_now,
    .sleep_ns = flat_sleep,
};

static struct zone_options options;
static struct zone_process process = {.gpu = &flat_gpu, .options = &options};
static struct zone_pool *pool;
static zone_addr_t held[MANY];
static volatile long stage;
static uint64_t seed;

static size_t below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(seed >> 33) % n;
}

static void allocate(zone_addr_t *ret_addr)
{
    if (zone_pool_alloc(pool, 1 + below(SIZES), ret_addr) != ZONE_GPU_OK) {
        _exit(1);
    }
}

static void release(zone_addr_t addr)
{
    struct zone_block *block = zone_ptrmap_get(addr);
    if (!block || !zone_block_claim(block) || zone_pool_free(block, ZONE_FREE_BY_FREE) != 0) {
        _exit(2);
    }
}

static void again(size_t i)
{
    release(held[i]);
    allocate(&held[i]);
}

static int by_address(const void *a, const void *b)
{
    const zone_addr_t *left = a;
    const zone_addr_t *right = b;
    return (*left > *right) - (*left < *right);
}

static void say(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "%s\n", line);
    _exit(3);
}

/* count blocks, each freed and allocated again about once; then by address, if so asked. */
static void fill(size_t count, bool ordered, const char *conf)
{
    struct zone_context_facts facts = {.ctx = &seed, .id = 1, .primary = true};
    zone_options_init(&options);
    zone_options_parse(&options, "CONF", conf, say, NULL);
    pool = zone_registry_make(&process, &facts);
    seed = 1;
    for (size_t i = 0; i < count; i++) {
        allocate(&held[i]);
    }
    for (size_t i = 0; i < count; i++) {
        again(below(count));
    }
    if (ordered) {
        qsort(held, count, sizeof(held[0]), by_address);
    }
}

/* The instructions of a free and an allocation, on average over some. */
static long steps_of(size_t count, bool ordered, const char *conf)
{
    long counts[2] = {0};
    pid_t pid = fork();
    if (pid == 0) {
        fill(count, ordered, conf);
        for (size_t i = 0; i < SAMPLE; i++) {
            again(i); /* what the first time costs more is not counted */
        }
        steps_begin();
        for (size_t i = 0; i < SAMPLE; i++) {
            size_t which = ordered ? SAMPLE + i : below(count);
            stage = 1;
            again(which);
            stage = 0;
        }
        _exit(0);
    }
    ck_assert(steps_count(pid, &stage, counts, 2));
    return counts[1] / SAMPLE;
}

START_TEST(instructions)
{
    static const struct {
        bool ordered;
        const char *conf;
        size_t many;
    } ways[] = {{false, "", MANY}, {true, "", MANY}, {false, "max_cached_mb:16", MANY / 4}};
    for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        long few = steps_of(FEW, ways[i].ordered, ways[i].conf);
        long many = steps_of(ways[i].many, ways[i].ordered, ways[i].conf);
        fprintf(stderr, "%s, \"%s\": %ld instructions with %d blocks, %ld with %zu\n",
                ways[i].ordered ? "by address" : "random", ways[i].conf, few, FEW, many,
                ways[i].many);
        ck_assert_int_gt(few, 0);
        ck_assert_int_le(many, 3 * few);
    }
}
END_TEST

static bool in_child(int (*run)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(run());
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int records_are_small(void)
{
    fill(MANY, false, "");
    fprintf(stderr, "%zu bytes of records a block\n", zone_meta_bytes() / MANY);
    return zone_meta_bytes() <= (size_t)MOST_BYTES * MANY ? 0 : 3;
}

START_TEST(bytes_of_records)
{
    ck_assert(in_child(records_are_small));
}
END_TEST

/* Two million operations among blocks of which half are kept for long. */
static int stays_as_it_is(void)
{
    enum { BLOCKS = 20000, ROUNDS = 20, OPERATIONS = 100000 };
    size_t records = 0;
    size_t bytes = 0;
    fill(BLOCKS, false, "");
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 4) {
            records = zone_meta_bytes();
            bytes = flat_held;
        }
        for (size_t i = 0; i < OPERATIONS; i++) {
            again(below(round % 2 ? BLOCKS : BLOCKS / 2));
        }
    }
    fprintf(stderr, "records %zu, then %zu; memory %zu, then %zu\n", records, zone_meta_bytes(),
            bytes, flat_held);
    return zone_meta_bytes() <= records / 100 * 105 && flat_held <= bytes / 100 * 105 ? 0 : 4;
}

START_TEST(nothing_grows)
{
    ck_assert(in_child(stays_as_it_is));
}
END_TEST

static Suite *scale_suite(void)
{
    Suite *suite = suite_create("scale");
    TCase *tcase = tcase_create("scale");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, bytes_of_records);
    tcase_add_test(tcase, nothing_grows);
    tcase_add_test(tcase, instructions);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return steps_possible() ? unit_main(scale_suite()) : EXIT_SUCCESS;
}
