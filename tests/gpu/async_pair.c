/* SPDX-License-Identifier: Apache-2.0
 *
 * What cudaMallocAsync followed by cudaFreeAsync costs on one stream, per size: on an idle device,
 * and with 50 µs of work on the block in between, of which the host does not wait for any; and in
 * two threads with a stream each. Usage: async_pair [kept]. With kept the default pool keeps what
 * is freed. Prints idle_SIZE_ns, busy_SIZE_ns, threads_2_ns.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>
#include "gpu.h"

enum { BATCH = 200, BATCHES_MAX = 1000, BUSY_BATCH = 20, THREADS = 2 };

static const double TIME_US = 100e3;

static void pair(size_t bytes, cudaStream_t stream, int busy)
{
    void *block = NULL;
    RT(cudaMallocAsync(&block, bytes, stream));
    if (busy) {
        RT(cudaMemsetAsync(block, 1, bytes, stream));
    }
    RT(cudaFreeAsync(block, stream));
}

/* The best tenth of the batches: what else a shared machine does only adds time. */
static double pair_ns(size_t bytes, cudaStream_t stream, int busy)
{
    double batch_ns[BATCHES_MAX];
    size_t batches = 0;
    int pairs = busy ? BUSY_BATCH : BATCH;
    double start = now_us();
    pair(bytes, stream, 0);
    while (batches < BATCHES_MAX && (batches < 5 || now_us() - start < TIME_US)) {
        double before = now_us();
        for (int i = 0; i < pairs; i++) {
            pair(bytes, stream, busy);
        }
        batch_ns[batches++] = (now_us() - before) * 1e3 / pairs;
        RT(cudaStreamSynchronize(stream));
    }
    return quantile(batch_ns, batches, 0.1);
}

static void *work(void *argument)
{
    cudaStream_t stream;
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *(double *)argument = pair_ns(KIB(64), stream, 0);
    RT(cudaStreamDestroy(stream));
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        size_t bytes;
    } sizes[] = {{"512B", 512}, {"64KiB", KIB(64)}, {"1MiB", MIB(1)}, {"64MiB", MIB(64)}};
    cudaStream_t stream;
    cudaMemPool_t pool;
    unsigned long long all = ~0ull;
    RT(cudaFree(NULL));
    if (argc > 1 && strcmp(argv[1], "kept") == 0) {
        RT(cudaDeviceGetDefaultMemPool(&pool, 0));
        RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    }
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char key[64];
        snprintf(key, sizeof(key), "idle_%s_ns", sizes[i].name);
        put(key, pair_ns(sizes[i].bytes, stream, 0));
        snprintf(key, sizeof(key), "busy_%s_ns", sizes[i].name);
        put(key, pair_ns(sizes[i].bytes, stream, 1));
    }
    pthread_t threads[THREADS];
    double ns[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, &ns[i]) != 0) {
            exit(2);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    put("threads_2_ns", median(ns, THREADS));
    return 0;
}
