/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of a device that several processes share: ZSIM_SHARED names a file of theirs, which counts
 * what each has taken. A process gives its own back when it exits, not when it is killed.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SHARED_DEVICES = 8 };

static _Atomic uint64_t *shared;     /* chunks taken of each device, by all */
static uint64_t own[SHARED_DEVICES]; /* of that, by this process */
static pid_t owner;

void sim_neighbours_init(void)
{
    const char *path = getenv("ZSIM_SHARED");
    size_t bytes = SHARED_DEVICES * sizeof *shared;
    if (!path) {
        return;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (map == MAP_FAILED) {
        perror("zsim: ZSIM_SHARED");
        abort();
    }
    close(fd);
    shared = map;
    owner = getpid();
}

bool sim_neighbours_take(const struct sim_device *device, size_t count)
{
    if (!shared) {
        return true;
    }
    uint64_t used = atomic_load(&shared[device->ordinal]);
    do {
        if (used + count > device->chunks) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&shared[device->ordinal], &used, used + count));
    own[device->ordinal] += count;
    return true;
}

void sim_neighbours_give(const struct sim_device *device, size_t count)
{
    if (shared) {
        own[device->ordinal] -= count;
        atomic_fetch_sub(&shared[device->ordinal], count);
    }
}

size_t sim_neighbours_used(const struct sim_device *device)
{
    return shared ? atomic_load(&shared[device->ordinal]) : device->used_chunks;
}

void sim_neighbours_exit(void)
{
    for (int i = 0; i < SHARED_DEVICES && shared && getpid() == owner; i++) {
        atomic_fetch_sub(&shared[i], own[i]);
        own[i] = 0;
    }
}
