/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: one thread captures again and again while others allocate and free blocks for which a
 * pool records events. In thread-local and relaxed mode nobody may notice the others; in
 * global mode a refused call and a lost capture go together. Usage: capture_threads MODE.
 *
 * In global mode a call that loses a capture while another thread ends it crashes the real driver
 * (580.159.04, natively: 2 of 15 runs), so there one call is made at a time.
 */
#include "tools.h"

#include <string.h>

enum { OTHERS = 4, USE_EVERY = 20 };

static int cycles;
static CUstreamCaptureMode mode;
static CUdeviceptr sum;
static uint32_t refused; /* atomic; calls of the other thread that a capture forbade */
static uint32_t stop;    /* atomic */

static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;

#define ALONE(call) (call_begin(), call_end((int)(call)))

static void call_begin(void)
{
    if (!simulated() && mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        pthread_mutex_lock(&one_call);
    }
}

static int call_end(int rc)
{
    if (!simulated() && mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
        pthread_mutex_unlock(&one_call);
    }
    return rc;
}

/* A call of the other thread: fine, or in global mode refused. True if it was made. */
static bool made(int code)
{
    if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && code == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) {
        __atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
        return false;
    }
    OK(code);
    return true;
}

static void allocate_and_free(void *data)
{
    const size_t sizes[] = {2 * MIB, 4 * KIB, 3 * MIB, MIB};
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    (void)data;
    for (uint32_t i = 0; !read_word(&stop); i++) {
        CUdeviceptr ptr;
        if (!made(ALONE(cuMemAlloc(&ptr, sizes[i % 4])))) {
            continue;
        }
        OK(ALONE(cuMemsetD32Async(ptr, i, 64, stream)));
        while (!made(ALONE(cuMemFree(ptr)))) {
        }
    }
}

static void use(CUgraph graph, CUstream stream, uint32_t *total)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    *total += 7;
    OK(cuStreamSynchronize(stream));
    uint32_t value = 0;
    OK(cuMemcpyDtoHAsync(&value, sum, sizeof value, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(value == *total, "%u, expected %u", value, *total);
    OK(cuGraphExecDestroy(exec));
}

/* In global mode: whoever killed the capture was refused, or will be in a moment. */
static void must_have_been_refused(uint32_t before)
{
    double end = now_us() + 2e6;
    while (__atomic_load_n(&refused, __ATOMIC_SEQ_CST) == before) {
        CHECK(now_us() < end, "a capture was lost and no call refused");
        sleep_ms(0.1);
    }
}

static int capture(CUstream stream)
{
    uint32_t total = 0;
    int ended = 0;
    for (int i = 0; i < cycles; i++) {
        CUgraph graph = NULL;
        uint32_t before = __atomic_load_n(&refused, __ATOMIC_SEQ_CST);
        /* The other thread is at a different place each time. */
        for (double until = now_us() + i % 32; now_us() < until;) {
        }
        OK(ALONE(cuStreamBeginCapture(stream, mode)));
        CUresult rc = CUDA_SUCCESS;
        if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
            sleep_ms(0.05); /* nothing is launched, as a launch fails when the capture is lost */
        } else {
            launch_add(stream, sum, 1, 3);
            launch_add(stream, sum, 1, 4);
        }
        rc = ALONE(cuStreamEndCapture(stream, &graph));
        if (rc == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
            must_have_been_refused(before);
            continue;
        }
        OK(rc);
        ended++;
        if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && i % USE_EVERY == 0) {
            use(graph, stream, &total);
        }
        OK(cuGraphDestroy(graph));
    }
    return ended;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "relaxed";
    CUstream stream = CU_STREAM_PER_THREAD;
    mode = strcmp(name, "global") == 0    ? CU_STREAM_CAPTURE_MODE_GLOBAL
           : strcmp(name, "relaxed") == 0 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                          : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    victim_start();
    bool many = simulated() && pooled() && mode != CU_STREAM_CAPTURE_MODE_GLOBAL;
    cycles = many ? 5000 : 200;
    if (strcmp(name, "per-thread") != 0) {
        stream = new_stream(CU_STREAM_NON_BLOCKING);
    }
    OK(cuMemAlloc(&sum, 4));
    OK(cuMemsetD32(sum, 0, 1));
    OK(cuCtxSynchronize());        /* the stream may be one that does not wait for the legacy one */
    launch_add(stream, sum, 1, 0); /* loads the kernel */
    OK(cuCtxSynchronize());
    struct worker workers[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
        worker_start(&workers[i], allocate_and_free, NULL);
    }
    int ended = capture(stream);
    __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < OTHERS; i++) {
        worker_join(&workers[i]);
    }
    CHECK(ended == cycles || mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "%d", ended);
    OK(cuCtxSynchronize());
    return 0;
}
