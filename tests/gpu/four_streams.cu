/* SPDX-License-Identifier: Apache-2.0
 *
 * Four streams share one allocator: each step is cudaMalloc of 8 MiB, a kernel that writes a tag,
 * spins 50 us and looks again, a kernel that checks the tag, and cudaFree while both still run. A
 * block handed on too early is overwritten by the next stream's tag, and the check counts it. It
 * holds no managed memory: with that, cudaFree under libzone waits as it does natively.
 * Usage: four_streams [rounds [async | kept]]. With async the memory is allocated and freed in the
 * stream's order, with kept the default pool keeps what is freed, too. Prints wrong, host_ms,
 * total_ms (medians of a round of 400 steps).
 */
#include "spin.cuh"

enum { STREAMS = 4, STEPS = 400, THREADS = 64, MAX_ROUNDS = 200 };

static const size_t BYTES = MIB(8);

/* One cell a thread, spread over the whole block, so that an overlap anywhere is seen. */
static __device__ inline volatile int *cell_of(int *block)
{
    return block + (size_t)threadIdx.x * (BYTES / sizeof(int) / THREADS);
}

static __global__ void fill(int *block, int tag, long long cycles, int *wrong)
{
    long long start = clock64();
    volatile int *cell = cell_of(block);
    *cell = tag;
    spin_until(start, cycles);
    if (*cell != tag) {
        atomicAdd(wrong, 1);
    }
}

static __global__ void check(int *block, int tag, int *wrong)
{
    if (*cell_of(block) != tag) {
        atomicAdd(wrong, 1);
    }
}

static void keep_memory(void)
{
    cudaMemPool_t pool;
    unsigned long long all = ~0ull;
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    bool async = argc > 2;
    if (async && strcmp(argv[2], "kept") == 0) {
        keep_memory();
    }
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        printf("rounds must be 1 to %d\n", MAX_ROUNDS);
        return 2;
    }
    long long cycles = cycles_for_us(50);
    cudaStream_t streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        RT(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    int *wrong = NULL;
    RT(cudaMalloc((void **)&wrong, sizeof(*wrong)));
    RT(cudaMemset(wrong, 0, sizeof(*wrong)));

    double host_ms[MAX_ROUNDS];
    double total_ms[MAX_ROUNDS];
    /* Round -1 warms up: clocks, module load, the first blocks. */
    for (int round = -1; round < rounds; round++) {
        RT(cudaDeviceSynchronize());
        double start = now_us();
        for (int step = 0; step < STEPS; step++) {
            cudaStream_t stream = streams[step % STREAMS];
            int tag = (round + 1) * STEPS + step + 1;
            int *block = NULL;
            RT(async ? cudaMallocAsync((void **)&block, BYTES, stream)
                     : cudaMalloc((void **)&block, BYTES));
            fill<<<1, THREADS, 0, stream>>>(block, tag, cycles, wrong);
            check<<<1, THREADS, 0, stream>>>(block, tag, wrong);
            RT(async ? cudaFreeAsync(block, stream) : cudaFree(block));
        }
        double launched = now_us();
        RT(cudaDeviceSynchronize());
        if (round >= 0) {
            host_ms[round] = (launched - start) / 1e3;
            total_ms[round] = (now_us() - start) / 1e3;
        }
    }
    RT(cudaGetLastError());
    int count = 0;
    RT(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
    put("wrong", count);
    put("host_ms", median(host_ms, (size_t)rounds));
    put("total_ms", median(total_ms, (size_t)rounds));
    return 0;
}
