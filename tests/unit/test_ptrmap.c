/* SPDX-License-Identifier: Apache-2.0
 *
 * The map from device address to block: exact bases, pages with one block and with many, replaced
 * and retired entries, and a long random run against a table that is searched from end to end.
 */
#include "ptrmap.h"

#include "meta.h"
#include "unit_main.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAGE (2 * ZONE_MIB)
#define BASE ((zone_addr_t)0x7f1200000000)

static struct zone_block *enter(zone_addr_t addr)
{
    struct zone_block *block = zone_block_new();
    ck_assert_ptr_nonnull(block);
    __atomic_store_n(&block->addr, addr, __ATOMIC_RELAXED);
    block->bytes = 512;
    atomic_store(&block->state, ZONE_BLOCK_LIVE);
    ck_assert(zone_ptrmap_set(block));
    return block;
}

static bool take_all(struct zone_block *block, void *arg)
{
    unsigned *count = arg;
    ++*count;
    zone_block_delete(block);
    return true;
}

static void teardown(void)
{
    unsigned count = 0;
    zone_ptrmap_sweep(take_all, &count);
}

START_TEST(exact_bases_only)
{
    ck_assert_ptr_null(zone_ptrmap_get(0));
    ck_assert_ptr_null(zone_ptrmap_get(BASE));
    struct zone_block *block = enter(BASE);
    ck_assert_ptr_eq(zone_ptrmap_get(BASE), block);
    static const uint64_t beside[] = {1, 8, 511, 512, PAGE - 512, PAGE, 1ull << 35, 1ull << 47};
    for (unsigned i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        ck_assert_ptr_null(zone_ptrmap_get(BASE + beside[i]));
        ck_assert_ptr_null(zone_ptrmap_get(BASE - beside[i]));
    }
}
END_TEST

/* The second block of a page turns its slot into a node; the first stays. */
START_TEST(pages_with_many_blocks)
{
    struct zone_block *blocks[PAGE / 512];
    for (unsigned i = 0; i < PAGE / 512; i++) {
        blocks[i] = enter(BASE + PAGE + i * 512);
        ck_assert_ptr_eq(zone_ptrmap_get(BASE + PAGE), blocks[0]);
    }
    struct zone_block *before = enter(BASE + PAGE - 512);
    struct zone_block *after = enter(BASE + 2 * PAGE);
    for (unsigned i = 0; i < PAGE / 512; i++) {
        ck_assert_ptr_eq(zone_ptrmap_get(BASE + PAGE + i * 512), blocks[i]);
        ck_assert_ptr_null(zone_ptrmap_get(BASE + PAGE + i * 512 + 8));
    }
    ck_assert_ptr_eq(zone_ptrmap_get(BASE + PAGE - 512), before);
    ck_assert_ptr_eq(zone_ptrmap_get(BASE + 2 * PAGE), after);
}
END_TEST

/* The driver does not hand out such addresses; we must not mistake one for another. */
START_TEST(addresses_beyond_48_bits)
{
    struct zone_block *block = zone_block_new();
    enter(BASE);
    block->addr = BASE | (zone_addr_t)1 << 48;
    ck_assert(!zone_ptrmap_set(block));
    ck_assert_ptr_null(zone_ptrmap_get(block->addr));
    ck_assert_ptr_null(zone_ptrmap_get(UINT64_MAX));
    zone_ptrmap_remove(block);
    ck_assert_ptr_nonnull(zone_ptrmap_get(BASE));
    ck_assert_ptr_nonnull(enter(((zone_addr_t)1 << 48) - 512));
}
END_TEST

START_TEST(removed_only_by_its_own_block)
{
    for (unsigned others = 0; others < 2; others++) {
        struct zone_block *first = enter(BASE);
        zone_ptrmap_remove(first);
        ck_assert_ptr_null(zone_ptrmap_get(BASE));
        zone_ptrmap_remove(first);
        /* The driver gave the address out again before the first was taken out. */
        zone_ptrmap_set(first);
        struct zone_block *second = enter(BASE);
        zone_ptrmap_remove(first);
        ck_assert_ptr_eq(zone_ptrmap_get(BASE), second);
        zone_ptrmap_remove(second);
        enter(BASE + 512); /* the second round: in a node */
        enter(BASE + 1024);
    }
}
END_TEST

