/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: one call of the driver fails, whichever of those that a pool makes and whatever it says.
 * The program sees that code at most once and no other; then everything works as before and no
 * memory is lost. Usage: fail_calls [NAME CODE], without arguments all, each in a process of its
 * own; CODE 0 stands for those after which a context lives on.
 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20, WORDS = 1024 };

static const char *const names[] = {
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuCtxRecordEvent",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemGetAddressRange_v2",
    "cuPointerGetAttribute",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceGetName",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
};

static int injected;
static unsigned injections, seen;

/* True if the call went well. */
static bool fine(int code)
{
    /* A call that was told to fail may come only in a later round. */
    bool mine = code == injected || (code <= 2 && injected <= 2);
    CHECK(code == 0 || mine, "the program got %d, the driver said %d", code, injected);
    seen += code != 0;
    CHECK(seen <= injections, "%d came more often than the driver said it", injected);
    return code == 0;
}

static void use(CUstream stream, size_t bytes, uint32_t value, CUdeviceptr bad)
{
    CUdeviceptr ptr = 0;
    while (!fine(cuMemAlloc(&ptr, bytes))) {
    }
    launch_fill(stream, ptr, WORDS, value);
    launch_check(stream, ptr, WORDS, value, bad);
    CUdeviceptr base = 0;
    if (fine(cuMemGetAddressRange(&base, NULL, ptr))) {
        CHECK(base == ptr);
    }
    if (!fine(cuMemFree(ptr))) {
        /* Either it is still the program's, or it is not, or the context counts as lost. */
        int again = cuMemFree(ptr);
        CHECK(again == 0 || again == CUDA_ERROR_INVALID_VALUE || again == injected, "%d", again);
    }
}

static size_t free_now(void)
{
    size_t left = 0;
    while (!fine(cuMemGetInfo(&left, NULL))) {
    }
    return left;
}

/* One failure, work with it and after it. */
static void fail_once(const char *name, unsigned nth, CUstream stream, uint32_t *bad)
{
    CUdeviceptr on_device = (CUdeviceptr)(uintptr_t)bad;
    injections++;
    driver_fail(name, nth, injected);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        use(stream, i % 2 ? 2 * MIB : 4 * KIB, i, on_device);
    }
    fine(cuMemFree(0));
    while (!fine(cuCtxSynchronize())) {
    }
    use(stream, 2 * MIB, 7, on_device);
    OK(cuStreamSynchronize(stream));
    CHECK(read_word(bad) == 0, "%u words", read_word(bad));
}

static int run(const char *name, int code)
{
    victim_start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    uint32_t *bad = host_words(1);
    CUdeviceptr on_device = (CUdeviceptr)(uintptr_t)bad;
    launch_check(stream, on_device, 1, 0, on_device);
    OK(cuCtxSynchronize());
    size_t before = free_now();
    injected = code;
    if (code > 0) {
        fail_once(name, 1, stream, bad);
        return 0; /* the context counts as lost: what becomes of its memory does not matter */
    }
    for (unsigned nth = 1; nth <= 3; nth++) {
        injected = CUDA_ERROR_INVALID_VALUE;
        fail_once(name, nth, stream, bad);
        injected = CUDA_ERROR_OUT_OF_MEMORY;
        fail_once(name, nth, stream, bad);
    }
    size_t after = free_now();
    CHECK(after + 2 * MIB >= before, "%zu bytes free, then %zu", before, after);
    return 0;
}

static int failed(const char *self, const char *name, int code)
{
    char text[16];
    int status = 0;
    snprintf(text, sizeof text, "%d", code);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, name, text, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child);
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!well) {
        fprintf(stderr, "%s = %d: status %x\n", name, code, (unsigned)status);
    }
    return !well;
}

int main(int argc, char **argv)
{
    int failures = 0;
    if (argc == 3) {
        return run(argv[1], atoi(argv[2]));
    }
    setenv("ZONE_REPORT", "none", 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        failures += failed(argv[0], names[i], 0);
        failures += failed(argv[0], names[i], 999);
    }
    CHECK(failures == 0, "%d cases", failures);
    return 0;
}
