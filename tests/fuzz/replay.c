/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a target where libFuzzer is missing: each input of a folder, then, for some seconds, inputs
 * made of them by chance. An input that ends the process is left in the file crash-input of the
 * current folder; given as the argument it runs alone.
 */
#include "target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INPUTS = 4096, MOST = 4096 };

struct input {
    uint8_t *data;
    size_t size;
};

static struct input inputs[INPUTS];
static unsigned input_count;
static struct input now; /* being run */
static uint64_t seed;

static unsigned below(size_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)((seed >> 33) % n);
}

/* Of a process that is about to end: only calls that a handler may make. */
static void save(int number)
{
    static const char name[] = "crash-input", text[] = "the input is in crash-input\n";
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd >= 0 && write(fd, now.data, now.size) == (ssize_t)now.size &&
        write(STDERR_FILENO, text, sizeof(text) - 1) > 0) {
        close(fd);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void run(uint8_t *data, size_t size)
{
    now = (struct input){data, size};
    LLVMFuzzerTestOneInput(data, size);
}

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static void read_file(const char *path)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts) != 0 || input_count == INPUTS) {
        die(path);
    }
    size_t size = (size_t)facts.st_size;
    uint8_t *data = malloc(size + 1);
    if (!data || read(fd, data, size) != (ssize_t)size) {
        die(path);
    }
    close(fd);
    inputs[input_count++] = (struct input){data, size};
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A file, or the files of a folder in the order of their names, so that a seed is a run. */
static void read_path(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, by_name);
    if (count < 0) {
        read_file(path);
        return;
    }
    for (int i = 0; i < count; i++) {
        char file[MOST];
        snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            read_file(file);
        }
        free(entries[i]);
    }
    free(entries);
}

/* A piece of another input, put in or over. */
static size_t graft(uint8_t *data, size_t size)
{
    const struct input *other = &inputs[below(input_count)];
    if (other->size == 0) {
        return size;
    }
    size_t from = below(other->size);
    size_t length = below(other->size - from) + 1;
    size_t at = below(size + 1);
    size_t rest = below(2) ? size - at : 0; /* what is behind it stays, or goes */
    if (at + length + rest > MOST) {
        return size;
    }
    memmove(data + at + length, data + at, rest);
    memcpy(data + at, other->data + from, length);
    return at + length + rest;
}

static size_t mutate(uint8_t *data, size_t size)
{
    for (unsigned changes = below(6) + 1; changes > 0; changes--) {
        size_t at = below(size + 1);
        switch (below(5)) {
        case 0:
            size = graft(data, size);
            break;
        case 1:
            if (at < size) {
                data[at] = (uint8_t)below(256);
            }
            break;
        case 2:
            if (at < size) {
                data[at] ^= (uint8_t)(1U << below(8));
            }
            break;
        case 3:
            if (at < size) {
                memmove(data + at, data + at + 1, size - at - 1);
                size--;
            }
            break;
        default:
            if (size < MOST) {
                memmove(data + at + 1, data + at, size - at);
                data[at] = (uint8_t)(below(2) ? 0x20 + below(0x5f) : below(256));
                size++;
            }
            break;
        }
    }
    return size;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static uint8_t data[MOST];
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE [SECONDS [SEED]]\n", argv[0]);
        return 2;
    }
    double limit = argc > 2 ? strtod(argv[2], NULL) : 0;
    seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    signal(SIGABRT, save);
    signal(SIGSEGV, save);
    read_path(argv[1]);
    if (input_count == 0) {
        fprintf(stderr, "%s: nothing in it\n", argv[1]);
        return EXIT_FAILURE;
    }
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (unsigned i = 0; i < input_count; i++) {
        run(inputs[i].data, inputs[i].size);
    }
    unsigned made = 0;
    for (double end = seconds() + limit; seconds() < end; made++) {
        const struct input *from = &inputs[below(input_count)];
        size_t size = from->size < MOST ? from->size : MOST;
        memcpy(data, from->data, size);
        run(data, mutate(data, size));
    }
    printf("%u inputs, %u made of them\n", input_count, made);
    return EXIT_SUCCESS;
}
