/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool under test: see pool_fixture.h.
 */
#include "pool_fixture.h"

#include <string.h>

struct zone_process pool_process;
struct zone_pool *pool;
static struct zone_options options;

static void check_stream(struct zone_stream *stream, void *arg)
{
    (void)arg;
    ck_assert_msg(stream->lock == 0, "calls the device with a stream's lock held");
}

static void check_pool(struct zone_pool *one, void *arg)
{
    (void)arg;
    zone_streams_each(one, check_stream, NULL);
    ck_assert_msg(one->fence.lock == 0, "calls the device with the fence's lock held");
    for (struct zone_bin *bin = one->bins.newest; bin; bin = bin->older) {
        ck_assert_msg(bin->lock == 0, "calls the device with a bin's lock held");
    }
}

/* The class of the malloc under way and its device. */
static size_t asked;
static int asked_device;

static void check_no_lock(void *arg)
{
    zone_registry_each(check_pool, arg);
    if (asked > 0 && !zone_limit_has_room(asked_device, asked)) {
        model_refuse_malloc();
    }
}

static void say(void *arg, const char *line)
{
    (void)arg;
    ck_assert_msg(strstr(line, "beside zero_fill"), "options: %s", line);
}

struct zone_pool *pool_of(void *ctx, int device)
{
    struct zone_context_facts facts = {.ctx = ctx, .id = 7, .device = device, .primary = true};
    struct zone_pool *made = zone_registry_make(&pool_process, &facts);
    ck_assert_ptr_nonnull(made);
    return made;
}

static void pool_open(size_t capacity, const char *conf, const struct zone_gpu *gpu)
{
    model_reset(capacity);
    model_set_check(check_no_lock);
    zone_options_init(&options);
    ck_assert_int_eq(zone_options_parse(&options, "CONF", conf, say, NULL), 0);
    pool_process.gpu = gpu;
    pool_process.options = &options;
    model_track_bytes(options.zero_fill || options.junk_fill);
    atomic_store(&pool_process.host_watched, 0);
    pool = pool_of(MODEL_CTX, 0);
}

static void drop(struct zone_pool *one, void *arg)
{
    (void)arg;
    zone_registry_drop(one);
}

void pool_setup(void)
{
    pool_open(64 * ZONE_GIB, "", model_gpu());
}

void pool_teardown(void)
{
    if (pool->ctx) {
        counts();
    }
    zone_registry_each(drop, NULL);
    for (int device = 0; device < ZONE_OPTIONS_DEVICES; device++) {
        ck_assert_uint_eq(zone_limit_used(device), 0);
    }
}

void pool_reopen(size_t capacity, const char *conf)
{
    pool_teardown();
    pool_open(capacity, conf, model_gpu());
}

void pool_reopen_without_events(size_t capacity, const char *conf)
{
    pool_teardown();
    pool_open(capacity, conf, model_gpu_without_events());
}

static void begin_malloc(const struct zone_pool *from, size_t bytes)
{
    model_set_current(from->ctx);
    model_enter_malloc();
    asked = zone_pool_class(from, bytes);
    asked_device = from->device;
}

static void end_malloc(void)
{
    asked = 0;
    model_leave_malloc();
}

static int alloc_done(struct zone_pool *from, int rc, size_t bytes, const zone_addr_t *ret_addr)
{
    if (rc == ZONE_GPU_OK) {
        const struct zone_block *block = block_at(*ret_addr);
        ck_assert_int_eq(block->state, ZONE_BLOCK_LIVE);
        ck_assert_uint_eq(block->req_bytes, bytes);
        ck_assert_uint_ge(block->bytes, bytes);
        ck_assert_ptr_eq(block->pool, from);
        if (from->fill.on) {
            model_expect(*ret_addr, block->bytes, from->fill.with);
        }
        model_program_holds(*ret_addr, block->bytes);
    }
    return rc;
}

static int alloc_from(struct zone_pool *from, size_t bytes, zone_addr_t *ret_addr)
{
    begin_malloc(from, bytes);
    int rc = zone_pool_alloc(from, bytes, ret_addr);
    end_malloc();
    if (rc == ZONE_GPU_OK) {
        model_handed_out(*ret_addr, bytes);
        ck_assert(!block_at(*ret_addr)->in_stream);
    }
    return alloc_done(from, rc, bytes, ret_addr);
}

