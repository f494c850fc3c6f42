/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments alone: best fit, cutting, merging, PyTorch's rules about what may be cut, what leaves
 * and what must not. No device: addresses are numbers.
 */
#include "arena.h"
#include "ptrmap.h"
#include "unit_main.h"

enum { UNIT = 512, SEGMENT = 2 << 20 };

static struct zone_arena arena;
static const struct zone_cut_rules free_rules = {
    .max_split = SIZE_MAX, .max_over = SIZE_MAX, .min_rest = UNIT};
static zone_addr_t next_segment = (zone_addr_t)1 << 40;

static void setup(void)
{
    zone_arena_init(&arena, 9, 0);
}

static void teardown(void)
{
    zone_arena_forget(&arena);
}

static struct zone_block *segment(size_t first)
{
    struct zone_block *block =
        zone_arena_add(&arena, NULL, next_segment, SEGMENT, first, &free_rules);
    ck_assert_ptr_nonnull(block);
    ck_assert_uint_eq(block->addr, next_segment);
    ck_assert_uint_eq(block->bytes, first);
    next_segment += SEGMENT;
    return block;
}

static struct zone_block *take(size_t bytes)
{
    struct zone_block *block = zone_arena_take(&arena, bytes, &free_rules);
    if (block) {
        ck_assert_int_eq(block->state, ZONE_BLOCK_FREED);
        ck_assert_ptr_eq(zone_ptrmap_get(block->addr), block);
    }
    return block;
}

START_TEST(cuts_from_the_front_and_merges_on_both_sides)
{
    struct zone_block *a = segment(4096);
    struct zone_block *b = take(8192);
    struct zone_block *c = take(UNIT);
    zone_addr_t base = a->addr;
    ck_assert_uint_eq(b->addr, base + 4096);
    ck_assert_uint_eq(c->addr, base + 4096 + 8192);
    ck_assert_uint_eq(zone_arena_put(&arena, a), 4096);
    ck_assert_uint_eq(zone_arena_put(&arena, c), SEGMENT - 4096 - 8192);
    /* The last one joins the runs on both of its sides: the segment is whole again. */
    ck_assert_uint_eq(zone_arena_put(&arena, b), SEGMENT);
    ck_assert_ptr_null(zone_ptrmap_get(base + 4096));
    ck_assert_int_eq(zone_ptrmap_get(base)->state, ZONE_BLOCK_RUN);
    ck_assert_uint_eq(take(SEGMENT)->addr, base);
    ck_assert_ptr_null(take(UNIT));
}
END_TEST

/* Neighbours that are not free runs keep their bytes. */
START_TEST(merges_with_runs_only)
{
    struct zone_block *a = segment(4096);
    struct zone_block *b = take(4096);
    struct zone_block *c = take(4096);
    ck_assert_uint_eq(zone_arena_put(&arena, b), 4096);
    ck_assert_uint_eq(a->bytes, 4096);
    ck_assert_uint_eq(c->bytes, 4096);
    ck_assert_ptr_eq(zone_ptrmap_get(c->addr), c);
}
END_TEST

START_TEST(takes_the_smallest_that_fits)
{
    static const size_t sizes[] = {64 * UNIT, 3 * UNIT, 16 * UNIT, 5 * UNIT};
    struct zone_block *blocks[4];
    struct zone_block *between[4];
    blocks[0] = segment(sizes[0]);
    between[0] = take(UNIT);
    for (unsigned i = 1; i < 4; i++) {
        blocks[i] = take(sizes[i]);
        between[i] = take(UNIT);
    }
    zone_addr_t five = blocks[3]->addr;
    zone_addr_t sixteen = blocks[2]->addr;
    for (unsigned i = 0; i < 4; i++) {
        zone_arena_put(&arena, blocks[i]);
    }
    ck_assert_uint_eq(take(4 * UNIT)->addr, five);
    ck_assert_uint_eq(take(6 * UNIT)->addr, sixteen);
    ck_assert_uint_eq(zone_runs_largest(&arena.runs), SEGMENT - (64 + 3 + 16 + 5 + 4) * UNIT);
    ck_assert_ptr_nonnull(between[0]);
}
END_TEST