/* Memory that the driver hands out again belongs to the new block; the old one is told. */
START_TEST(superseded_blocks_are_gone)
{
    for (unsigned others = 0; others < 2; others++) {
        struct zone_block *freed = enter(BASE);
        atomic_store(&freed->state, ZONE_BLOCK_FREED);
        struct zone_block *leaving = enter(BASE);
        ck_assert_int_eq(freed->state, ZONE_BLOCK_GONE);
        atomic_store(&leaving->state, ZONE_BLOCK_LEAVING);
        struct zone_block *live = enter(BASE);
        ck_assert_int_eq(leaving->state, ZONE_BLOCK_LEAVING); /* its owner is at it */
        struct zone_block *last = enter(BASE);
        ck_assert_int_eq(live->state, ZONE_BLOCK_GONE);
        ck_assert_int_eq(last->state, ZONE_BLOCK_LIVE);
        zone_ptrmap_remove(last);
        enter(BASE + 512);
        enter(BASE + 1024);
    }
}
END_TEST

/* Memory that went to somebody whom the map does not know. */
START_TEST(evicted_by_address)
{
    struct zone_block *lonely = enter(BASE + 7 * PAGE);
    zone_ptrmap_evict(BASE + 7 * PAGE + 512); /* nobody's, in the page of another */
    zone_ptrmap_evict(BASE + 8 * PAGE);
    zone_ptrmap_evict(0);
    zone_ptrmap_evict(UINT64_MAX);
    ck_assert_ptr_eq(zone_ptrmap_get(BASE + 7 * PAGE), lonely);
    ck_assert_int_eq(lonely->state, ZONE_BLOCK_LIVE);
    zone_ptrmap_evict(BASE + 7 * PAGE);
    ck_assert_ptr_null(zone_ptrmap_get(BASE + 7 * PAGE));
    ck_assert_int_eq(lonely->state, ZONE_BLOCK_GONE);

    struct zone_block *first = enter(BASE);
    struct zone_block *leaving = enter(BASE + 512);
    atomic_store(&leaving->state, ZONE_BLOCK_LEAVING);
    zone_ptrmap_evict(BASE + 512);
    ck_assert_ptr_null(zone_ptrmap_get(BASE + 512));
    ck_assert_int_eq(leaving->state, ZONE_BLOCK_LEAVING);
    ck_assert_ptr_eq(zone_ptrmap_get(BASE), first);
    zone_ptrmap_remove(leaving); /* its owner comes late */
    ck_assert_ptr_eq(zone_ptrmap_get(BASE), first);
}
END_TEST

/* A record that serves another address must not be found under its old one. */
START_TEST(recycled_records)
{
    struct zone_block *block = enter(BASE);
    zone_ptrmap_remove(block);
    zone_block_delete(block);
    struct zone_block *again = enter(BASE + PAGE);
    ck_assert_ptr_eq(again, block);
    ck_assert_ptr_null(zone_ptrmap_get(BASE));
    ck_assert_ptr_eq(zone_ptrmap_get(BASE + PAGE), block);
}
END_TEST

static bool take_odd(struct zone_block *block, void *arg)
{
    unsigned *seen = arg;
    ++*seen;
    return block->addr / 512 % 2 == 1;
}

START_TEST(sweep)
{
    for (unsigned i = 0; i < 100; i++) {
        enter(BASE + i * 512);
        enter(BASE + (i + 10) * PAGE + (i % 2) * 512);
    }
    unsigned seen = 0;
    zone_ptrmap_sweep(take_odd, &seen);
    ck_assert_uint_eq(seen, 200);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert((zone_ptrmap_get(BASE + i * 512) != NULL) == (i % 2 == 0));
        bool there = zone_ptrmap_get(BASE + (i + 10) * PAGE + (i % 2) * 512) != NULL;
        ck_assert(there == (i % 2 == 0));
    }
    seen = 0;
    zone_ptrmap_sweep(take_odd, &seen);
    ck_assert_uint_eq(seen, 100);
}
END_TEST

enum { SLOTS = 600 };
struct oracle {
    zone_addr_t addr;
    struct zone_block *block;
};

/* The table's answer to zone_ptrmap_below. */
static struct zone_block *table_below(const struct oracle *table, zone_addr_t addr,
                                      zone_addr_t base)
{
    const struct oracle *best = NULL;
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct oracle *it = &table[i];
        if (it->block && it->addr <= addr && it->addr >= base && (!best || it->addr > best->addr)) {
            best = it;
        }
    }
    return best ? best->block : NULL;
}

