/* SPDX-License-Identifier: Apache-2.0
 *
 * See calls.h.
 */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE 0x5ca1ab1eu

enum { MOST_CODES = 4, MOST_AGAIN = 2 };

static const int LOST = CUDA_ERROR_ILLEGAL_ADDRESS; /* the context is lost with it */

/* Codes after which a context lives on. */
static const int codes[MOST_CODES] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE,
                                      CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN};

static const struct {
    const char *name, *kind;
} hooks[] = {
#define HOOK(name, kind, params, args) {#name, #kind},
#define CALL(name, params)             {#name, "CALL"},
#include "../../shim/hooks.def"
};

struct call_scene scene;

static const char *armed_name;
/* Codes of the next call and of it made again; if they are the same, of each that follows. */
static int armed[MOST_AGAIN];

const char *call_kind(const char *name)
{
    const char *kind = NULL;
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++) {
        if (strcmp(hooks[i].name, name) == 0) {
            kind = hooks[i].kind;
        }
    }
    CHECK(kind, "%s is not in hooks.def", name);
    return kind;
}

void call_arm(void)
{
    if (armed[0] == armed[1] && armed[0] != 0) {
        driver_fail(armed_name, 0, armed[0]);
    }
    for (unsigned i = 0; i < MOST_AGAIN; i++) {
        if (armed[i] != 0) {
            driver_fail(armed_name, i + 1, armed[i]);
        }
        armed[i] = 0;
    }
}

int call_undone(CUresult rc, CUresult undone)
{
    return (int)rc == LOST ? 0 : (int)undone;
}

size_t call_new_size(void)
{
    static size_t steps;
    return ++steps * 4 * KIB;
}

void call_keep_memory(void)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, 6 * MIB));
    OK(cuMemFree_v2(ptr));
}

void call_check_data(void)
{
    CUdeviceptr ptr;
    OK(cuCtxSetCurrent(scene.context));
    CHECK(count_wrong(scene.stream, scene.data, SCENE_WORDS, VALUE) == 0);
    OK(cuMemAlloc_v2(&ptr, SCENE_WORDS * 4));
    launch_fill(scene.stream, ptr, SCENE_WORDS, 1);
    CHECK(count_wrong(scene.stream, ptr, SCENE_WORDS, 1) == 0);
    OK(cuMemFree_v2(ptr));
}

static void scene_begin(void)
{
    victim_start();
    OK(cuCtxGetCurrent(&scene.context));
    scene.stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2(&scene.data, SCENE_WORDS * 4));
    launch_fill(scene.stream, scene.data, SCENE_WORDS, VALUE);
    CHECK(count_wrong(scene.stream, scene.data, SCENE_WORDS, VALUE) == 0);
}

static uint64_t live(const char *kind)
{
    uint64_t (*count)(const char *);
    void *found = zsim("zsim_live");
    CHECK(found);
    memcpy(&count, &found, sizeof count);
    return count(kind);
}

struct call_lives call_lives(void)
{
    static const char *const kinds[] = {"arrays",  "contexts", "graphs", "libraries",
                                        "modules", "physical", "pools",  "streams"};
    struct call_lives lives = {.allocations = live("allocations"), .events = live("events")};
    for (size_t i = 0; i < 8; i++) {
        lives.others[i] = live(kinds[i]);
    }
    OK(cuMemGetInfo_v2(&lives.free_bytes, &lives.taken));
    lives.taken = driver_bytes();
    return lives;
}

/* A pool may keep memory and events, no more than it counts as free. */
void call_check_lives(const struct call_lives *before)
{
    struct call_lives now = call_lives();
    bool keeps = pooled();
    CHECK(memcmp(now.others, before->others, sizeof now.others) == 0, "things were lost");
    /* What it keeps may lie in a chunk that is taken anyway. */
    size_t exact = keeps ? 2 * MIB : 1;
    CHECK(now.free_bytes < before->free_bytes + exact &&
              now.free_bytes + exact > before->free_bytes,
          "%zu bytes free, then %zu", before->free_bytes, now.free_bytes);
    CHECK(keeps || now.allocations == before->allocations, "%llu allocations, then %llu",
          (unsigned long long)before->allocations, (unsigned long long)now.allocations);
    CHECK(keeps || now.taken == before->taken, "%zu bytes taken, then %zu", before->taken,
          now.taken);
    CHECK(pooled() ? now.events <= before->events + 64 : now.events == before->events,
          "%llu events, then %llu", (unsigned long long)before->events,
          (unsigned long long)now.events);
}

