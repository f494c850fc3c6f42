/* SPDX-License-Identifier: Apache-2.0
 *
 * What libzone relies on in the driver and no document says: one part a run, natively only.
 * Usage: driver_facts PART (the table at the end).
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
#include "driver_facts.cuh"

enum { BLOCKS = 512 };

/* The same for a byte of device memory that a memset writes. */
static __global__ void wait_byte(volatile unsigned char *byte, long long limit, int *ret_gave_up)
{
    long long start = clock64();
    while (*byte == 0) {
        if (clock64() - start > limit) {
            *ret_gave_up = 1;
            return;
        }
    }
}

static CUstream captured;
static CUstream beside;

/* One call in another thread while a stream captures in global mode, with the mode exchanged. */
static CUresult call_beside(int which, CUdeviceptr ptr, CUevent event)
{
    CUstream made;
    CUdeviceptr got;
    cuuint64_t some = 1 << 20;
    switch (which) {
    case 0:
        return cuMemsetD8Async(ptr, 0, 1 << 20, beside);
    case 1:
        return cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0);
    case 2:
        return cuEventRecord(event, beside);
    case 3:
        return cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    case 4:
        return cuMemAllocAsync(&got, 1 << 20, beside);
    case 5:
        return cuMemFreeAsync(ptr, beside);
    case 6:
        return cuStreamSynchronize(beside);
    case 7:
        return cuMemPoolSetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &some);
    case 8:
        return cuStreamWaitEvent(beside, event, 0);
    case 9:
        return cuStreamQuery(beside);
    case 10: {
        cuuint64_t id;
        return cuStreamGetId(beside, (unsigned long long *)&id);
    }
    default:
        return cuMemPoolTrimTo(default_pool(), 0);
    }
}

static const char *const beside_names[] = {
    "memset",      "stream_create",  "event_record", "event_create", "alloc_async", "free_async",
    "synchronize", "pool_attribute", "wait_event",   "stream_query", "stream_id",   "pool_trim",
};

struct beside_call {
    int which;
    bool exchanged;
    CUresult rc;
};

static void *call_in_thread(void *argument)
{
    struct beside_call *call = (struct beside_call *)argument;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr ptr;
    CUevent event;
    CU(cuCtxSetCurrent(context));
    CU(cuThreadExchangeStreamCaptureMode(&mode));
    CU(cuMemAllocAsync(&ptr, 1 << 20, beside));
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (!call->exchanged) {
        mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        CU(cuThreadExchangeStreamCaptureMode(&mode));
    }
    call->rc = call_beside(call->which, ptr, event);
    return NULL;
}

/* What may be called beside another thread's capture, and whether the capture survives it. */
static void capture_calls(void)
{
    captured = new_stream(0);
    beside = new_stream(0);
    for (int exchanged = 1; exchanged >= 0; exchanged--) {
        for (int which = 0; which < (int)(sizeof beside_names / sizeof *beside_names); which++) {
            struct beside_call call = {which, exchanged != 0, CUDA_SUCCESS};
            pthread_t thread;
            CUgraph graph = NULL;
            const char *how = exchanged ? "relaxed" : "global";
            CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
            if (pthread_create(&thread, NULL, call_in_thread, &call) != 0) {
                exit(2);
            }
            pthread_join(thread, NULL);
            CUresult end = cuStreamEndCapture(captured, &graph);
            printf("%s_%s_rc=%d\n%s_%s_end_rc=%d\n", how, beside_names[which], (int)call.rc, how,
                   beside_names[which], (int)end);
            fflush(stdout);
        }
    }
}

/* A memset is launched while a kernel fills the device; a kernel that fills it, too, and waits for
 * the memset is launched later. Is the memset held back until that one gives up? With what
 * priority, and if it also has to wait for an event? */
