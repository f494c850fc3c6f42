/* SPDX-License-Identifier: Apache-2.0
 *
 * Two moments: exit_wait, among the program's exit handlers, may call the driver; exit_report, our
 * destructor, runs last and must not. Memory is never given back: the driver does that.
 */
#include "exit.h"

#include "capture.h"
#include "context.h"
#include "explain.h"
#include "glibc.h"
#include "life.h"
#include "meta.h"
#include "report.h"
#include "resolve.h"
#include "tally.h"
#include "zone_version.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long a program that leaves work running is held at exit. Natively its last free had waited.
 */
#define EXIT_WAIT_NS UINT64_C(2000000000)
/* Shorter ones are not counted as waits. */
#define EXIT_NOTICED_NS UINT64_C(20000)

static int exit_pid;
static unsigned long long objects_at_start;

/* Natively the last free waited for the kernels before it: their printf came out and their writes
 * to host memory were made. The newest event stands for that free; whatever was launched after it
 * is not waited for. */
static void exit_wait_pool(struct zone_pool *pool, void *arg)
{
    (void)arg;
    const struct zone_gpu *gpu = pool->process->gpu;
    struct zone_ticket ticket;
    if (pool->order != ZONE_FREE_ORDER_AUTO ||
        atomic_load_explicit(&pool->fault, memory_order_relaxed)) {
        return;
    }
    int fault = 0;
    bool waited = zone_pool_settle(pool);
    /* Small frees may have recorded nothing. What they would have waited for is among what runs
     * now, but so may be a kernel that never ends: for a while only. */
    if (zone_fence_close(&pool->fence, gpu, pool->ctx, 0, false, &ticket) == ZONE_GPU_OK) {
        uint64_t start = gpu->now_ns();
        bool open = atomic_load_explicit(&pool->open_frees, memory_order_relaxed);
        uint64_t deadline = open ? start + EXIT_WAIT_NS : start;
        bool rest = zone_fence_poll(&pool->fence, gpu, ticket.epoch, deadline, &fault);
        waited = waited || gpu->now_ns() - start > EXIT_NOTICED_NS;
        if (rest && gpu->record) {
            gpu->synchronize(pool->ctx); /* at rest: returns at once, and flushes printf */
        }
    }
    if (waited) {
        ZONE_TALLY(exit_waits);
    }
}

static void exit_wait(void)
{
    if (zone_life_is_on() && !zone_life_inside && !zone_capture_is_active()) {
        zone_registry_each(exit_wait_pool, NULL);
    }
}

void zone_exit_register(void)
{
    exit_pid = (int)getpid();
    atexit(exit_wait);
}

static const char *exit_environment(void *arg, const char *variable)
{
    (void)arg;
    return secure_getenv(variable);
}

static void exit_say(void *arg, const char *line)
{
    (void)arg;
    zone_life_say(line);
}

static int exit_write(void *arg, const char *text, size_t bytes)
{
    return zone_life_write(*(const int *)arg, text, bytes);
}

/* A report and the texts in it. */
struct exit_page {
    struct zone_report report;
    struct zone_oom oom;
    char program[256];
    char options[ZONE_OPTIONS_LINE];
    void (*count)(int device, struct zone_counters *ret);
};

static void exit_add_device(int device, void *arg)
{
    struct exit_page *page = arg;
    struct zone_report *report = &page->report;
    if (report->device_count < ZONE_REPORT_DEVICES) {
        struct zone_report_device *entry = &report->devices[report->device_count++];
        entry->ordinal = device;
        entry->name = zone_context_device_name(device);
        entry->backing = zone_life_process()->options->backend == ZONE_BACKEND_CUDA_MALLOC_ASYNC
                             ? "cuMemAllocAsync"
                             : "cuMemAlloc segments";
        page->count(device, &entry->counters);
    }
}

