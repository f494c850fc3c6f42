/* SPDX-License-Identifier: Apache-2.0
 *
 * stress: random programs on the simulated GPU, one after another, each a process of its own. Says
 * at a failure how to run that one alone.
 */
#include "plan.h"
#include "report.h"
#include "round.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: stress [--seed N] [--seconds S] [--jobs J] [--threads T] [--round R]\n"
    "              [--round-seconds S]\n"
    "  --seed N           what everything is drawn from; default: the clock\n"
    "  --seconds S        how long, default 10\n"
    "  --jobs J           so many rounds beside each other, default 1\n"
    "  --threads T        default 4\n"
    "  --round R          only this round; its settings follow from seed and number\n"
    "  --round-seconds S  how long a round takes, default 3\n"
    "Variables that are set (ZONE_ALLOC_CONF, ZSIM_MEMORY_MB, ...) count for every round.\n";

struct options {
    struct round_options round;
    double seconds;
    unsigned jobs;
    bool one;   /* only one round */
    bool child; /* this process is a round */
};

enum { JOBS_MOST = 64, END_S = 40 }; /* a process that needs longer to end hangs */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The simulated driver of an older version lies in a folder beside the newest one. */
static void set_driver(unsigned version)
{
    char path[1200];
    char number[16];
    Dl_info info;
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = libcuda ? dlsym(libcuda, "cuInit") : NULL;
    if (!symbol || !dladdr(symbol, &info) || getenv("ZSIM_DRIVER")) {
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    int length = slash ? (int)(slash - info.dli_fname) : 0;
    snprintf(path, sizeof path, "%.*s/driver-%u/libcuda.so.1", length, info.dli_fname, version);
    if (access(path, R_OK) == 0) {
        *strrchr(path, '/') = '\0';
        const char *old = getenv("LD_LIBRARY_PATH");
        size_t used = strlen(path);
        snprintf(path + used, sizeof path - used, "%s%s", old ? ":" : "", old ? old : "");
        setenv("LD_LIBRARY_PATH", path, 1);
        snprintf(number, sizeof number, "%u", version);
        setenv("ZSIM_DRIVER", number, 1);
    }
}

static void set_number(const char *name, unsigned value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 0);
}

static void die_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void run_child(const struct options *options, const struct plan *plan, const char *path,
                      char **argv)
{
    char seed[32];
    char round[16];
    char threads[16];
    char seconds[32];
    char fd[16];
    char self[4096];
    die_with_parent();
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->round.seed);
    snprintf(round, sizeof round, "%u", options->round.round);
    snprintf(threads, sizeof threads, "%u", options->round.threads);
    snprintf(seconds, sizeof seconds, "%.3f", options->round.seconds);
    snprintf(fd, sizeof fd, "%d", options->round.result_fd);
    setenv("ZONE_ALLOC_CONF", plan->conf, 0);
    setenv("ZONE_REPORT", path, 0);
    set_number("ZSIM_MEMORY_MB", plan->memory_mb);
    set_number("ZSIM_JITTER_US", plan->jitter_us);
    set_number("ZSIM_JITTER_SEED", (unsigned)(plan->seed & 0xffff));
    set_driver(plan->driver);
    /* Its name, not the link: a checker that runs the program would be run in its place. */
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    execl(self, argv[0], "--child", "--result", fd, "--seed", seed, "--round", round, "--threads",
          threads, "--round-seconds", seconds, (char *)NULL);
    fprintf(stderr, "stress: cannot run itself: %s\n", strerror(errno));
    _Exit(2);
}

/* Waits for the child; a process that does not end is killed. */
static int wait_child(pid_t pid, double limit)
{
    int status = 0;
    double end = now_s() + limit;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_s() > end) {
            fprintf(stderr, "stress: the process does not end\n");
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "stress: the process was ended by signal %d\n", WTERMSIG(status));
        return -1;
    }
    return WEXITSTATUS(status);
}

static void say_how_to_repeat(const struct options *options, const struct plan *plan)
{
    fprintf(stderr,
            "stress: seed %#llx round %u failed. Its settings: ZONE_ALLOC_CONF='%s' driver %u, "
            "%u MiB, jitter %u us%s%s\n"
            "stress: again: stress --seed %#llx --round %u --threads %u --round-seconds %.3f\n",
            (unsigned long long)options->round.seed, options->round.round,
            getenv("ZONE_ALLOC_CONF") ? getenv("ZONE_ALLOC_CONF") : plan->conf, plan->driver,
            plan->memory_mb, plan->jitter_us, plan->inject ? ", failures injected" : "",
            plan->async ? ", stream-ordered memory" : "", (unsigned long long)options->round.seed,
            options->round.round, options->round.threads, options->round.seconds);
}

static const char report_pattern[] = "/tmp/stress-XXXXXX.json";
static char report[sizeof report_pattern]; /* of the round that runs */

