/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: what is said when an allocation fails. Each case runs in a process of its own, with a
 * small device and its own environment; natively nothing is said. A program that looks for the
 * limit by trying sees one explanation, and as many calls of the driver as natively.
 */
#include "tools.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES    2000
#define LIMIT_MS 20000
enum { SEGMENTS = 10, PARTS = 5, TEXT = 16384 };

static char *self;
static char file[] = "/tmp/victim-oom-XXXXXX.json";

static void hold(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc(&ptr, bytes));
}

static void fail(size_t bytes)
{
    CUdeviceptr ptr = 5;
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&ptr, bytes));
    CHECK(ptr == 5);
}

static void run_first(void)
{
    fail(512 * MIB);
}

static void run_too_large(void)
{
    hold(MIB);
    fail(512 * MIB);
}

static void run_shortage(void)
{
    for (int i = 0; i < 4; i++) {
        hold(40 * MIB);
    }
    fail(128 * MIB);
}

static void run_neighbours(void)
{
    hold(60 * MIB);
    fail(120 * MIB);
}

/* Natively the free waits for the gate. */
static void run_pending(void)
{
    CUdeviceptr ptr;
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc(&ptr, 160 * MIB));
    struct gate gate = gate_close(stream, pooled() ? LIMIT_MS : 50);
    OK(cuMemFree(ptr));
    if (pooled()) {
        fail(200 * MIB);
    }
    gate_open(gate);
    OK(cuStreamSynchronize(stream));
}

/* One block in five is kept, and those before it in `exported` places were given to others. */
static void splinter(int exported)
{
    CUdeviceptr ptr[SEGMENTS * PARTS];
    for (int i = 0; i < SEGMENTS * PARTS; i++) {
        CUipcMemHandle handle;
        OK(cuMemAlloc(&ptr[i], 4 * MIB));
        if (i % PARTS < exported) {
            OK(cuIpcGetMemHandle(&handle, ptr[i]));
        }
    }
    for (int i = 0; i < SEGMENTS * PARTS; i++) {
        if (i % PARTS != PARTS - 1) {
            OK(cuMemFree(ptr[i]));
        }
    }
    OK(cuCtxSynchronize());
    if (pooled()) {
        fail(140 * MIB);
    }
}

static void run_fragmentation(void)
{
    splinter(0);
}

static void run_shared(void)
{
    splinter(2);
}

static unsigned nvml(const char *name)
{
    unsigned (*ask)(void);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(&ask, &found, sizeof ask);
    return ask ? ask() : 0;
}

static void run_tries(void)
{
    hold(100 * MIB);
    uint64_t asked = driver_calls("cuMemAlloc_v2");
    for (unsigned i = 0; i < TRIES; i++) {
        fail(200 * MIB);
    }
    CHECK(driver_calls("cuMemAlloc_v2") == asked + TRIES);
    CHECK(driver_calls("cuMemFree_v2") == 0);
    unsigned looks = nvml("zsim_nvml_looks");
    CHECK(looks <= 4 && (looks > 0) == (pooled() && !getenv("ZONE_REPORT")), "%u", looks);
    CHECK(nvml("zsim_nvml_users") == 0);
}

static void run_closed(void)
{
    hold(100 * MIB);
    close(STDERR_FILENO);
    fail(200 * MIB);
}

/* A child of a process in which libzone served says nothing. */
static void run_fork(void)
{
    int status = -1;
    run_too_large();
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr ptr;
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&ptr, 512 * MIB));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static const char *const nvml_path = "libnvidia-ml";

