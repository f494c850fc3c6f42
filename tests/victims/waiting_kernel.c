/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a kernel on stream A waits for a flag that a later kernel on stream B sets; a free comes
 * before A, a malloc between. Natively nothing ties B to A. An allocator whose malloc waits for
 * work submitted after the free hangs a correct program; here the waiter gives up after a while.
 * Usage: waiting_kernel [VARIANT]. The last three fill a device that the row makes small.
 */
#include "tools.h"

#include <string.h>
#include <time.h>

#define LIMIT_MS 400.0

/* What a variant does otherwise than `plain`. */
struct variant {
    const char *name;
    bool other_thread;  /* malloc and feeder in another thread */
    bool host_function; /* instead of the waiter a host function that needs a lock, which is held
                         * around the malloc */
    size_t leave;       /* not 0: the device is filled; so much is free beside the freed block */
    size_t other_size;  /* the malloc asks for so much less than was freed */
};

/* `other`: only giving the freed block back can serve the malloc, which no driver call does while
 * a kernel runs; where little is left (`tight`), it happened in the free already. */
static const struct variant variants[] = {
    {"plain", false, false, 0, 0},
    {"thread", true, false, 0, 0},
    {"hostfunc", false, true, 0, 0},
    {"full", false, false, 32 * MIB, 0},
    {"tight", false, false, 8 * MIB, 2 * MIB},
    {"other", false, false, 32 * MIB, 2 * MIB},
};

static CUstream a, b, c;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct request {
    size_t bytes;
    CUdeviceptr ptr;
    struct gate gate;
    bool feeds;
};

static void CUDA_CB take_mutex(void *data)
{
    struct timespec until;
    uint32_t *how = data;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    bool got = pthread_mutex_timedlock(&mutex, &until) == 0;
    if (got) {
        pthread_mutex_unlock(&mutex);
    }
    __atomic_store_n(how, got ? GATE_OPENED : GATE_GAVE_UP, __ATOMIC_SEQ_CST);
}

static void allocate_and_feed(void *data)
{
    struct request *request = data;
    OK(cuMemAlloc(&request->ptr, request->bytes));
    if (request->feeds) {
        gate_open_on(b, request->gate);
    }
}

static void run(const struct variant *variant, size_t bytes)
{
    struct request request = {.bytes = bytes - variant->other_size, .feeds = true};
    CUdeviceptr freed;
    OK(cuMemAlloc(&freed, bytes));
    /* Keeps the freed block busy, so that it is pending for certain when the malloc comes. */
    launch_fill(c, freed, 128, 1);
    launch_spin(c, 3);
    OK(cuMemFree(freed));
    if (variant->host_function) {
        request.gate = gate_new();
        request.feeds = false;
        pthread_mutex_lock(&mutex);
        OK(cuLaunchHostFunc(a, take_mutex, request.gate.how));
        allocate_and_feed(&request);
        pthread_mutex_unlock(&mutex);
    } else {
        request.gate = gate_close(a, LIMIT_MS * slowness());
        if (variant->other_thread) {
            in_thread(allocate_and_feed, &request);
        } else {
            allocate_and_feed(&request);
        }
    }
    OK(cuCtxSynchronize());
    CHECK(gate_outcome(request.gate) == GATE_OPENED, "%s: tied at %zu bytes", variant->name, bytes);
    OK(cuMemFree(request.ptr));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "plain";
    const struct variant *variant = variants;
    while (strcmp(variant->name, name) != 0) {
        variant++;
        CHECK(variant < variants + sizeof variants / sizeof variants[0], "%s", name);
    }
    victim_start();
    a = new_stream(CU_STREAM_NON_BLOCKING);
    b = new_stream(CU_STREAM_NON_BLOCKING);
    c = new_stream(CU_STREAM_NON_BLOCKING);
    /* Loads the kernels before a round, and takes what the flags need. */
    gate_open_on(b, gate_close(a, 5));
    OK(cuCtxSynchronize());
    const size_t small_sizes[] = {4 * KIB, 2 * MIB, 32 * MIB};
    for (int i = 0; i < 6; i++) {
        size_t bytes = variant->leave > 0 ? 64 * MIB : small_sizes[i % 3];
        if (variant->leave > 0 && i == 0) {
            size_t left;
            CUdeviceptr filler;
            OK(cuMemGetInfo(&left, NULL));
            CHECK(left > bytes + 2 * variant->leave, "only %zu bytes", left);
            OK(cuMemAlloc(&filler, left - bytes - variant->leave));
        }
        run(variant, bytes);
    }
    return 0;
}
