/* SPDX-License-Identifier: Apache-2.0
 *
 * What an allocation followed by its free costs on an idle device: per size, first with one block
 * of the size in the pool, then with 200 warmed up; and per thread for 1 to 16 threads, all with
 * the same size or each with its own. Built three times: static cudart, shared cudart, driver API.
 * Usage: pair sizes | threads. Prints single_SIZE_ns, warm_SIZE_ns; same_N_ns, own_N_ns.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "api.h"

enum { BATCH = 200, BATCHES_MAX = 2000, WARM_BLOCKS = 200, THREADS_MAX = 16 };

static const double SIZE_TIME_US = 200e3;
static const double THREAD_TIME_US = 200e3;

/* The best tenth of the batches: what else a shared machine does only adds time. A slow native pair
 * ends by the clock. */
static double pair_ns(size_t bytes)
{
    static double batch_ns[BATCHES_MAX];
    size_t batches = 0;
    double start = now_us();
    while (batches < BATCHES_MAX && (batches < 11 || now_us() - start < SIZE_TIME_US)) {
        double before = now_us();
        for (int i = 0; i < BATCH; i++) {
            gpu_free(gpu_alloc(bytes));
        }
        batch_ns[batches++] = (now_us() - before) * 1e3 / BATCH;
    }
    return quantile(batch_ns, batches, 0.1);
}

static void measure_size(const char *name, size_t bytes)
{
    gpu_ptr blocks[WARM_BLOCKS];
    char key[64];
    snprintf(key, sizeof(key), "single_%s_ns", name);
    put(key, pair_ns(bytes));
    for (int i = 0; i < WARM_BLOCKS; i++) {
        blocks[i] = gpu_alloc(bytes);
    }
    for (int i = 0; i < WARM_BLOCKS; i++) {
        gpu_free(blocks[i]);
    }
    gpu_sync();
    snprintf(key, sizeof(key), "warm_%s_ns", name);
    put(key, pair_ns(bytes));
}

struct worker {
    pthread_t thread;
    size_t bytes;
    double ns;
};

static atomic_int waiting;
static atomic_int go;
static atomic_int stop;

static void *work(void *argument)
{
    struct worker *worker = argument;
    long pairs = 0;
    gpu_enter_thread();
    gpu_free(gpu_alloc(worker->bytes));
    atomic_fetch_add(&waiting, 1);
    while (!atomic_load(&go)) {
    }
    double start = now_us();
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        gpu_free(gpu_alloc(worker->bytes));
        pairs++;
    }
    worker->ns = (now_us() - start) * 1e3 / (double)pairs;
    return NULL;
}

static double threads_ns(int count, int own_sizes)
{
    struct worker workers[THREADS_MAX];
    double ns[THREADS_MAX];
    atomic_store(&waiting, 0);
    atomic_store(&go, 0);
    atomic_store(&stop, 0);
    for (int i = 0; i < count; i++) {
        workers[i].bytes = KIB(4) * (size_t)(own_sizes ? i + 1 : 1);
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            exit(2);
        }
    }
    while (atomic_load(&waiting) < count) {
    }
    atomic_store(&go, 1);
    double start = now_us();
    while (now_us() - start < THREAD_TIME_US) {
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        ns[i] = workers[i].ns;
    }
    return median(ns, (size_t)count);
}

int main(int argc, char **argv)
{
    gpu_start();
    if (argc > 1 && argv[1][0] == 't') {
        for (int count = 1; count <= THREADS_MAX; count *= 2) {
            char key[64];
            snprintf(key, sizeof(key), "same_%d_ns", count);
            put(key, threads_ns(count, 0));
            snprintf(key, sizeof(key), "own_%d_ns", count);
            put(key, threads_ns(count, 1));
        }
        return 0;
    }
    measure_size("512B", 512);
    measure_size("64KiB", KIB(64));
    measure_size("512KiB", KIB(512));
    measure_size("1MiB", MIB(1));
    measure_size("16MiB", MIB(16));
    return 0;
}