struct zone_stream *stream_of(unsigned stream)
{
    struct zone_stream *lists = zone_stream_find(pool, stream + 1, pool->ctx);
    ck_assert_ptr_nonnull(lists);
    return lists;
}

int try_take_on(unsigned stream, size_t bytes, zone_addr_t *ret_addr)
{
    struct zone_stream *lists = stream_of(stream);
    begin_malloc(pool, bytes);
    unsigned before = calls();
    int rc = ZONE_GPU_OK;
    if (zone_stream_serve(lists, bytes, ret_addr)) {
        ck_assert_uint_eq(calls(), before);
    } else {
        rc = zone_stream_alloc(lists, model_stream(stream), bytes, ret_addr);
    }
    end_malloc();
    if (rc == ZONE_GPU_OK) {
        model_handed_out_on(stream, *ret_addr, bytes);
        ck_assert(block_at(*ret_addr)->in_stream);
    }
    return alloc_done(pool, rc, bytes, ret_addr);
}

zone_addr_t take_on(unsigned stream, size_t bytes)
{
    zone_addr_t addr = 0;
    ck_assert_int_eq(try_take_on(stream, bytes, &addr), 0);
    return addr;
}

int try_give_on(unsigned stream, zone_addr_t addr)
{
    struct zone_block *block = block_at(addr);
    unsigned stalls = model_stalls();
    if (!zone_block_claim(block)) {
        return ZONE_GPU_INVALID_VALUE;
    }
    model_given_back(addr, block->bytes);
    model_set_current(pool->ctx);
    int rc = zone_stream_free(stream_of(stream), model_stream(stream), block);
    ck_assert_msg(model_stalls() == stalls, "a free in stream order waited");
    return rc;
}

void give_on(unsigned stream, zone_addr_t addr)
{
    ck_assert_int_eq(try_give_on(stream, addr), 0);
}

void end_stream(unsigned stream)
{
    zone_stream_leave(stream_of(stream), model_stream(stream));
    zone_stream_gone(stream_of(stream));
}

zone_addr_t take_from(struct zone_pool *from, size_t bytes)
{
    zone_addr_t addr = 0;
    ck_assert_int_eq(alloc_from(from, bytes, &addr), 0);
    return addr;
}

zone_addr_t take(size_t bytes)
{
    return take_from(pool, bytes);
}

int try_take(size_t bytes, zone_addr_t *ret_addr)
{
    return alloc_from(pool, bytes, ret_addr);
}

static int free_by(zone_addr_t addr, enum zone_free_by by)
{
    struct zone_block *block = zone_ptrmap_get(addr);
    ck_assert_ptr_nonnull(block);
    if (!zone_block_claim(block)) {
        return ZONE_GPU_INVALID_VALUE;
    }
    model_given_back(addr, block->bytes);
    return zone_pool_free(block, by);
}

int try_give(zone_addr_t addr)
{
    return free_by(addr, ZONE_FREE_BY_FREE);
}

void give(zone_addr_t addr)
{
    ck_assert_int_eq(try_give(addr), 0);
}

void give_in_stream(zone_addr_t addr)
{
    ck_assert_int_eq(free_by(addr, ZONE_FREE_BY_STREAM), 0);
}

unsigned work_on(zone_addr_t addr, unsigned stream, uint64_t ns)
{
    return model_launch(MODEL_CTX, stream, addr, ns);
}

struct zone_block *block_at(zone_addr_t addr)
{
    struct zone_block *block = zone_ptrmap_get(addr);
    ck_assert_ptr_nonnull(block);
    ck_assert_uint_eq(block->addr, addr);
    return block;
}

struct zone_counters counts(void)
{
    struct zone_counters ret;
    zone_counters_init(&ret);
    zone_pool_count(pool, &ret);
    const char *wrong = zone_counters_check(&ret);
    ck_assert_msg(wrong == NULL, "the counters do not add up: %s", wrong ? wrong : "");
    return ret;
}

unsigned calls(void)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < MODEL_CALLS; i++) {
        sum += model_count((enum model_call)i);
    }
    return sum;
}