static const struct row {
    const char *name;
    void (*run)(void);
    const char *env[3];    /* NAME=VALUE; nvml_path: NVML is there */
    const char *expect[4]; /* on standard error */
    int explanations;
} rows[] = {
    {"first",
     run_first,
     {""},
     {"tried to allocate 512 MiB on device 0. Of 256 MiB: free ",
      "rest 2.00 MiB (other processes: unknown)\n",
      "out of memory: too large: ", "1 allocation failed"},
     1},
    {"too_large",
     run_too_large,
     {""},
     {"allocated 1.00 MiB, ", "out of memory: too large: ", "; try a smaller problem",
      "try: a smaller problem, or a GPU with more memory: the device is smaller"},
     1},
    {"off",
     run_too_large,
     {"ZONE_ALLOC_CONF=backend:off"},
     {"allocated 1.00 MiB, ", "out of memory: too large: ", "1 allocation failed", ""},
     1},
    {"shortage",
     run_shortage,
     {nvml_path},
     {"tried to allocate 128 MiB on device 0. Of 256 MiB: free ",
      "allocated 160 MiB, pending 0 B, cached 0 B, 0 other processes 0 B, rest 2.00 MiB\n",
      "out of memory: shortage: the program holds", ""},
     1},
    {"neighbours",
     run_neighbours,
     {nvml_path, "ZSIM_NEIGHBOURS=77:64,78:32"},
     {"free 98.0 MiB, allocated 60.0 MiB, ", ", 2 other processes 96.0 MiB, rest 2.00 MiB\n",
      "out of memory: neighbours: ", "try: a GPU of its own"},
     1},
    {"no_nvml",
     run_neighbours,
     {"ZSIM_NEIGHBOURS=77:64,78:32"},
     {"rest 98.0 MiB (other processes: unknown)\n", "out of memory: elsewhere: ", "nvidia-smi", ""},
     1},
    {"nvml_fails",
     run_neighbours,
     {nvml_path, "ZSIM_NEIGHBOURS=77:64,78:32", "ZSIM_NVML=9"},
     {"rest 98.0 MiB (other processes: unknown)\n", "out of memory: elsewhere: ", "", ""},
     1},
    {"foreign",
     run_neighbours,
     {nvml_path, "ZSIM_NEIGHBOURS=77:64,78:32", "ZSIM_NVML_FOREIGN=1"},
     {"rest 98.0 MiB (other processes: unknown)\n", "out of memory: elsewhere: ", "", ""},
     1},
    {"unnumbered",
     run_neighbours,
     {nvml_path, "ZSIM_NEIGHBOURS=77:64,78:32,79:"},
     {"rest 98.0 MiB (other processes: unknown)\n", "out of memory: elsewhere: ", "", ""},
     1},
    {"pending",
     run_pending,
     {"ZONE_ALLOC_CONF=oom_wait_ms:50,max_pending_mb:1000"},
     {"allocated 0 B, pending 160 MiB, cached 0 B (largest piece 160 MiB)",
      "out of memory: pending: ", "a larger oom_wait_ms", ""},
     1},
    {"fragmentation",
     run_fragmentation,
     {"ZONE_ALLOC_CONF=large_segment_size_mb:20,oom_wait_ms:50"},
     {"allocated 40.0 MiB, pending 0 B, cached 160 MiB (largest piece 12.0 MiB)",
      "out of memory: fragmentation: ", "max_split_size_mb", ""},
     1},
    {"shared",
     run_shared,
     {"ZONE_ALLOC_CONF=large_segment_size_mb:20,oom_wait_ms:50"},
     {"cached 160 MiB (largest piece 8.00 MiB)", "out of memory: shared: ", "max_cached_mb:0", ""},
     1},
    {"tries", run_tries, {nvml_path}, {"2000 allocations failed", "", "", ""}, 1},
    {"none", run_tries, {nvml_path, "ZONE_REPORT=none"}, {"", "", "", ""}, 0},
    {"closed", run_closed, {""}, {"tried to allocate 200 MiB", "", "", ""}, 1},
    {"fork", run_fork, {""}, {"", "", "", ""}, 1},
};

static void child_environment(const struct row *row)
{
    for (size_t i = 0; i < 3 && row->env[i]; i++) {
        const char *value = strchr(row->env[i], '=');
        char text[4096];
        if (row->env[i] == nvml_path) {
            snprintf(text, sizeof text, "%s:%s", getenv("LD_LIBRARY_PATH"), getenv("VICTIM_NVML"));
            setenv("LD_LIBRARY_PATH", text, 1);
        } else if (value) {
            snprintf(text, sizeof text, "%.*s", (int)(value - row->env[i]), row->env[i]);
            setenv(text, value + 1, 1);
        }
    }
}

/* Runs the case with this end of a pipe, or -1 for none, as standard error. */
static pid_t start(const struct row *row, const char *report, int end)
{
    pid_t child = fork();
    if (child == 0) {
        child_environment(row);
        if (report) {
            setenv("ZONE_REPORT", report, 1);
        }
        if (end >= 0) {
            dup2(end, STDERR_FILENO);
        } else {
            close(STDERR_FILENO);
        }
        alarm(LIMIT_MS / 1000);
        execl(self, self, row->name, (char *)NULL);
        _exit(99);
    }
    return child;
}