/* Also among runs that are too large for a list of their own. */
START_TEST(takes_the_smallest_of_the_largest)
{
    const size_t list = (size_t)ZONE_RUNS_EXACT * UNIT;
    static const size_t sizes[] = {9, 3, 5};
    for (unsigned i = 0; i < 3; i++) {
        struct zone_block *block =
            zone_arena_add(&arena, NULL, next_segment, sizes[i] * list, UNIT, &free_rules);
        next_segment += sizes[i] * list;
        zone_arena_put(&arena, block);
    }
    ck_assert_uint_eq(zone_arena_take(&arena, 4 * list, &free_rules)->bytes, 4 * list);
    ck_assert_uint_eq(zone_runs_largest(&arena.runs), 9 * list);
    ck_assert_uint_eq(zone_arena_take(&arena, 3 * list, &free_rules)->bytes, 3 * list);
    ck_assert_ptr_null(zone_arena_take(&arena, 10 * list, &free_rules));
}
END_TEST

/* PyTorch: what is larger than max_split_size is not cut, and not for small requests. */
START_TEST(max_split_size)
{
    const struct zone_cut_rules rules = {
        .max_split = 64 * UNIT, .max_over = 16 * UNIT, .min_rest = UNIT};
    struct zone_block *large =
        zone_arena_add(&arena, NULL, next_segment, SEGMENT, 100 * UNIT, &rules);
    next_segment += SEGMENT;
    ck_assert_uint_eq(large->bytes, SEGMENT); /* not cut */
    zone_arena_put(&arena, large);
    ck_assert_ptr_null(zone_arena_take(&arena, UNIT, &rules));
    ck_assert_ptr_null(zone_arena_take(&arena, SEGMENT - 16 * UNIT, &rules));
    ck_assert_uint_eq(zone_arena_take(&arena, SEGMENT - 15 * UNIT, &rules)->bytes, SEGMENT);
}
END_TEST

/* A rest that is too small stays with the block. */
START_TEST(min_rest)
{
    const struct zone_cut_rules rules = {
        .max_split = SIZE_MAX, .max_over = SIZE_MAX, .min_rest = 4 * UNIT};
    zone_arena_put(&arena, segment(UNIT));
    ck_assert_uint_eq(zone_arena_take(&arena, SEGMENT - 3 * UNIT, &rules)->bytes, SEGMENT);
}
END_TEST

START_TEST(only_empty_segments_leave)
{
    struct zone_block *a = segment(4096);
    struct zone_block *b = segment(8192);
    ck_assert_uint_eq(zone_arena_idle(&arena), 2 * SEGMENT); /* FREED, of nobody */
    atomic_store(&a->state, ZONE_BLOCK_LIVE);
    ck_assert_uint_eq(zone_arena_idle(&arena), SEGMENT);
    ck_assert_ptr_null(zone_arena_leave(&arena, 1, UINT64_MAX));
    zone_arena_put(&arena, b);
    struct zone_block *first = zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX);
    ck_assert_ptr_eq(first, b);
    ck_assert_int_eq(first->state, ZONE_BLOCK_LEAVING);
    ck_assert_ptr_null(zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX));
    /* What leaves serves nobody, unless the driver does not take it. */
    ck_assert_ptr_null(take(SEGMENT));
    zone_arena_kept(&arena, first);
    ck_assert_ptr_eq(take(SEGMENT), first);
    zone_arena_put(&arena, first);
    zone_addr_t addr = first->addr;
    zone_arena_gone(zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX));
    ck_assert_ptr_null(zone_ptrmap_get(addr));
    ck_assert_uint_eq(arena.bytes, SEGMENT);
    ck_assert_uint_eq(arena.count, 1);
}
END_TEST

/* With a guard the driver's address of the segment is never a block's. */
START_TEST(guard)
{
    zone_addr_t base = next_segment;
    arena.guard = UNIT;
    struct zone_block *a =
        zone_arena_add(&arena, NULL, next_segment, SEGMENT, SEGMENT - UNIT, &free_rules);
    next_segment += SEGMENT;
    ck_assert_uint_eq(a->addr, base + UNIT);
    ck_assert_uint_eq(a->bytes, SEGMENT - UNIT);
    ck_assert_uint_eq(zone_arena_put(&arena, a), SEGMENT - UNIT);
    ck_assert_uint_eq(take(UNIT)->addr, base + UNIT);
    zone_arena_put(&arena, zone_ptrmap_get(base + UNIT));
    struct zone_block *first = zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX);
    ck_assert_uint_eq(first->addr, base);
    zone_arena_kept(&arena, first);
    ck_assert_uint_eq(take(SEGMENT - UNIT)->addr, base + UNIT);
}
END_TEST

