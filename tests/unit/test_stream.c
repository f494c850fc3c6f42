/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory: what a stream, other streams and cudaMalloc may have of it and when. The
 * model ends the test when memory is handed out to a stream while work that is not ordered before
 * it uses it, and the fixture when a free in stream order waits.
 */
#include "pool_fixture.h"

enum { A = 1, B = 2, C = 3 };

#define LARGE (16 * ZONE_MIB)
#define SMALL ((size_t)4096)

static const size_t sizes[] = {SMALL, LARGE};
enum { SIZES = 2 };

/* A miss, after which frees record marks. */
static void miss(void)
{
    take_on(C, 3 * ZONE_MIB);
}

/* The same stream has its memory at once, whatever still runs, and nothing is recorded. */
START_TEST(own_memory_at_once)
{
    zone_addr_t addr = take_on(A, sizes[_i]);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    unsigned before = calls();
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_uint_eq(take_on(A, sizes[_i]), addr);
        give_on(A, addr);
    }
    ck_assert_uint_eq(calls(), before);
    ck_assert_uint_eq(counts().stream_hits, 100);
    ck_assert_uint_le(counts().stream_marks, 1);
}
END_TEST

/* First in, first out, also among several blocks of a class. */
START_TEST(oldest_first)
{
    zone_addr_t addr[3];
    for (unsigned i = 0; i < 3; i++) {
        addr[i] = take_on(A, sizes[_i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        give_on(A, addr[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(take_on(A, sizes[_i]), addr[i]);
    }
}
END_TEST

/* Another stream has it only once the work before the free is complete. */
START_TEST(others_when_done)
{
    zone_addr_t addr = take_on(A, sizes[_i]);
    unsigned work = work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    zone_addr_t other = take_on(B, sizes[_i]);
    ck_assert_uint_ne(other, addr);
    model_finish(work);
    ck_assert_uint_eq(take_on(B, sizes[_i]), addr);
}
END_TEST

/* A mark is about its own stream: what runs elsewhere does not matter. */
START_TEST(others_work_does_not_matter)
{
    zone_addr_t addr = take_on(A, sizes[_i]);
    zone_addr_t busy = take_on(C, sizes[_i]);
    work_on(busy, C, MODEL_FOREVER);
    work_on(addr, A, MS);
    give_on(A, addr);
    model_advance(MS);
    ck_assert_uint_eq(take_on(B, sizes[_i]), addr);
}
END_TEST

/* What is freed after a mark is not behind it. */
START_TEST(mark_covers_what_came_before)
{
    zone_addr_t early = take_on(A, sizes[_i]);
    zone_addr_t late = take_on(A, sizes[_i]);
    work_on(early, A, MS);
    give_on(A, early); /* records, as there was a miss */
    work_on(late, A, MODEL_FOREVER);
    give_on(A, late);
    ck_assert_uint_eq(counts().stream_marks, 1);
    model_advance(MS);
    ck_assert_uint_eq(take_on(B, sizes[_i]), early);
    ck_assert_uint_ne(take_on(B, sizes[_i]), late);
}
END_TEST

/* A free beside a record, on the same stream by another thread, with work the event may not cover.
 */
static void free_beside(void *arg)
{
    zone_addr_t *addr = arg;
    work_on(*addr, A, MODEL_FOREVER);
    give_on(A, *addr);
}

START_TEST(free_beside_a_record)
{
    zone_addr_t early = take_on(A, sizes[_i]);
    zone_addr_t late = take_on(A, sizes[_i]);
    model_hook(MODEL_STREAM_RECORD, 0, MODEL_AFTER, free_beside, &late);
    give_on(A, early);
    ck_assert_uint_eq(take_on(B, sizes[_i]), early);
    ck_assert_uint_ne(take_on(B, sizes[_i]), late);
}
END_TEST

/* One that began before the number was taken is covered; in between it is not, whatever runs. */
START_TEST(free_before_a_record)
{
    zone_addr_t early = take_on(A, sizes[_i]);
    zone_addr_t late = take_on(A, sizes[_i]);
    model_hook(MODEL_STREAM_RECORD, 0, MODEL_BEFORE, free_beside, &late);
    give_on(A, early);
    ck_assert_uint_ne(take_on(B, sizes[_i]), late);
}
END_TEST

/* Without a miss nothing is recorded, however many streams there are. */
START_TEST(no_marks_without_misses)
{
    zone_addr_t a = take_on(A, sizes[_i]);
    zone_addr_t b = take_on(B, sizes[_i]);
    for (unsigned i = 0; i < 4; i++) {
        give_on(A, a);
        give_on(B, b);
        ck_assert_uint_eq(take_on(A, sizes[_i]), a);
        ck_assert_uint_eq(take_on(B, sizes[_i]), b);
    }
    ck_assert_uint_le(counts().stream_marks, 2);
    ck_assert_uint_eq(counts().records, 0);
    give_on(A, a);
    give_on(B, b);
    miss();
    give_on(A, take_on(A, sizes[_i]));
    give_on(A, take_on(A, sizes[_i]));
    ck_assert_uint_eq(counts().stream_marks, 3);
}
END_TEST

/* cudaMalloc uses memory on every stream: only what is done. And so for the other way round. */
START_TEST(plain_malloc_when_done)
{
    zone_addr_t addr = take_on(A, sizes[_i]);
    unsigned work = work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_ne(take(sizes[_i]), addr);
    model_finish(work);
    ck_assert_uint_eq(take(sizes[_i]), addr);
}
END_TEST

START_TEST(plain_free_when_done)
{
    zone_addr_t addr = take(LARGE);
    work_on(addr, A, MS);
    give(addr);
    ck_assert_uint_ne(take_on(A, LARGE), addr); /* a plain free is not in the stream's order */
    model_advance(MS);
    ck_assert_uint_eq(take_on(A, LARGE), addr);
}
END_TEST

/* cudaMalloc, cudaFreeAsync, cudaMallocAsync: the stream's at once. */
START_TEST(plain_memory_freed_in_stream)
{
    zone_addr_t addr = take(sizes[_i]);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(A, sizes[_i]), addr);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), block_at(addr)->bytes);
}
END_TEST

/* cudaMallocAsync, cudaFree: as any plain free, but natively it does not wait either. */
START_TEST(stream_memory_freed_plainly)
{
    pool_reopen(64 * ZONE_GIB, "max_pending_mb:0");
    zone_addr_t addr = take_on(A, sizes[_i]);
    unsigned work = work_on(addr, B, MODEL_FOREVER);
    give(addr);
    ck_assert_uint_ne(take_on(A, sizes[_i]), addr);
    ck_assert_uint_ne(take(sizes[_i]), addr);
    ck_assert_uint_eq(model_stalls(), 0);
    ck_assert_uint_eq(zone_level_now(&pool->streams.used), sizes[_i]);
    model_finish(work);
    if (sizes[_i] == LARGE) {
        ck_assert_uint_eq(take(LARGE), addr); /* plain memory by now */
    }
}
END_TEST

/* A context event covers every stream. */
START_TEST(context_event_covers)
{
    zone_addr_t addr = take_on(A, LARGE);
    model_fail(MODEL_STREAM_RECORD, 0, 1, ZONE_GPU_OUT_OF_MEMORY);
    work_on(addr, A, MS);
    give_on(A, addr);
    model_advance(2 * MS);
    ck_assert_uint_ne(take_on(B, LARGE), addr);
    give(take(LARGE)); /* records */
    take_on(B, LARGE);
    ck_assert_uint_eq(take_on(B, LARGE), addr);
}
END_TEST

/* Streams on which nothing is freed any more, like those of threads that end, are covered too. */
START_TEST(idle_streams_are_covered)
{
    enum { STREAMS = 100 };
    for (unsigned i = 0; i < STREAMS; i++) {
        zone_addr_t addr = take_on(A + i, LARGE);
        model_fail(MODEL_STREAM_RECORD, 0, 1, ZONE_GPU_OUT_OF_MEMORY);
        work_on(addr, A + i, MS);
        model_advance(2 * MS);
        give_on(A + i, addr);
        model_fail(MODEL_STREAM_RECORD, 0, 0, 0);
    }
    ck_assert_uint_lt(counts().misses, STREAMS / 2);
}
END_TEST

/* A stream's end is no end of its work; its memory serves others when that is done. */
START_TEST(stream_destroyed)
{
    zone_addr_t addr = take_on(A, sizes[_i]);
    give_on(A, addr);
    addr = take_on(A, sizes[_i]);
    unsigned work = work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    end_stream(A);
    ck_assert_uint_ne(take_on(B, sizes[_i]), addr);
    model_finish(work);
    ck_assert_uint_eq(take_on(B, sizes[_i]), addr);
}
END_TEST

/* Lists of streams that are gone serve later streams, which inherit nothing. */
START_TEST(lists_are_used_again)
{
    zone_addr_t addr = take_on(A, LARGE);
    give_on(A, addr);
    struct zone_stream *lists = stream_of(A);
    end_stream(A);
    take(LARGE); /* harvests */
    zone_stream_harvest(pool);
    struct zone_stream *later = stream_of(A + ZONE_STREAM_BUCKETS);
    ck_assert_ptr_eq(lists, later);
    ck_assert(!later->gone);
    ck_assert_uint_eq(later->blocks, 0);
    ck_assert_ptr_ne(stream_of(A), later);
}
END_TEST

/* Neither while the work of the stream that is gone goes on. */
START_TEST(later_stream_inherits_nothing)
{
    zone_addr_t addr = take_on(A, LARGE);
    work_on(addr, A, MODEL_FOREVER);
    model_fail(MODEL_STREAM_RECORD, 0, 2, ZONE_GPU_OUT_OF_MEMORY); /* no mark is left either */
    give_on(A, addr);
    end_stream(A);
    take(LARGE);
    zone_stream_harvest(pool);
    ck_assert_uint_ne(take_on(A + ZONE_STREAM_BUCKETS, LARGE), addr);
}
END_TEST

/* While something captures nothing is recorded or asked; what is freed then is good later. */
START_TEST(capture_holds_marks_off)
{
    zone_addr_t addr = take_on(A, LARGE);
    model_set_capture(true);
    work_on(addr, A, MS);
    give_on(A, addr);
    model_advance(MS);
    ck_assert_uint_ne(take_on(B, LARGE), addr);
    model_set_capture(false);
    give_on(A, take_on(A, LARGE));
    ck_assert_uint_eq(take_on(B, LARGE), addr);
}
END_TEST

/* As many marks as there is room for; then the oldest is asked, and without it nothing is recorded.
 */
START_TEST(marks_are_bounded)
{
    zone_addr_t addr = take_on(A, LARGE);
    work_on(addr, A, MODEL_FOREVER);
    for (unsigned i = 0; i < 3 * ZONE_STREAM_MARKS; i++) {
        give_on(A, addr);
        miss();
        ck_assert_uint_eq(take_on(A, LARGE), addr);
    }
    ck_assert_uint_le(counts().stream_marks, ZONE_STREAM_MARKS);
}
END_TEST

/* Small blocks of other classes merge once they are done: a stream that asks for ever new sizes. */
START_TEST(ever_new_sizes)
{
    size_t bytes = 512;
    for (unsigned i = 0; i < 800; i++) {
        zone_addr_t addr = take_on(A, bytes);
        work_on(addr, A, 1000);
        give_on(A, addr);
        model_advance(1000);
        bytes += 512;
    }
    ck_assert_uint_le(zone_level_now(&pool->ledger.reserved), 8 * ZONE_MIB);
}
END_TEST

/* The context dies: nothing is listed, and the next one starts from nothing. */
START_TEST(context_destroyed)
{
    zone_addr_t addr = take_on(A, LARGE);
    give_on(A, addr);
    take_on(A, SMALL);
    model_destroy(MODEL_CTX);
    zone_registry_drop(pool);
    ck_assert_uint_eq(zone_level_now(&pool->streams.reserved), 0);
    ck_assert_uint_eq(zone_level_now(&pool->streams.used), 0);
    pool = pool_of(MODEL_CTX, 0);
    zone_addr_t next = take_on(A, LARGE);
    give_on(A, next);
    miss();
    give_on(A, take_on(A, LARGE)); /* records with an event of its own */
    ck_assert_uint_eq(counts().stream_hits, 1);
}
END_TEST

/* A block of one context freed on a stream of another: its owner's events say nothing of that. */
START_TEST(foreign_stream)
{
    zone_addr_t addr = take(LARGE);
    struct zone_stream *lists = zone_stream_find(pool, 99, MODEL_CTX2);
    unsigned work = model_launch(MODEL_CTX2, 98, addr, MODEL_FOREVER);
    model_set_current(MODEL_CTX2);
    model_given_back(addr, LARGE);
    ck_assert(zone_block_claim(block_at(addr)));
    ck_assert_int_eq(zone_stream_free(lists, model_stream(98), block_at(addr)), 0);
    give(take(LARGE));
    ck_assert_uint_ne(take(LARGE), addr);
    ck_assert_uint_ne(take(LARGE), addr);
    model_finish(work);
    ck_assert_uint_eq(take(LARGE), addr);
}
END_TEST

/* Bytes of the default pool, as its attributes tell them. */
START_TEST(default_pool_bytes)
{
    struct zone_streams *books = &pool->streams;
    zone_addr_t a = take_on(A, LARGE);
    zone_addr_t b = take_on(A, 1000);
    ck_assert_uint_eq(zone_level_now(&books->used), LARGE + 1000);
    ck_assert_uint_eq(zone_level_now(&books->reserved), LARGE + 1024);
    give_on(A, a);
    ck_assert_uint_eq(zone_level_now(&books->used), 1000);
    ck_assert_uint_eq(zone_level_now(&books->reserved), LARGE + 1024);
    ck_assert_uint_eq(take(LARGE), a); /* cudaMalloc has it: not the default pool's any more */
    ck_assert_uint_eq(zone_level_now(&books->reserved), 1024);
    give_on(A, b);
    ck_assert_uint_eq(books->used.peak, LARGE + 1000);
    ck_assert_uint_eq(zone_level_now(&books->used), 0);
}
END_TEST

/* Freed twice, or freed and faulted. */
START_TEST(errors)
{
    zone_addr_t addr = take_on(A, LARGE);
    give_on(A, addr);
    ck_assert_int_eq(try_give_on(A, addr), ZONE_GPU_INVALID_VALUE);
    addr = take_on(A, LARGE);
    miss();
    model_set_fault(700);
    ck_assert_int_eq(try_give_on(A, addr), 700);
    zone_addr_t none = 0;
    ck_assert_int_eq(try_take_on(A, LARGE, &none), 700);
}
END_TEST

/* What a stream gets under junk_fill is filled: in its own order, or by the pool. */
START_TEST(filled)
{
    pool_reopen(64 * ZONE_GIB, _i ? "junk_fill:True" : "zero_fill:True");
    zone_addr_t addr = take_on(A, LARGE);
    work_on(addr, A, MODEL_FOREVER);
    give_on(A, addr);
    ck_assert_uint_eq(take_on(A, LARGE), addr);
    zone_addr_t other = take_on(B, LARGE);
    work_on(other, B, MS);
    give_on(B, other);
    model_advance(MS);
    zone_addr_t third = take_on(C, LARGE);
    give_on(C, third);
    take(SMALL);
}
END_TEST

static Suite *stream_suite(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = tcase_create("stream");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, pool_setup, pool_teardown);
    tcase_add_loop_test(tcase, own_memory_at_once, 0, SIZES);
    tcase_add_loop_test(tcase, oldest_first, 0, SIZES);
    tcase_add_loop_test(tcase, others_when_done, 0, SIZES);
    tcase_add_loop_test(tcase, others_work_does_not_matter, 0, SIZES);
    tcase_add_loop_test(tcase, mark_covers_what_came_before, 0, SIZES);
    tcase_add_loop_test(tcase, free_beside_a_record, 0, SIZES);
    tcase_add_loop_test(tcase, free_before_a_record, 0, SIZES);
    tcase_add_loop_test(tcase, no_marks_without_misses, 0, SIZES);
    tcase_add_loop_test(tcase, plain_malloc_when_done, 0, SIZES);
    tcase_add_test(tcase, plain_free_when_done);
    tcase_add_loop_test(tcase, plain_memory_freed_in_stream, 0, SIZES);
    tcase_add_loop_test(tcase, stream_memory_freed_plainly, 0, SIZES);
    tcase_add_test(tcase, context_event_covers);
    tcase_add_test(tcase, idle_streams_are_covered);
    tcase_add_loop_test(tcase, stream_destroyed, 0, SIZES);
    tcase_add_test(tcase, lists_are_used_again);
    tcase_add_test(tcase, later_stream_inherits_nothing);
    tcase_add_test(tcase, capture_holds_marks_off);
    tcase_add_test(tcase, marks_are_bounded);
    tcase_add_test(tcase, ever_new_sizes);
    tcase_add_test(tcase, context_destroyed);
    tcase_add_test(tcase, foreign_stream);
    tcase_add_test(tcase, default_pool_bytes);
    tcase_add_test(tcase, errors);
    tcase_add_loop_test(tcase, filled, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return unit_main(stream_suite());
}
