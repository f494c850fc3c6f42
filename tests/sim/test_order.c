/* SPDX-License-Identifier: Apache-2.0
 *
 * Test of the simulated GPU: what runs after what. Work is held by a stream that waits for a flag,
 * so that every question has one answer however slow the machine is.
 */
#include "../victims/victim.h"

#include <pthread.h>

static uint32_t *flags; /* a new word for each use */
static CUstream blocking, other_blocking, non_blocking;

/* A stream's work so far: held until release() is called. */
struct hold {
    uint32_t *gate;
    uint32_t *how;
};

static CUdeviceptr device(const void *word)
{
    return (CUdeviceptr)(uintptr_t)word;
}

static struct hold hold(CUstream stream)
{
    struct hold held = {flags, flags + 1};
    flags += 2;
    launch_waitflag(stream, device(held.gate), device(held.how), 5000);
    return held;
}

static void release(struct hold held)
{
    __atomic_store_n(held.gate, 1, __ATOMIC_SEQ_CST);
    OK(cuCtxSynchronize());
    CHECK(read_word(held.how) == 1, "the gate was not seen in time");
}

/* Whether a signal queued on that stream gets through while the other stream is held. */
static bool gets_through(CUstream held_stream, CUstream stream, double patience_us)
{
    struct hold held = hold(held_stream);
    uint32_t *flag = flags++;
    launch_signal(stream, device(flag));
    double end = now_us() + patience_us;
    while (!read_word(flag) && now_us() < end) {
        sleep_ms(0.2);
    }
    bool ran = read_word(flag) != 0;
    release(held);
    CHECK(read_word(flag) == 1);
    return ran;
}

/* On a busy machine a stream's thread may take its time; what is held stays held. */
static bool runs_beside(CUstream held_stream, CUstream stream)
{
    return gets_through(held_stream, stream, 3e6);
}

static bool waits_for(CUstream held_stream, CUstream stream)
{
    return !gets_through(held_stream, stream, 30e3);
}

static void streams(void)
{
    CHECK(waits_for(blocking, blocking));
    CHECK(waits_for(blocking, NULL));
    CHECK(waits_for(NULL, blocking));
    CHECK(waits_for(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD));
    CHECK(waits_for(CU_STREAM_PER_THREAD, CU_STREAM_LEGACY));
    CHECK(runs_beside(blocking, other_blocking));
    CHECK(runs_beside(blocking, non_blocking));
    CHECK(runs_beside(NULL, non_blocking));
    CHECK(runs_beside(non_blocking, NULL));
    CHECK(runs_beside(CU_STREAM_PER_THREAD, blocking));
}

/* Work between two streams goes through the legacy stream's. */
static void legacy_in_between(void)
{
    struct hold held = hold(blocking);
    uint32_t *flag = flags++;
    launch_spin(NULL, 0.1);
    launch_signal(other_blocking, device(flag));
    sleep_ms(10);
    CHECK(read_word(flag) == 0, "it passed the legacy stream");
    release(held);
}

static void events(void)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(event)); /* never recorded */
    struct hold held = hold(blocking);
    uint32_t *flag = flags++;
    OK(cuEventRecord(event, blocking));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    OK(cuStreamQuery(non_blocking));
    OK(cuStreamWaitEvent(non_blocking, event, 0));
    launch_signal(non_blocking, device(flag));
    OK(cuEventRecord(event, other_blocking)); /* does not disturb who already waits */
    OK(cuEventSynchronize(event));
    sleep_ms(5);
    CHECK(read_word(flag) == 0, "the stream did not wait for the event");
    release(held);
    CHECK(read_word(flag) == 1);
    OK(cuEventDestroy(event));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
}

static void elapsed(void)
{
    CUevent start;
    CUevent end;
    float ms = 0;
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
    OK(cuEventRecord(start, blocking));
    launch_spin(blocking, 20);
    OK(cuEventRecord(end, blocking));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    CHECK(ms >= 20 && ms < 1000, "%f ms", (double)ms);
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
}

static void CUDA_CB set_word(void *data)
{
    int count;
    /* A host function may not call the driver. */
    bool refused = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_PERMITTED;
    __atomic_store_n((uint32_t *)data, refused ? 1 : 2, __ATOMIC_SEQ_CST);
}

static void host_function(void)
{
    struct hold held = hold(blocking);
    uint32_t *flag = flags++;
    OK(cuLaunchHostFunc(blocking, set_word, flag));
    sleep_ms(5);
    CHECK(read_word(flag) == 0);
    release(held);
    CHECK(read_word(flag) == 1, "%u", read_word(flag));
}

static void memory_operations(void)
{
    uint32_t *gate = flags++;
    uint32_t *flag = flags++;
    OK(cuStreamWaitValue32(blocking, device(gate), 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWriteValue32(blocking, device(flag), 9, 0));
    OK(cuStreamWriteValue32(non_blocking, device(gate), 2, 0));
    OK(cuStreamSynchronize(non_blocking));
    sleep_ms(2);
    CHECK(read_word(flag) == 0);
    OK(cuStreamWriteValue32(non_blocking, device(gate), 3, 0));
    OK(cuStreamSynchronize(blocking));
    CHECK(read_word(flag) == 9);
}

/* A pageable source may be overwritten as soon as the asynchronous copy returned. */
static void staged_copies(void)
{
    uint32_t words[64];
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, sizeof words));
    for (int i = 0; i < 64; i++) {
        words[i] = 5;
    }
    struct hold held = hold(blocking);
    OK(cuMemcpyHtoDAsync(ptr, words, sizeof words, blocking));
    words[10] = 6;
    release(held);
    CHECK(count_wrong(blocking, ptr, 64, 5) == 0);
    /* A copy from pinned memory reads it when it runs. */
    uint32_t *pinned = host_words(64);
    held = hold(blocking);
    OK(cuMemcpyHtoDAsync(ptr, pinned, 256, blocking));
    pinned[10] = 7;
    release(held);
    CHECK(count_wrong(blocking, ptr, 64, 0) == 1);
    /* A synchronous copy to the host waits for the legacy stream's rule. */
    held = hold(non_blocking);
    OK(cuMemcpyDtoH(words, ptr, sizeof words));
    CHECK(words[10] == 7);
    release(held);
    OK(cuMemFree(ptr));
    OK(cuMemFreeHost(pinned));
}

static void *own_stream(void *data)
{
    CUcontext context = data;
    uint32_t *flag = flags;
    OK(cuCtxSetCurrent(context));
    launch_signal(CU_STREAM_PER_THREAD, device(flag));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

/* Two threads' per-thread streams are two streams. */
static void per_thread_streams(void)
{
    CUcontext context;
    pthread_t thread;
    OK(cuCtxGetCurrent(&context));
    struct hold held = hold(CU_STREAM_PER_THREAD);
    CHECK(pthread_create(&thread, NULL, own_stream, context) == 0);
    pthread_join(thread, NULL);
    CHECK(read_word(flags++) == 1);
    release(held);
}

int main(void)
{
    victim_start();
    flags = host_words(1024);
    blocking = new_stream(CU_STREAM_DEFAULT);
    other_blocking = new_stream(CU_STREAM_DEFAULT);
    non_blocking = new_stream(CU_STREAM_NON_BLOCKING);
    streams();
    legacy_in_between();
    events();
    elapsed();
    host_function();
    memory_operations();
    staged_copies();
    per_thread_streams();
    return 0;
}