/* The smallest that is enough, else the largest. */
START_TEST(leaves_what_is_enough)
{
    static const size_t sizes[] = {4, 2, 8};
    for (unsigned i = 0; i < 3; i++) {
        zone_arena_put(&arena, zone_arena_add(&arena, NULL, next_segment, sizes[i] * SEGMENT, UNIT,
                                              &free_rules));
        next_segment += sizes[i] * SEGMENT;
    }
    struct zone_block *first = zone_arena_leave(&arena, 3 * SEGMENT, UINT64_MAX);
    ck_assert_uint_eq(first->segment->bytes, 4 * SEGMENT);
    ck_assert_uint_eq(zone_arena_leave(&arena, 9 * SEGMENT, UINT64_MAX)->segment->bytes,
                      8 * SEGMENT);
}
END_TEST

/* Memory that others may hold is never cut or merged, and goes when its segment goes. */
START_TEST(retired_blocks)
{
    struct zone_block *a = segment(4096);
    struct zone_block *b = take(4096);
    atomic_store(&a->tainted, 1);
    zone_arena_retire(&arena, a);
    zone_arena_put(&arena, b);
    ck_assert_ptr_null(take(SEGMENT));
    ck_assert_uint_eq(take(SEGMENT - 4096)->addr, a->addr + 4096);
    zone_arena_put(&arena, zone_ptrmap_get(a->addr + 4096));
    struct zone_block *first = zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX);
    ck_assert_ptr_eq(first, a);
    zone_arena_kept(&arena, first);
    /* The driver kept it: still retired. */
    ck_assert_uint_eq(take(SEGMENT - 4096)->addr, a->addr + 4096);
    ck_assert_ptr_null(take(UNIT));
    zone_arena_put(&arena, zone_ptrmap_get(a->addr + 4096));
    ck_assert_ptr_nonnull(zone_arena_leave(&arena, SIZE_MAX, UINT64_MAX));
}
END_TEST

/* Memory that the driver has given to somebody else meanwhile is not handed out. */
START_TEST(superseded_runs_are_skipped)
{
    struct zone_block *a = segment(UNIT);
    struct zone_block *rest = zone_ptrmap_get(a->addr + UNIT);
    zone_ptrmap_evict(rest->addr);
    ck_assert_ptr_null(take(UNIT));
}
END_TEST

START_TEST(finds_the_block_below_an_address)
{
    struct zone_block *a = segment(4096);
    struct zone_block *b = take(100 * UNIT);
    ck_assert_ptr_eq(zone_ptrmap_below(a->addr + 4095, a->addr), a);
    ck_assert_ptr_eq(zone_ptrmap_below(b->addr, a->addr), b);
    ck_assert_ptr_eq(zone_ptrmap_below(b->addr + 100 * UNIT - 1, a->addr), b);
    ck_assert_ptr_null(zone_ptrmap_below(a->addr + 100, a->addr + UNIT));
    ck_assert_ptr_null(zone_ptrmap_below(a->addr - 1, a->addr - SEGMENT * (zone_addr_t)64));
    /* A block of many pages. */
    struct zone_block *large = zone_arena_add(&arena, NULL, next_segment, 40 * (size_t)SEGMENT,
                                              40 * (size_t)SEGMENT, &free_rules);
    next_segment += 40 * (zone_addr_t)SEGMENT;
    ck_assert_ptr_eq(zone_ptrmap_below(next_segment - 1, large->addr), large);
}
END_TEST

static Suite *arena_suite(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("arena");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, cuts_from_the_front_and_merges_on_both_sides);
    tcase_add_test(tcase, merges_with_runs_only);
    tcase_add_test(tcase, takes_the_smallest_that_fits);
    tcase_add_test(tcase, takes_the_smallest_of_the_largest);
    tcase_add_test(tcase, max_split_size);
    tcase_add_test(tcase, min_rest);
    tcase_add_test(tcase, only_empty_segments_leave);
    tcase_add_test(tcase, guard);
    tcase_add_test(tcase, leaves_what_is_enough);
    tcase_add_test(tcase, retired_blocks);
    tcase_add_test(tcase, superseded_runs_are_skipped);
    tcase_add_test(tcase, finds_the_block_below_an_address);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(arena_suite());
}