START_TEST(random_against_a_table)
{
    static struct oracle table[SLOTS];
    uint64_t seed = 12345;
    for (unsigned i = 0; i < SLOTS; i++) {
        /* Crowded pages, lonely pages and far away ones. */
        table[i].addr = i < 300   ? BASE + i % 3 * PAGE + i / 3 * 512
                        : i < 500 ? BASE + i * PAGE
                                  : BASE + ((zone_addr_t)i << 36);
        table[i].addr &= ((zone_addr_t)1 << 48) - 1;
        table[i].block = NULL;
    }
    for (unsigned step = 0; step < 60000; step++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        struct oracle *one = &table[(seed >> 33) % SLOTS];
        if (!one->block) {
            one->block = enter(one->addr);
        } else if (seed >> 63) {
            zone_ptrmap_remove(one->block);
            zone_block_delete(one->block);
            one->block = NULL;
        }
        const struct oracle *other = &table[(seed >> 20) % SLOTS];
        ck_assert_ptr_eq(zone_ptrmap_get(other->addr), other->block);
        ck_assert_ptr_eq(zone_ptrmap_get(one->addr), one->block);
        ck_assert_ptr_null(zone_ptrmap_get(one->addr + 8));
        if (step % 16 == 0) {
            zone_addr_t at = other->addr + 100;
            ck_assert_ptr_eq(zone_ptrmap_below(at, BASE), table_below(table, at, BASE));
        }
    }
}
END_TEST

/* Blocks come and go in ever new pages; what told them apart serves the next ones. */
START_TEST(takes_no_more_with_time)
{
    enum { ROUNDS = 3000, BLOCKS = 64, WARM = 200 };
    struct zone_block *blocks[BLOCKS];
    uint64_t seed = 99;
    size_t bytes = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        bytes = round == WARM ? zone_meta_bytes() : bytes;
        for (unsigned i = 0; i < BLOCKS; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            zone_addr_t page = BASE + (seed >> 33) % 16 * PAGE + round * 16 % 8192 * PAGE;
            blocks[i] = enter(page + (seed >> 20) % 4096 * 512);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            zone_ptrmap_remove(blocks[i]);
            zone_block_delete(blocks[i]);
        }
    }
    ck_assert_uint_le(zone_meta_bytes(), bytes + ZONE_MIB / 4);
}
END_TEST

static _Atomic bool reader_stop;
static _Atomic unsigned reader_missed;

/* Looks up what is there all the time. */
static void *reader_run(void *arg)
{
    struct zone_block *const *there = arg;
    while (!atomic_load(&reader_stop)) {
        for (unsigned i = 0; i < 8; i++) {
            if (zone_ptrmap_get(there[i]->addr) != there[i]) {
                atomic_fetch_add(&reader_missed, 1);
            }
        }
    }
    return NULL;
}

/* A reader may be in a node when it becomes another page's. */
START_TEST(found_beside_changes)
{
    enum { ROUNDS = 20000, BLOCKS = 24 };
    struct zone_block *there[8];
    struct zone_block *blocks[BLOCKS];
    pthread_t reader;
    uint64_t seed = 7;
    for (unsigned i = 0; i < 8; i++) {
        there[i] = enter(BASE + i % 4 * PAGE + (i + 1) * 8192);
    }
    ck_assert_int_eq(pthread_create(&reader, NULL, reader_run, there), 0);
    const char *slow = getenv("VICTIM_SLOW"); /* a checker is at work, see tests/victims/victim.h */
    unsigned rounds = slow ? ROUNDS / 20 : ROUNDS;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            /* Beside those, never at their place. */
            blocks[i] = enter(BASE + (seed >> 33) % 4 * PAGE + (seed >> 40) % 10 * 8192 +
                              512 * (1 + i % 15));
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (zone_ptrmap_get(blocks[i]->addr) == blocks[i]) {
                zone_ptrmap_remove(blocks[i]);
            }
            zone_block_delete(blocks[i]);
        }
    }
    atomic_store(&reader_stop, true);
    pthread_join(reader, NULL);
    ck_assert_uint_eq(reader_missed, 0);
}
END_TEST

static Suite *ptrmap_suite(void)
{
    Suite *suite = suite_create("ptrmap");
    TCase *tcase = tcase_create("ptrmap");
    tcase_set_timeout(tcase, 30); /* under checkers */
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, exact_bases_only);
    tcase_add_test(tcase, pages_with_many_blocks);
    tcase_add_test(tcase, addresses_beyond_48_bits);
    tcase_add_test(tcase, removed_only_by_its_own_block);
    tcase_add_test(tcase, superseded_blocks_are_gone);
    tcase_add_test(tcase, evicted_by_address);
    tcase_add_test(tcase, recycled_records);
    tcase_add_test(tcase, sweep);
    tcase_add_test(tcase, random_against_a_table);
    tcase_add_test(tcase, takes_no_more_with_time);
    tcase_add_test(tcase, found_beside_changes);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(ptrmap_suite());
}