static void exit_fill(struct exit_page *page)
{
    struct zone_report *report = &page->report;
    zone_report_init(report);
    ssize_t length = readlink("/proc/self/exe", page->program, sizeof(page->program) - 1);
    page->program[length > 0 ? length : 0] = '\0';
    zone_options_summary(zone_life_process()->options, page->options, sizeof(page->options));
    report->pid = exit_pid;
    report->program = page->program;
    report->version = ZONE_VERSION;
    report->options = page->options;
    const struct zone_oom *oom = zone_explain_last();
    if (oom) {
        page->oom = *oom; /* later failures write there */
        report->oom = &page->oom;
    }
    zone_context_devices(exit_add_device, page);
    report->process.bookkeeping_bytes.current = zone_meta_bytes();
#define X(name) report->process.name = atomic_load(&zone_tally.name);
    ZONE_TALLIES(X)
#undef X
    if (zone_capture_is_unknown()) {
        report->notes[report->note_count++] =
            "this driver begins captures in a way unknown to libzone: nothing was pooled";
    }
}

static void exit_complain(const char *path)
{
    char line[ZONE_OPTIONS_LINE];
    snprintf(line, sizeof(line), "ZONE_REPORT: cannot write %.300s: %s", path, strerror(errno));
    zone_life_say(line);
}

/* The file that ZONE_REPORT names, or -1 after a line that says why there is none. */
static int exit_open(const char *pattern)
{
    char path[1024];
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    const struct zone_report_names names = {.pid = exit_pid, .host = host, .get = exit_environment};
    if (zone_report_path(pattern, &names, exit_say, NULL, path, sizeof(path)) != 0) {
        return -1;
    }
    int fd = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd < 0) {
        exit_complain(path);
    }
    return fd;
}

static int exit_report(struct exit_page *page)
{
    const char *setting = secure_getenv("ZONE_REPORT");
    enum zone_report_kind kind = zone_report_kind(setting);
    if (kind == ZONE_REPORT_NONE) {
        return -1;
    }
    int fd = kind == ZONE_REPORT_STDERR ? zone_life_stderr() : exit_open(setting);
    if (fd < 0) {
        return -1;
    }
    exit_fill(page);
    int rc = kind == ZONE_REPORT_JSON ? zone_report_json(&page->report, exit_write, &fd)
                                      : zone_report_text(&page->report, exit_write, &fd);
    if (kind != ZONE_REPORT_STDERR) {
        if (rc != 0) {
            exit_complain(setting);
        }
        close(fd);
    }
    return rc == 0 ? 0 : -1;
}

int zone_exit_report_now(void)
{
    static struct exit_page page = {.count = zone_registry_look};
    return exit_report(&page);
}

static int count_objects(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds;
    return 1;
}

struct search {
    unsigned long long index;
    unsigned long long libcuda_index; /* 0: not loaded */
};

static int search_libcuda(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    search->index++;
    if (slash && strncmp(slash, "/libcuda.so", 11) == 0) {
        search->libcuda_index = search->index;
    }
    return 0;
}

/* The program loaded libcuda itself and never looked a function up through us: it was bound past
 * us, by RTLD_DEEPBIND for one. */
static bool exit_was_bypassed(void)
{
    struct search search = {0};
    dl_iterate_phdr(search_libcuda, &search);
    return search.libcuda_index > objects_at_start && !zone_resolve_was_asked();
}

__attribute__((constructor)) static void exit_begin(void)
{
    /* This look around is all that happens in a process that never touches CUDA. */
    zone_life_look();
    dl_iterate_phdr(count_objects, &objects_at_start);
}

__attribute__((destructor)) static void exit_end(void)
{
    if (zone_life_is_on() && exit_pid == (int)getpid()) {
        /* Waits for no lock: a thread that exit has stopped may hold it. */
        static struct exit_page page = {.count = zone_registry_count};
        exit_report(&page);
    } else if (!zone_life_is_child() && !zone_life_is_disabled() && zone_life_has_stderr() &&
               exit_was_bypassed()) {
        static const char format[] =
            "zone[%d] libcuda was loaded past libzone (RTLD_DEEPBIND?): nothing was pooled\n";
        char line[sizeof(format) + 16];
        int length = snprintf(line, sizeof(line), format, (int)getpid());
        zone_life_write(STDERR_FILENO, line, (size_t)length);
    }
}