static void finish(const struct row *row, pid_t child, const char *text)
{
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: status %x: %s", row->name,
          (unsigned)status, text);
}

static void read_all(int end, char *ret_text)
{
    ssize_t bytes;
    size_t used = 0;
    while ((bytes = read(end, ret_text + used, TEXT - 1 - used)) > 0) {
        used += (size_t)bytes;
    }
    ret_text[used] = '\0';
    close(end);
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (; (text = strstr(text, word)) != NULL; text++) {
        found++;
    }
    return found;
}

static void check_case(const struct row *row)
{
    char text[TEXT];
    char prefix[32];
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = start(row, NULL, ends[1]);
    close(ends[1]);
    read_all(ends[0], text);
    finish(row, child, text);
    if (!pooled()) {
        CHECK(!text[0], "%s: %s", row->name, text);
        return;
    }
    snprintf(prefix, sizeof prefix, "zone[%d] ", (int)child);
    int lines = count(text, "\n");
    CHECK(count(text, prefix) == lines, "%s: %s", row->name, text);
    int said = count(text, "out of memory: tried");
    /* One more after each pause. */
    CHECK(said >= row->explanations && said <= 3 * row->explanations, "%s: %s", row->name, text);
    CHECK(count(text, "out of memory:") == 2 * said, "%s: %s", row->name, text);
    for (size_t i = 0; i < 4; i++) {
        CHECK(strstr(text, row->expect[i]), "%s: no \"%s\" in: %s", row->name, row->expect[i],
              text);
    }
}

static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    victim_fail(__FILE__, __LINE__, name, "no such case");
}

/* Said at once on standard error, and all of it in the file. */
static void check_json(void)
{
    const struct row *row = row_of("neighbours");
    char text[TEXT];
    int ends[2];
    int made = mkstemps(file, 5);
    CHECK(made >= 0 && pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = start(row, file, ends[1]);
    close(ends[1]);
    read_all(ends[0], text);
    finish(row, child, text);
    CHECK(count(text, "zone[") == (pooled() ? 2 : 0), "%s", text);
    read_all(made, text);
    unlink(file);
    static const char *const expect[] = {
        "\"out_of_memory\":{\"explained\":1,\"device\":0,\"requested_bytes\":125829120,",
        "\"other_processes\":2,\"other_bytes\":100663296,\"rest_bytes\":2097152,",
        "\"verdict\":\"neighbours\",\"why\":\"",
        "\"try\":\"a GPU of its own",
    };
    for (size_t i = 0; pooled() && i < sizeof expect / sizeof expect[0]; i++) {
        CHECK(strstr(text, expect[i]), "no %s in %s", expect[i], text);
    }
}

/* Nobody reads what the program says: the allocation must not wait for that. */
static void check_full_pipe(void)
{
    const struct row *row = row_of("too_large");
    char text[TEXT];
    char byte = 0;
    int said[2];
    int done[2];
    CHECK(pipe(said) == 0 && pipe(done) == 0);
    fcntl(said[1], F_SETFL, O_NONBLOCK);
    memset(text, 'x', sizeof text);
    while (write(said[1], text, sizeof text) > 0 || write(said[1], text, 1) > 0) {
    }
    fcntl(said[1], F_SETFL, 0);
    char number[16];
    snprintf(number, sizeof number, "%d", done[1]);
    setenv("VICTIM_DONE", number, 1);
    pid_t child = start(row, NULL, said[1]);
    unsetenv("VICTIM_DONE");
    close(said[1]);
    close(done[1]);
    struct pollfd wait = {.fd = done[0], .events = POLLIN};
    CHECK(poll(&wait, 1, LIMIT_MS) == 1 && read(done[0], &byte, 1) == 1 && byte == 'd',
          "the allocation waits for who reads its explanation");
    while (read(said[0], text, sizeof text) > 0) {
    }
    finish(row, child, "");
}

static void check_closed_from_the_start(void)
{
    const struct row *row = row_of("too_large");
    finish(row, start(row, NULL, -1), "");
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        const char *done = getenv("VICTIM_DONE");
        victim_start();
        row_of(argv[1])->run();
        CHECK(!done || write(atoi(done), "d", 1) == 1);
        return 0;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_case(&rows[i]);
    }
    check_json();
    check_full_pipe();
    check_closed_from_the_start();
    return 0;
}
