/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: memory allocated and freed in stream order goes round on one stream, from a producer's to
 * a consumer's, through the per-thread streams of threads that end, and out of a stream that is
 * destroyed while its work is held. Nobody's words change under running work, no free waits, and on
 * one stream memory comes back at once.
 */
#include "tools.h"

#define LIMIT_MS 30.0

enum { ROUNDS = 60, THREADS = 6 };

static const size_t sizes[] = {4 * KIB, 300 * KIB, 2 * MIB};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static uint32_t *bad;

static CUdeviceptr get(size_t bytes, CUstream stream)
{
    CUdeviceptr ptr = 0;
    OK(cuMemAllocAsync(&ptr, bytes, stream));
    return ptr;
}

static void use(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
    launch_fill(stream, ptr, bytes / 4, value);
    launch_check(stream, ptr, bytes / 4, value, (CUdeviceptr)(uintptr_t)bad);
}

/* The stream's own memory is good for it while its work has not even begun. */
static void one_stream(size_t bytes, CUstream stream)
{
    CUdeviceptr ptr = get(bytes, stream);
    struct gate gate = gate_close(stream, LIMIT_MS);
    use(stream, ptr, bytes, 1);
    OK(cuMemFreeAsync(ptr, stream));
    uint64_t before = driver_allocs();
    for (uint32_t i = 0; i < 10; i++) {
        CUdeviceptr again = get(bytes, stream);
        CHECK(!pooled() || again == ptr, "%zu bytes: another block", bytes);
        use(stream, again, bytes, i + 2);
        OK(cuMemFreeAsync(again, stream));
    }
    CHECK(!pooled() || driver_allocs() == before, "the driver was asked");
    CHECK(gate_outcome(gate) == GATE_CLOSED, "a call waited");
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
    CHECK(read_word(bad) == 0, "%zu bytes: %u words", bytes, read_word(bad));
}

/* Allocated on one stream, used on both, freed on the other. */
static void producer_consumer(size_t bytes)
{
    CUevent produced;
    CUstream producer = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream consumer = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuEventCreate(&produced, CU_EVENT_DISABLE_TIMING));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CUdeviceptr ptr = get(bytes, producer);
        if (i % 16 == 0) {
            launch_spin(consumer, 1);
        }
        use(producer, ptr, bytes, i);
        OK(cuEventRecord(produced, producer));
        OK(cuStreamWaitEvent(consumer, produced, 0));
        launch_add(consumer, ptr, bytes / 4, 1000);
        launch_check(consumer, ptr, bytes / 4, i + 1000, (CUdeviceptr)(uintptr_t)bad);
        OK(cuMemFreeAsync(ptr, consumer));
    }
    OK(cuStreamSynchronize(consumer));
    CHECK(read_word(bad) == 0, "%zu bytes, two streams: %u words", bytes, read_word(bad));
    OK(cuStreamDestroy(producer));
    OK(cuStreamDestroy(consumer));
    OK(cuEventDestroy(produced));
}

/* The stream is gone, its work is not; another one, perhaps with its handle, inherits nothing. */
static void destroyed(size_t bytes)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr ptr = get(bytes, stream);
    struct gate gate = gate_close(stream, LIMIT_MS);
    use(stream, ptr, bytes, 7);
    OK(cuMemFreeAsync(ptr, stream));
    OK(cuStreamDestroy(stream));
    CHECK(gate_outcome(gate) == GATE_CLOSED, "destroying a stream waited");
    CUstream later = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr other = get(bytes, later);
    use(later, other, bytes, 8);
    OK(cuStreamSynchronize(later));
    gate_open(gate);
    OK(cuCtxSynchronize());
    CHECK(read_word(bad) == 0, "%zu bytes of a destroyed stream: %u words", bytes, read_word(bad));
    OK(cuMemFreeAsync(other, later));
    OK(cuStreamDestroy(later));
}

struct thread {
    uint32_t number;
    struct gate gate; /* holds the thread's stream when it ends */
    bool held;
};

/* Each thread has a stream of its own. */
static void on_own_stream(void *arg)
{
    struct thread *thread = arg;
    CUdeviceptr ptr = 0;
    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        size_t bytes = sizes[(thread->number + i) % SIZES];
        OK(cuMemAllocAsync(&ptr, bytes, CU_STREAM_PER_THREAD));
        if (thread->held && i == 0) {
            thread->gate = gate_close(CU_STREAM_PER_THREAD, LIMIT_MS);
        }
        use(CU_STREAM_PER_THREAD, ptr, bytes, thread->number << 16 | i);
        OK(cuMemFreeAsync(ptr, CU_STREAM_PER_THREAD));
    }
}

static void threads(void)
{
    struct worker workers[THREADS];
    struct thread args[THREADS];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < THREADS; i++) {
            args[i] = (struct thread){.number = round * THREADS + i + 1, .held = i % 2};
            worker_start(&workers[i], on_own_stream, &args[i]);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            worker_join(&workers[i]);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            if (args[i].held) {
                gate_open(args[i].gate);
            }
        }
        OK(cuCtxSynchronize());
        CHECK(read_word(bad) == 0, "per-thread streams: %u words", read_word(bad));
    }
}

int main(void)
{
    victim_start();
    bad = host_words(1);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < SIZES; i++) {
        one_stream(sizes[i], stream);
        one_stream(sizes[i], NULL);
        producer_consumer(sizes[i]);
        destroyed(sizes[i]);
    }
    threads();
    return 0;
}
