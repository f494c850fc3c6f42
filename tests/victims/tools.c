/* SPDX-License-Identifier: Apache-2.0
 *
 * See tools.h.
 */
#include "tools.h"

#include "../sim/zsim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GATES = 4096, CHILD_LIMIT_S = 20 };

static uint32_t *words;
static size_t words_used;
static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;

struct gate gate_new(void)
{
    struct gate gate;
    pthread_mutex_lock(&words_lock);
    if (!words) {
        void *memory;
        OK(cuMemHostAlloc(&memory, GATES * 2 * sizeof *words,
                          CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        memset(memory, 0, GATES * 2 * sizeof *words);
        words = memory;
    }
    CHECK(words_used < GATES, "too many gates");
    gate.flag = words + 2 * words_used;
    gate.how = gate.flag + 1;
    words_used++;
    pthread_mutex_unlock(&words_lock);
    return gate;
}

void gates_forget(void)
{
    pthread_mutex_lock(&words_lock);
    words = NULL;
    words_used = 0;
    pthread_mutex_unlock(&words_lock);
}

static CUdeviceptr on_device(const uint32_t *word)
{
    return (CUdeviceptr)(uintptr_t)word;
}

struct gate gate_close(CUstream stream, double limit_ms)
{
    struct gate gate = gate_new();
    launch_waitflag(stream, on_device(gate.flag), on_device(gate.how), limit_ms);
    return gate;
}

struct held_host {
    struct gate gate;
    double limit_ms;
};

static void CUDA_CB hold_on_host(void *data)
{
    struct held_host *held = data;
    double end = now_us() + held->limit_ms * 1e3;
    bool seen = false;
    while (!seen && now_us() < end) {
        seen = read_word(held->gate.flag) != 0;
        sleep_ms(0.05);
    }
    __atomic_store_n(held->gate.how, seen ? GATE_OPENED : GATE_GAVE_UP, __ATOMIC_SEQ_CST);
    free(held);
}

struct gate gate_close_on_host(CUstream stream, double limit_ms)
{
    struct held_host *held = malloc(sizeof *held);
    CHECK(held);
    held->gate = gate_new();
    held->limit_ms = limit_ms;
    struct gate gate = held->gate;
    OK(cuLaunchHostFunc(stream, hold_on_host, held));
    return gate;
}

void gate_open(struct gate gate)
{
    __atomic_store_n(gate.flag, 1, __ATOMIC_SEQ_CST);
}

void gate_open_on(CUstream stream, struct gate gate)
{
    launch_signal(stream, on_device(gate.flag));
}

enum gate_outcome gate_outcome(struct gate gate)
{
    return (enum gate_outcome)read_word(gate.how);
}

static void *worker_thread(void *data)
{
    struct worker *worker = data;
    OK(cuCtxSetCurrent(worker->context));
    worker->run(worker->arg);
    __atomic_store_n(&worker->done, true, __ATOMIC_SEQ_CST);
    return NULL;
}

void worker_start(struct worker *worker, void (*run)(void *arg), void *arg)
{
    *worker = (struct worker){.run = run, .arg = arg};
    OK(cuCtxGetCurrent(&worker->context));
    CHECK(pthread_create(&worker->thread, NULL, worker_thread, worker) == 0);
}

bool worker_done(struct worker *worker)
{
    return __atomic_load_n(&worker->done, __ATOMIC_SEQ_CST);
}

void worker_join(struct worker *worker)
{
    pthread_join(worker->thread, NULL);
}

void in_thread(void (*run)(void *arg), void *arg)
{
    struct worker worker;
    worker_start(&worker, run, arg);
    worker_join(&worker);
}

bool configured(const char *text)
{
    const char *conf = getenv("ZONE_ALLOC_CONF");
    return conf && strstr(conf, text);
}

bool pooled(void)
{
    const char *disabled = getenv("ZONE_DISABLE");
    bool off = disabled && *disabled && strcmp(disabled, "0") != 0;
    return under_zone() && !off && !configured("backend:off");
}

bool frees_run_ahead(void)
{
    int version = 0;
    OK(cuDriverGetVersion(&version));
    return pooled() && version >= 12050 && !configured("free_order:sync") &&
           !configured("max_pending_mb");
}

uint64_t driver_calls(const char *name)
{
    uint64_t (*calls)(const char *);
    void *found = zsim("zsim_calls");
    memcpy(&calls, &found, sizeof calls);
    return found ? calls(name) : 0;
}

uint64_t driver_allocs(void)
{
    return driver_calls("cuMemAlloc_v2") + driver_calls("cuMemCreate");
}

uint64_t driver_frees(void)
{
    return driver_calls("cuMemFree_v2") + driver_calls("cuMemRelease");
}

size_t driver_bytes(void)
{
    return driver_bytes_of(0);
}

size_t driver_bytes_of(int device)
{
    uint64_t (*chunks)(int);
    void *found = zsim("zsim_chunks");
    memcpy(&chunks, &found, sizeof chunks);
    return found ? (size_t)chunks(device) * 2 * MIB : 0;
}

void leave_free(size_t bytes)
{
    enum { STEPS = 8 };
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    OK(cuCtxGetDevice(&prop.location.id));
    for (int i = 0; i < STEPS; i++) {
        size_t now;
        size_t total;
        OK(cuMemGetInfo(&now, &total));
        if (now <= bytes) {
            return;
        }
        CUmemGenericAllocationHandle handle;
        size_t more = (now - bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
        OK(cuMemCreate(&handle, more, &prop, 0));
    }
}

void driver_fail(const char *name, unsigned in_calls, int code)
{
    int (*fail)(const char *, uint64_t, int);
    void *found = zsim("zsim_fail");
    CHECK(found, "failures are scripted on the simulated GPU only");
    memcpy(&fail, &found, sizeof fail);
    CHECK(fail(name, in_calls, code) == 0, "%s", name);
}

void driver_fail_none(void)
{
    void (*none)(void);
    void *found = zsim("zsim_fail_none");
    CHECK(found);
    memcpy(&none, &found, sizeof none);
    none();
}

/* The end of a pipe to the standard error of this program with that argument. */
static FILE *child_start(char *self, const char *argument, pid_t *ret_child)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    *ret_child = fork();
    if (*ret_child == 0) {
        dup2(ends[1], STDERR_FILENO);
        alarm(CHILD_LIMIT_S * slowness());
        execl(self, self, argument, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    CHECK(output);
    return output;
}

int lines_of_child(char *self, const char *argument, const char *text, int *ret_status)
{
    pid_t child;
    int count = 0;
    char line[1024];
    FILE *output = child_start(self, argument, &child);
    while (fgets(line, sizeof line, output)) {
        count += strstr(line, text) != NULL;
    }
    fclose(output);
    CHECK(waitpid(child, ret_status, 0) == child);
    return count;
}

int reports_of_child(char *self, const char *argument, int *ret_status)
{
    pid_t child;
    int count = 0;
    char line[1024];
    FILE *output = child_start(self, argument, &child);
    while (fgets(line, sizeof line, output)) {
        CHECK(strncmp(line, "zone[", 5) == 0, "%s: %s", argument, line);
        count += strstr(line, "] libzone ") != NULL;
    }
    fclose(output);
    CHECK(waitpid(child, ret_status, 0) == child);
    return count;
}

void *driver_function(const char *name)
{
    struct link_map *map = dlopen("libcuda.so.1", RTLD_LAZY);
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    CHECK(map);
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)(uintptr_t)entry->d_un.d_ptr;
        symbols = entry->d_tag == DT_SYMTAB ? at : symbols;
        names = entry->d_tag == DT_STRTAB ? at : names;
    }
    /* The names follow the symbols. */
    for (const ElfW(Sym) *symbol = symbols; symbols && (const char *)symbol < names; symbol++) {
        if (symbol->st_value != 0 && strcmp(names + symbol->st_name, name) == 0) {
            return (void *)(map->l_addr + symbol->st_value);
        }
    }
    return NULL;
}
