/* SPDX-License-Identifier: Apache-2.0
 *
 * What one thread's kernel launches cost while another thread of the same process loops cudaMalloc
 * of 8 MiB, a 1 ms kernel, cudaFree on its own stream. A native cudaFree waits for the kernel and
 * blocks everybody's launches meanwhile. Usage: launch_latency [launches].
 * Prints alone_ and busy_ p50_us, p99_us, p999_us, and the other thread's steps a second.
 */
#include <pthread.h>
#include "spin.cuh"

static const double LIMIT_US = 4e6;
static volatile int stop;
static volatile long steps;
static long long kernel_cycles;

static __global__ void nothing(void)
{
}

static __global__ void spin(long long cycles)
{
    spin_until(clock64(), cycles);
}

static void *allocate_in_a_loop(void *unused)
{
    (void)unused;
    cudaStream_t stream;
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    while (!stop) {
        void *block = NULL;
        RT(cudaMalloc(&block, MIB(8)));
        spin<<<1, 1, 0, stream>>>(kernel_cycles);
        RT(cudaFree(block));
        steps = steps + 1;
    }
    return NULL;
}

/* The stream is drained every 64 launches: a full queue would measure the GPU, not the launch. */
static void measure(const char *name, cudaStream_t stream, double *values, int launches)
{
    int done = 0;
    double start = now_us();
    while (done < launches && now_us() - start < LIMIT_US) {
        double before = now_us();
        nothing<<<1, 1, 0, stream>>>();
        values[done++] = now_us() - before;
        if (done % 64 == 0) {
            RT(cudaStreamSynchronize(stream));
        }
    }
    RT(cudaStreamSynchronize(stream));
    printf("%s_p50_us=%.3f\n%s_p99_us=%.3f\n", name, quantile(values, (size_t)done, 0.5), name,
           quantile(values, (size_t)done, 0.99));
    printf("%s_p999_us=%.3f\n%s_launches=%d\n", name, quantile(values, (size_t)done, 0.999), name,
           done);
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 10000;
    double *values = (double *)calloc((size_t)launches, sizeof(*values));
    if (launches < 1 || values == NULL) {
        return 2;
    }
    kernel_cycles = cycles_for_us(1e3);
    cudaStream_t stream;
    RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    spin<<<1, 1, 0, stream>>>(cycles_for_us(20e3));
    nothing<<<1, 1, 0, stream>>>();
    RT(cudaStreamSynchronize(stream));

    measure("alone", stream, values, launches);
    pthread_t thread;
    double start = now_us();
    if (pthread_create(&thread, NULL, allocate_in_a_loop, NULL) != 0) {
        return 2;
    }
    while (steps < 4) {
    }
    long before = steps;
    start = now_us();
    measure("busy", stream, values, launches);
    put("other_steps_per_s", (double)(steps - before) / (now_us() - start) * 1e6);
    stop = 1;
    pthread_join(thread, NULL);
    RT(cudaDeviceSynchronize());
    free(values);
    return 0;
}