/* The call with this failure, and that the driver was asked so often. */
static void fails(const struct call_row *row, int first, int second, int expected, unsigned asked)
{
    armed[0] = first;
    armed[1] = second;
    uint64_t calls = driver_calls(row->name);
    CUresult rc = row->call();
    calls = driver_calls(row->name) - calls;
    driver_fail_none();
    CHECK(rc == (CUresult)expected, "%s was to fail with %d, %d: %d after %llu calls", row->name,
          first, second, rc, (unsigned long long)calls);
    CHECK(calls >= asked, "%s was asked %llu times", row->name, (unsigned long long)calls);
}

/* The pool asks again whatever there is to give back: the driver may be about to have some. */
static bool is_pools(const char *name)
{
    return pooled() && strcmp(name, "cuMemAlloc_v2") == 0;
}

static bool is_retried(const char *name)
{
    return strncmp(call_kind(name), "RETRY", 5) == 0 || strcmp(name, "cuMemAlloc_v2") == 0 ||
           strcmp(name, "cuMemAllocManaged") == 0 || strncmp(name, "cuMemAllocAsync", 15) == 0 ||
           strncmp(name, "cuMemAllocFromPoolAsync", 23) == 0;
}

/* Each code once and after a call that went well, with nothing kept that could be given back. */
static void all_codes(const struct call_row *row)
{
    for (size_t i = 0; i < MOST_CODES; i++) {
        for (unsigned before = 0; before < 2; before++) {
            for (unsigned j = 0; j < before; j++) {
                fails(row, 0, 0, 0, 1);
            }
            fails(row, codes[i], is_pools(row->name) && i == 0 ? codes[i] : 0, codes[i], 1);
        }
        fails(row, 0, 0, 0, 1);
    }
}

/* With kept memory: a call out of memory is made again, and then its own code counts. */
static void out_of_memory(const struct call_row *row)
{
    const int full = CUDA_ERROR_OUT_OF_MEMORY;
    bool again = is_retried(row->name) && pooled();
    call_keep_memory();
    fails(row, full, 0, again ? 0 : full, again ? 2 : 1);
    call_keep_memory();
    fails(row, full, again ? full : 0, full, again ? 2 : 1);
    call_keep_memory();
    fails(row, full, again ? CUDA_ERROR_UNKNOWN : 0, again ? CUDA_ERROR_UNKNOWN : full, 1);
    fails(row, 0, 0, 0, 1);
}

static void run_codes(const struct call_row *row)
{
    scene_begin();
    row->call(); /* what the driver makes at a first use is made */
    struct call_lives before = call_lives();
    all_codes(row);
    out_of_memory(row);
    call_check_data();
    call_check_lives(&before);
}

/* Natively every call says so from here on. A pool may serve one that has not asked the driver. */
static void run_lost(const struct call_row *row)
{
    scene_begin();
    fails(row, 0, 0, 0, 1);
    armed[0] = LOST;
    EXPECT(LOST, row->call());
    CUdeviceptr ptr;
    size_t bytes;
    int freed = (int)cuMemFree_v2(scene.data);
    CHECK(freed == LOST || (freed == 0 && pooled()), "a free gave %d", freed);
    EXPECT(LOST, cuMemAlloc_v2(&ptr, 40 * MIB));
    EXPECT(LOST, cuMemGetInfo_v2(&bytes, &bytes));
    EXPECT(LOST, cuCtxSynchronize());
    OK(cuDevicePrimaryCtxReset_v2(0));
    victim_forget_kernels();
    OK(cuDevicePrimaryCtxRetain(&scene.context, 0));
    OK(cuCtxSetCurrent(scene.context));
    scene_begin();
    call_check_data();
}

bool call_again(const char *self, const char *name, const char *way)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, name, way, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!well) {
        fprintf(stderr, "%s, %s: status %x\n", name, way, (unsigned)status);
    }
    return well;
}

static int run_one(const struct call_row *row, const char *way)
{
    armed_name = row->name;
    if (strcmp(way, "codes") == 0) {
        run_codes(row);
    } else {
        run_lost(row);
    }
    return 0;
}

int call_rows(const struct call_row *rows, size_t count, int argc, char **argv)
{
    int failures = 0;
    if (argc == 3) {
        return run_one(&rows[strtoul(argv[1], NULL, 10)], argv[2]);
    }
    setenv("ZONE_REPORT", "none", 1);
    for (size_t i = 0; i < count; i += slowness()) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        bool well = call_again(argv[0], index, "codes");
        well = call_again(argv[0], index, "lost") && well;
        if (!well) {
            fprintf(stderr, "%s %s\n", rows[i].name, rows[i].what ? rows[i].what : "");
        }
        failures += !well;
        printf("call\t%s\t%s\t%s\t%s\n", rows[i].name, rows[i].what ? rows[i].what : "",
               call_kind(rows[i].name), is_retried(rows[i].name) ? "again" : "as it is");
    }
    CHECK(failures == 0, "%d rows", failures);
    return 0;
}