static void fill_priority(void)
{
    int least, greatest, blocks = 0, processors = 0;
    CUdeviceptr memory;
    int *gave_up;
    CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    RT(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, wait_byte, 1024, 0));
    RT(cudaHostAlloc((void **)&gave_up, sizeof(int), cudaHostAllocMapped));
    CU(cuMemAlloc(&memory, 64 << 20));
    for (int round = 0; round < 24; round++) {
        static const size_t sizes[] = {512, 64 << 10, 2 << 20, 64 << 20};
        size_t size = sizes[round % 4];
        int how = round / 4 % 3; /* the fill: highest, default, and lowest priority */
        bool waits = round >= 12;
        CUstream first = new_stream(0);
        CUstream second = new_stream(0);
        CUstream fills = new_stream(how == 0 ? greatest : how == 1 ? 0 : least);
        CUevent event;
        CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CU(cuMemsetD8(memory, 0, 64 << 20));
        *gave_up = 0;
        CU(cuCtxSynchronize());
        spin<<<blocks * processors, 1024, 0, first>>>(cycles_for_us(10e3));
        if (waits) {
            CU(cuEventRecord(event, first));
            CU(cuStreamWaitEvent(fills, event, 0));
        }
        CU(cuMemsetD8Async(memory, 1, size, fills));
        wait_byte<<<blocks * processors, 1024, 0, second>>>((unsigned char *)memory + size - 1,
                                                            cycles_for_us(200e3), gave_up);
        CU(cuCtxSynchronize());
        printf("held_back_%s%s_%zu=%d\n", waits ? "waiting_" : "",
               how == 0   ? "highest"
               : how == 1 ? "default"
                          : "lowest",
               size, *gave_up);
    }
}

/* Is memory of 2 MiB that the driver hands out zero, whatever went before? */
static void fresh_zero(void)
{
    static CUdeviceptr held[BLOCKS];
    static unsigned char seen[2 << 20];
    unsigned long long nonzero[3] = {0, 0, 0}, looked[3] = {0, 0, 0};
    static const size_t sizes[] = {2 << 20, 20 << 20, 1 << 20};
    for (int kind = 0; kind < 3; kind++) {
        unsigned seed = 1;
        int count = kind == 1 ? 64 : BLOCKS;
        memset(held, 0, sizeof held);
        for (int step = 0; step < 3000; step++) {
            seed = seed * 1103515245u + 12345u;
            CUdeviceptr *slot = &held[(seed >> 8) % (unsigned)count];
            if (*slot) {
                CU(cuMemsetD8Async(*slot, 0xA5, sizes[kind], NULL));
                CU(cuMemFree(*slot));
                *slot = 0;
                continue;
            }
            CU(cuMemAlloc(slot, sizes[kind]));
            size_t part = sizes[kind] < sizeof seen ? sizes[kind] : sizeof seen;
            size_t at = step % 2 ? sizes[kind] - part : 0;
            CU(cuMemcpyDtoH(seen, *slot + at, part));
            looked[kind]++;
            for (size_t i = 0; i < part; i += 64) {
                if (seen[i] != 0) {
                    nonzero[kind]++;
                    break;
                }
            }
        }
        for (int i = 0; i < count; i++) {
            if (held[i]) {
                CU(cuMemFree(held[i]));
            }
        }
    }
    printf("looked_2mib=%llu\nnonzero_2mib=%llu\n", looked[0], nonzero[0]);
    printf("looked_20mib=%llu\nnonzero_20mib=%llu\n", looked[1], nonzero[1]);
    printf("looked_1mib=%llu\nnonzero_1mib=%llu\n", looked[2], nonzero[2]);
}

static int threads_now(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    while (folder && readdir(folder)) {
        count++;
    }
    if (folder) {
        closedir(folder);
    }
    return count - 2;
}