/* Another job has failed. The round that runs ends with this process. */
static void stop_job(int signal_number)
{
    (void)signal_number;
    unlink(report);
    _exit(1);
}

/* Runs one round; returns its exit code. */
static int run_round(struct options *options, char **argv, struct round_result *sum)
{
    struct plan plan = plan_make(options->round.seed, options->round.round);
    memcpy(report, report_pattern, sizeof report);
    int fd = memfd_create("stress-result", 0);
    int report_fd = mkstemps(report, 5);
    if (fd < 0 || ftruncate(fd, sizeof(struct round_result)) != 0 || report_fd < 0) {
        perror("stress");
        return 2;
    }
    options->round.result_fd = fd;
    struct round_result *result =
        mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t pid = fork();
    if (pid == 0) {
        run_child(options, &plan, report, argv);
    }
    const char *slow = getenv("VICTIM_SLOW");
    int rc = wait_child(pid, options->round.seconds + END_S * (slow ? strtod(slow, NULL) : 1));
    if (rc == 0 && !getenv("ZONE_REPORT") && !report_is_right(report_fd, result, &plan)) {
        rc = 1;
    }
    if (rc != 0 && rc != 77) {
        say_how_to_repeat(options, &plan);
    }
    sum->steps += result->steps;
    sum->allocs += result->allocs;
    munmap(result, sizeof *result);
    unlink(report);
    close(report_fd);
    close(fd);
    return rc;
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"seed", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 'S'},
        {"threads", required_argument, NULL, 't'},
        {"round", required_argument, NULL, 'r'},
        {"child", no_argument, NULL, 'c'},
        {"round-seconds", required_argument, NULL, 'R'},
        {"result", required_argument, NULL, 'f'},
        {"jobs", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    int what;
    while ((what = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (what) {
        case 's':
            options->round.seed = strtoull(optarg, NULL, 0);
            break;
        case 'S':
            options->seconds = strtod(optarg, NULL);
            break;
        case 't':
            options->round.threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'r':
            options->round.round = (unsigned)strtoul(optarg, NULL, 10);
            options->one = true;
            break;
        case 'R':
            options->round.seconds = strtod(optarg, NULL);
            break;
        case 'j':
            options->jobs = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'f':
            options->round.result_fd = (int)strtol(optarg, NULL, 10);
            break;
        case 'c':
            options->child = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc && options->round.threads > 0 && options->round.threads <= 64 &&
           options->jobs > 0 && options->jobs <= JOBS_MOST;
}

/* Runs every `stride`th round, from the first one on, until the time is up or one fails. */
static int run_rounds(struct options *options, unsigned stride, char **argv)
{
    struct round_result sum = {0};
    double end = now_s() + options->seconds;
    int rc = 0;
    unsigned rounds = 0;
    do {
        double left = end - now_s();
        if (!options->one && left < options->round.seconds) {
            options->round.seconds = left;
        }
        rc = run_round(options, argv, &sum);
        rounds++;
        options->round.round += stride;
    } while (rc == 0 && !options->one && end - now_s() > 0.3);
    if (rc == 0 || rc == 77) {
        printf("stress passed: seed %#llx: %u rounds, %llu steps, %llu allocations: %s\n",
               (unsigned long long)options->round.seed, rounds, (unsigned long long)sum.steps,
               (unsigned long long)sum.allocs, rc == 0 ? "all right" : "skipped");
    }
    return rc < 0 ? 1 : rc;
}

/* A process for each job, which takes its share of the rounds; the first failure ends all. */
static int run_jobs(struct options *options, char **argv)
{
    pid_t jobs[JOBS_MOST];
    int rc = 0;
    for (unsigned i = 0; i < options->jobs; i++) {
        fflush(NULL);
        jobs[i] = fork();
        if (jobs[i] == 0) {
            die_with_parent();
            signal(SIGTERM, stop_job);
            options->round.round = i;
            exit(run_rounds(options, options->jobs, argv));
        }
    }
    for (unsigned left = options->jobs; left > 0; left--) {
        int status = 0;
        pid_t pid = wait(&status);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        for (unsigned i = 0; i < options->jobs; i++) {
            if (jobs[i] == pid) {
                jobs[i] = 0;
            } else if (jobs[i] > 0 && code != 0) {
                kill(jobs[i], SIGTERM);
            }
        }
        rc = rc == 0 ? code : rc;
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct options options = {
        .round = {.seed = (uint64_t)time(NULL), .threads = 4, .seconds = 3, .result_fd = -1},
        .seconds = 10,
        .jobs = 1,
    };
    if (!parse(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    if (options.child) {
        return round_run(&options.round);
    }
    if (options.one || options.jobs == 1) {
        return run_rounds(&options, 1, argv);
    }
    return run_jobs(&options, argv);
}
