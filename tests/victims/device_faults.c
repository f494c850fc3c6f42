/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: each kind of device fault, in a process of its own: an illegal address, a kernel that
 * stops itself, an assertion, a launch timeout. Calls give the native code from the first that asks
 * the driver, for all that follows; several threads see it, none hangs; the process ends as ever
 * and its report names the fault. Usage: device_faults [WAY].
 */
#include "tools.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { THREADS = 4, PAIRS = 64, BLOCKS = 4 };

static const struct fault {
    const char *name;
    const char *kernel;
    int code;
    bool sim;  /* only there: when a real driver sees a fault by itself is not known */
    bool asks; /* the program learns of it by itself, before any call of libzone's */
} ways[] = {
    {"address", "fault", 700, false, true},
    {"address unseen", "fault", 700, true, false},
    {"trap", "trap", 719, false, true},
    {"trap unseen", "trap", 719, true, false},
    {"assertion", "assertion", 710, false, true},
    {"assertion unseen", "assertion", 710, true, false},
    {"timeout", "timeout", 702, true, true},
    {"timeout unseen", "timeout", 702, true, false},
};

static int expected;

/* Natively the first call sees it. A pool may serve until it asks the driver, which a thread that
 * frees does after some small frees at the latest, and in every large one. */
static void see_it(size_t bytes, int most)
{
    for (int i = 0; i < most; i++) {
        CUdeviceptr ptr = 0;
        int code = (int)cuMemAlloc(&ptr, bytes);
        if (code == CUDA_SUCCESS && under_zone()) {
            code = (int)cuMemFree(ptr);
        }
        CHECK(code == expected || (code == CUDA_SUCCESS && under_zone()), "%d", code);
        if (code == expected) {
            return;
        }
    }
    CHECK(false, "not seen after %d pairs of %zu bytes", most, bytes);
}

static void see_it_small(void *unused)
{
    (void)unused;
    see_it(4 * KIB, PAIRS);
}

static void all_calls_fail(const CUdeviceptr *held)
{
    CUdeviceptr ptr = 77;
    size_t bytes;
    size_t pitch;
    struct worker workers[THREADS];
    EXPECT(expected, cuMemAlloc(&ptr, 4 * KIB));
    EXPECT(expected, cuMemAlloc(&ptr, 2 * MIB));
    EXPECT(expected, cuMemFree(held[0]));
    EXPECT(expected, cuMemFree(held[1]));
    EXPECT(expected, cuMemFree(held[1]));
    EXPECT(expected, cuMemGetInfo(&bytes, NULL));
    EXPECT(expected, cuMemAllocPitch(&ptr, &pitch, 100, 100, 4));
    EXPECT(expected, cuMemAllocManaged(&ptr, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(expected, cuMemAllocAsync(&ptr, 4 * KIB, NULL));
    CHECK(is_untouched(ptr, 77), "%llu", ptr);
    for (int i = 0; i < THREADS; i++) {
        worker_start(&workers[i], see_it_small, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
    EXPECT(expected, cuCtxSynchronize());
}

static void run(const struct fault *fault)
{
    CUdeviceptr held[BLOCKS];
    expected = fault->code;
    victim_start();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            OK(cuMemAlloc(&held[i], i % 2 ? 2 * MIB : 4 * KIB));
        }
        for (int i = 0; i < BLOCKS && round == 0; i++) {
            OK(cuMemFree(held[i])); /* so that a pool has blocks to serve from */
        }
    }
    launch_bad(NULL, fault->kernel);
    if (fault->asks) {
        EXPECT(expected, cuCtxSynchronize());
    } else {
        sleep_ms(250); /* until it is there, also on a busy machine */
    }
    see_it(4 * KIB, PAIRS);
    see_it(2 * MIB, 1);
    all_calls_fail(held);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char named[64];
        int status = -1;
        if (argc > 1) {
            if (strcmp(argv[1], ways[i].name) == 0) {
                run(&ways[i]);
            }
            continue;
        }
        if (ways[i].sim && !simulated()) {
            continue;
        }
        snprintf(named, sizeof named, "the GPU reported error %d (", ways[i].code);
        int times = lines_of_child(argv[0], ways[i].name, named, &status);
        CHECK(status == 0, "%s: status %x", ways[i].name, (unsigned)status);
        CHECK(times == (pooled() ? 1 : 0), "%s: named %d times", ways[i].name, times);
    }
    return 0;
}
