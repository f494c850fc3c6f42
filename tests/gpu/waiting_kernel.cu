/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel on stream A waits for a flag that a later kernel on stream B (its feeder) sets: free
 * before A, malloc between, feeder after. Natively nothing ties B to A. An allocator whose malloc
 * waits for, or orders B behind, work submitted after the free does, and a correct program hangs;
 * here the waiter gives up after about 0.75 s and the round counts as tied. The freed block is kept
 * busy by a 2 ms kernel, so that it is pending for certain when the malloc comes.
 * Usage: waiting_kernel VARIANT (the table below). Prints rounds, tied, refused (failed mallocs).
 */
#include <pthread.h>
#include <string.h>
#include "spin.cuh"

enum { REPEATS = 3, HOST_LIMIT_S = 1 };

/* What a variant does otherwise than `plain`. */
struct variant {
    const char *name;
    bool other_thread;  /* malloc and feeder in another thread */
    bool host_function; /* in place of the waiter a host function that needs a lock, which is held
                         * around the malloc */
    size_t leave;       /* not 0: the card is filled, and so much is free beside the freed block */
    size_t other_size;  /* the malloc asks for so much less than was freed */
};

/* In the last three only the freed block can serve the malloc. An allocator that keeps whole blocks
 * must give it back for another size, which no driver call does beside a running kernel: `other`
 * shows that, `tight` that it does not happen once little memory is left. */
static const struct variant variants[] = {
    {"plain", false, false, 0, 0},
    {"thread", true, false, 0, 0},
    {"hostfunc", false, true, 0, 0},
    {"full", false, false, GIB(1), 0},
    {"tight", false, false, MIB(128), MIB(1)},
    {"other", false, false, GIB(1), MIB(1)},
};

enum outcome { OUTCOME_NONE, OUTCOME_FED, OUTCOME_GAVE_UP };

/* Host memory that kernels see: `fed` is the flag, `outcome` what the waiter saw. */
struct shared {
    volatile int fed;
    volatile int outcome;
};

static struct shared *shared_host;
static struct shared *shared_device;
static cudaStream_t stream_a, stream_b, stream_c;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static long long waiter_cycles, busy_cycles;
static int refused;

static __global__ void waiter(struct shared *state, long long limit)
{
    long long start = clock64();
    while (!state->fed) {
        if (clock64() - start > limit) {
            state->outcome = OUTCOME_GAVE_UP;
            return;
        }
    }
    state->outcome = OUTCOME_FED;
}

static __global__ void feeder(struct shared *state)
{
    state->fed = 1;
}

static __global__ void busy(char *block, size_t bytes, long long cycles)
{
    block[0] = 1;
    block[bytes - 1] = 1;
    spin_until(clock64(), cycles);
}

static void CUDART_CB take_gate(void *unused)
{
    (void)unused;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HOST_LIMIT_S;
    if (pthread_mutex_timedlock(&gate, &until) == 0) {
        pthread_mutex_unlock(&gate);
        shared_host->outcome = OUTCOME_FED;
    } else {
        shared_host->outcome = OUTCOME_GAVE_UP;
    }
}

struct request {
    size_t bytes;
    void *block;
};

static void *malloc_and_feed(void *argument)
{
    struct request *request = (struct request *)argument;
    if (cudaMalloc(&request->block, request->bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        request->block = NULL;
        refused++;
    }
    feeder<<<1, 1, 0, stream_b>>>(shared_device);
    return NULL;
}

/* Returns 1 if the round was tied. */
static int run_round(const struct variant *variant, size_t bytes)
{
    shared_host->fed = 0;
    shared_host->outcome = OUTCOME_NONE;
    char *freed = NULL;
    struct request request = {bytes - variant->other_size, NULL};
    RT(cudaMalloc((void **)&freed, bytes));
    busy<<<1, 1, 0, stream_c>>>(freed, bytes, busy_cycles);
    RT(cudaFree(freed));
    if (variant->host_function) {
        pthread_mutex_lock(&gate);
        RT(cudaLaunchHostFunc(stream_a, take_gate, NULL));
        malloc_and_feed(&request);
        pthread_mutex_unlock(&gate);
    } else if (variant->other_thread) {
        waiter<<<1, 1, 0, stream_a>>>(shared_device, waiter_cycles);
        pthread_t thread;
        if (pthread_create(&thread, NULL, malloc_and_feed, &request) != 0) {
            exit(2);
        }
        pthread_join(thread, NULL);
    } else {
        waiter<<<1, 1, 0, stream_a>>>(shared_device, waiter_cycles);
        malloc_and_feed(&request);
    }
    RT(cudaDeviceSynchronize());
    RT(cudaFree(request.block));
    return shared_host->outcome != OUTCOME_FED;
}

/* Leaves room for one block of `bytes` and for `leave` bytes more. */
static void fill_card(size_t bytes, size_t leave)
{
    size_t left = 0, total = 0;
    void *filler = NULL;
    RT(cudaMemGetInfo(&left, &total));
    if (left < bytes + 2 * leave) {
        printf("only %zu bytes free at the start\n", left);
        exit(2);
    }
    RT(cudaMalloc(&filler, left - bytes - leave));
}

static const struct variant *find_variant(const char *name)
{
    for (const struct variant &each : variants) {
        if (strcmp(each.name, name) == 0) {
            return &each;
        }
    }
    printf("unknown variant %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    const struct variant *variant = find_variant(argc > 1 ? argv[1] : "plain");
    waiter_cycles = cycles_for_us(750e3);
    busy_cycles = cycles_for_us(2e3);
    RT(cudaHostAlloc((void **)&shared_host, sizeof(*shared_host), cudaHostAllocMapped));
    RT(cudaHostGetDevicePointer((void **)&shared_device, shared_host, 0));
    RT(cudaStreamCreateWithFlags(&stream_a, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&stream_b, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&stream_c, cudaStreamNonBlocking));

    /* Load every kernel before a round: a lazy load in the middle of one may wait by itself. */
    char *warm = NULL;
    RT(cudaMalloc((void **)&warm, 512));
    busy<<<1, 1, 0, stream_c>>>(warm, 512, 1);
    feeder<<<1, 1, 0, stream_b>>>(shared_device);
    RT(cudaDeviceSynchronize());
    waiter<<<1, 1, 0, stream_a>>>(shared_device, waiter_cycles);
    RT(cudaDeviceSynchronize());
    RT(cudaFree(warm));

    const size_t small_sizes[] = {KIB(4), MIB(1), MIB(32)};
    const size_t full_sizes[] = {GIB(2), GIB(2), GIB(2)};
    const size_t *sizes = variant->leave > 0 ? full_sizes : small_sizes;
    if (variant->leave > 0) {
        fill_card(sizes[0], variant->leave);
    }
    int tied = 0;
    int rounds = 0;
    for (int size = 0; size < 3; size++) {
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            tied += run_round(variant, sizes[size]);
            rounds++;
        }
    }
    put("rounds", rounds);
    put("tied", tied);
    put("refused", refused);
    return 0;
}
