/* SPDX-License-Identifier: Apache-2.0
 *
 * Start of libzone in a process, its settings, and its end in a forked child: see life.h. The lock
 * is held for the start and for changes of settings alone.
 */
#include "life.h"

#include "async_backend.h"
#include "exit.h"
#include "explain.h"
#include "glibc.h"
#include "mempool.h"
#include "registry.h"
#include "report.h"
#include "zone_gpu_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIFE_FD_MIN = 512, EXIT_BAD_CONFIGURATION = 78 };

struct zone_life_page *_Atomic zone_life_page;
_Thread_local volatile bool zone_life_inside;

static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;
static struct zone_options life_options; /* written with the lock held */
static struct zone_options life_early;   /* lock; what was set before the start */
static uint64_t life_early_keys;         /* lock; which options that are */
static struct zone_process life_process;
static bool life_no_stderr; /* closed when the library was loaded */
static int life_fd = -1;
static struct stat life_fd_is;

bool zone_life_is_disabled(void)
{
    const char *value = secure_getenv("ZONE_DISABLE");
    return value && *value && strcmp(value, "0") != 0;
}

struct zone_process *zone_life_process(void)
{
    return &life_process;
}

/* fstat has a new symbol version in glibc 2.33; the system call has the same struct. */
static int life_fstat(int fd, struct stat *ret)
{
    return (int)syscall(SYS_fstat, fd, ret);
}

/* The program may close its standard error before we report (coreutils do), or close every
 * descriptor and use the number for a file of its own. */
static void life_keep_stderr(void)
{
    if (life_no_stderr) {
        return; /* what has its number now is a file of the program or of the driver */
    }
    life_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LIFE_FD_MIN);
    if (life_fd < 0) {
        life_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    }
    if (life_fd >= 0 && life_fstat(life_fd, &life_fd_is) != 0) {
        close(life_fd);
        life_fd = -1;
    }
}

void zone_life_look(void)
{
    life_no_stderr = fcntl(STDERR_FILENO, F_GETFD) < 0;
}

bool zone_life_has_stderr(void)
{
    return !life_no_stderr;
}

int zone_life_stderr(void)
{
    struct stat now;
    bool same = life_fd >= 0 && life_fstat(life_fd, &now) == 0 && now.st_dev == life_fd_is.st_dev &&
                now.st_ino == life_fd_is.st_ino;
    return same ? life_fd : -1;
}

static int life_write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(fd, text, bytes);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return -1;
        }
        text += done;
        bytes -= (size_t)done;
    }
    return 0;
}

int zone_life_write(int fd, const char *text, size_t bytes)
{
    static const struct timespec at_once;
    static const int signals[] = {SIGPIPE, SIGXFSZ};
    sigset_t ours;
    sigset_t before;
    sigset_t pending;
    sigemptyset(&ours);
    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        sigaddset(&ours, signals[i]);
    }
    /* Of this thread alone: pthread_sigmask by its older name, which is in every C library. */
    sigprocmask(SIG_BLOCK, &ours, &before);
    sigpending(&pending);
    int rc = life_write_all(fd, text, bytes);
    int error = errno;
    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (sigismember(&pending, signals[i])) {
            sigdelset(&ours, signals[i]); /* was the program's before */
        }
    }
    while (rc != 0 && sigtimedwait(&ours, NULL, &at_once) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return rc;
}

void zone_life_say(const char *line)
{
    char text[ZONE_OPTIONS_LINE + 32];
    int length = snprintf(text, sizeof(text), "zone[%d] %s\n", (int)getpid(), line);
    int fd = zone_life_stderr();
    if (life_fd < 0 && !atomic_load(&zone_life_page) && zone_life_has_stderr()) {
        fd = STDERR_FILENO; /* nothing is kept before the start */
    }
    if (fd >= 0 && length > 0) {
        size_t bytes = (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1;
        zone_life_write(fd, text, bytes);
    }
}

static void life_say_option(void *arg, const char *line)
{
    (void)arg;
    zone_life_say(line);
}

static void life_configure(void)
{
    zone_options_init(&life_options);
    int problems = zone_options_parse(&life_options, "ZONE_ALLOC_CONF",
                                      secure_getenv("ZONE_ALLOC_CONF"), life_say_option, NULL);
    zone_options_take(&life_options, &life_early, life_early_keys);
    if (problems > 0 && life_options.abort_conf) {
        _exit(EXIT_BAD_CONFIGURATION);
    }
    if (life_options.confirm_conf) {
        zone_options_echo(&life_options, life_say_option, NULL);
    }
}

/* Kernels before 4.14 cannot wipe a page on fork. */
static void life_child(void)
{
    struct zone_life_page *page = atomic_load(&zone_life_page);
    if (page) {
        page->on = false;
    }
}

static struct zone_life_page *life_page_new(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    if (madvise(page, bytes, MADV_WIPEONFORK) != 0 && pthread_atfork(NULL, NULL, life_child) != 0) {
        munmap(page, bytes);
        return NULL;
    }
    return page;
}

static void life_start_locked(void)
{
    struct zone_life_page *page = life_page_new();
    if (!page) {
        return;
    }
    life_keep_stderr();
    life_configure();
    life_process.options = &life_options;
    life_process.gpu = life_options.backend == ZONE_BACKEND_CUDA_MALLOC_ASYNC ? zone_async_gpu()
                                                                              : zone_gpu_driver();
    life_process.say = zone_life_say;
    life_process.may_depend = zone_mempool_may_depend;
    if (zone_report_kind(secure_getenv("ZONE_REPORT")) != ZONE_REPORT_NONE) {
        life_process.explain = zone_explain;
    }
    zone_exit_register();
    page->on = true;
    atomic_store_explicit(&zone_life_page, page, memory_order_release);
}

bool zone_life_start(void)
{
    if (ZONE_LIKELY(zone_life_is_on())) {
        return true;
    }
    if (atomic_load_explicit(&zone_life_page, memory_order_acquire) || zone_life_is_disabled()) {
        return false; /* a forked child, or turned off */
    }
    pthread_mutex_lock(&life_lock);
    if (!atomic_load_explicit(&zone_life_page, memory_order_relaxed)) {
        life_start_locked();
    }
    pthread_mutex_unlock(&life_lock);
    return zone_life_is_on();
}

static int life_adjust_locked(const char *text)
{
    static const char name[] = "zone_set_allocator_settings";
    struct zone_options wanted;
    uint64_t keys;
    if (zone_life_is_on()) {
        wanted = life_options;
        int problems = zone_options_adjust(&wanted, name, text, life_say_option, NULL, &keys);
        zone_registry_adjust(&life_options, &wanted, keys);
        if (keys >> ZONE_OPTION_ID_max_cached_mb & 1) {
            zone_async_bound(&life_options);
        }
        return problems;
    }
    /* Nothing has been read yet; what the start will read is what the text is held against. */
    zone_options_init(&wanted);
    zone_options_parse(&wanted, "", secure_getenv("ZONE_ALLOC_CONF"), NULL, NULL);
    zone_options_take(&wanted, &life_early, life_early_keys);
    int problems = zone_options_adjust(&wanted, name, text, life_say_option, NULL, &keys);
    zone_options_take(&life_early, &wanted, keys);
    life_early_keys |= keys;
    return problems;
}

int zone_life_adjust(const char *text)
{
    pthread_mutex_lock(&life_lock);
    int problems = life_adjust_locked(text);
    pthread_mutex_unlock(&life_lock);
    return problems;
}
