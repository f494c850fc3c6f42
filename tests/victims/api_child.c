/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a child forked from a process that uses CUDA asks libzone; each call says so, and the
 * parent's numbers stay what they are. A child of a process that has not used CUDA yet is like any.
 */
#include "tools.h"
#include "zone_api.h"

#include <sys/wait.h>
#include <unistd.h>

static struct zone_api api;

static void in_child(int code)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        zone_api_all(&api, 0, code);
        zone_api_all(&api, -1, code);
        EXPECT(code, api.set_allocator_settings("max_cached_mb:1"));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned)status);
}

int main(void)
{
    CUdeviceptr ptr;
    if (!zone_api_load(&api)) {
        return 0;
    }
    in_child(ZONE_OK);
    victim_start();
    OK(cuMemAlloc(&ptr, 4 * MIB));
    in_child(ZONE_ERROR_CHILD);
    CHECK(zone_api_bytes(api.memory_allocated, 0, ZONE_OK) == 4 * MIB);
    OK(cuMemFree(ptr));
    CHECK(zone_api_bytes(api.max_memory_allocated, 0, ZONE_OK) == 4 * MIB);
    CHECK(zone_api_bytes(api.memory_reserved, 0, ZONE_OK) == 4 * MIB); /* no bound was set */
    return 0;
}