/* NVML, loaded late: what it costs and whether it starts threads. */
static void nvml(void)
{
    typedef int (*call0)(void);
    typedef int (*by_index)(unsigned, void **);
    typedef int (*list)(void *, unsigned *, void *);
    int before = threads_now();
    double start = now_us();
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    printf("loaded=%d\nload_ms=%.2f\n", library != NULL, (now_us() - start) / 1e3);
    if (!library) {
        return;
    }
    start = now_us();
    printf("init_rc=%d\n", ((call0)dlsym(library, "nvmlInit_v2"))());
    printf("init_ms=%.2f\n", (now_us() - start) / 1e3);
    void *gpu = NULL;
    int rc = ((by_index)dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &gpu);
    printf("handle_rc=%d\n", rc);
    for (int version = 1; version <= 3 && rc == 0; version++) {
        char name[80];
        unsigned char records[64 * 24];
        unsigned count = 64;
        snprintf(name, sizeof name, "nvmlDeviceGetComputeRunningProcesses%s",
                 version == 1   ? ""
                 : version == 2 ? "_v2"
                                : "_v3");
        list call = (list)dlsym(library, name);
        printf("list_v%d_there=%d\n", version, call != NULL);
        if (!call) {
            continue;
        }
        memset(records, 0xEE, sizeof records);
        start = now_us();
        printf("list_v%d_rc=%d\n", version, call(gpu, &count, records));
        printf("list_v%d_us=%.0f\nlist_v%d_count=%u\n", version, now_us() - start, version, count);
        size_t written = sizeof records;
        while (written > 0 && records[written - 1] == 0xEE) {
            written--;
        }
        printf("list_v%d_bytes_written=%zu\n", version, written);
    }
    ((call0)dlsym(library, "nvmlShutdown"))();
    printf("threads_more=%d\n", threads_now() - before);
}

/* Identities of streams, and what is left in the default pool when a context goes. */
static void streams(void)
{
    unsigned long long id[4] = {0};
    CUstream one = new_stream(0);
    put_rc("legacy_id", cuStreamGetId(CU_STREAM_LEGACY, &id[0]));
    put_rc("null_id", cuStreamGetId(NULL, &id[1]));
    put_rc("per_thread_id", cuStreamGetId(CU_STREAM_PER_THREAD, &id[2]));
    CU(cuStreamGetId(one, &id[3]));
    printf("null_is_legacy=%d\nper_thread_differs=%d\n", id[0] == id[1], id[2] != id[0]);
    int same_handle = 0, same_id = 0;
    for (int i = 0; i < 100; i++) {
        unsigned long long next;
        CUstream old = one;
        CU(cuStreamDestroy(one));
        one = new_stream(0);
        CU(cuStreamGetId(one, &next));
        same_handle += one == old;
        same_id += next == id[3];
        id[3] = next;
    }
    printf("same_handle_again=%d\nsame_id_again=%d\n", same_handle, same_id);
    double start = now_us();
    for (int i = 0; i < 10000; i++) {
        CU(cuStreamGetId(one, &id[3]));
    }
    printf("stream_id_ns=%.1f\n", (now_us() - start) / 10);
    CUdeviceptr ptr;
    keep_memory();
    CU(cuMemAllocAsync(&ptr, 256 << 20, one));
    CU(cuMemFreeAsync(ptr, one));
    CU(cuCtxSynchronize());
    printf("reserved_before_reset_mib=%.1f\n", pool_mib(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    RT(cudaDeviceReset());
    RT(cudaFree(NULL));
    printf("reserved_after_reset_mib=%.1f\n", pool_mib(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    cuuint64_t threshold = 0;
    CU(cuMemPoolGetAttribute(default_pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    printf("threshold_after_reset_mib=%.1f\n", (double)threshold / 1048576.0);
}

static const struct part parts[] = {
    {"capture_calls", capture_calls},
    {"fill_priority", fill_priority},
    {"fresh_zero", fresh_zero},
    {"nvml", nvml},
    {"streams", streams},
};

int main(int argc, char **argv)
{
    return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
