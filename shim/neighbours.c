/* SPDX-License-Identifier: Apache-2.0
 *
 * See neighbours.h. NVML numbers devices in its own order and sees those that
 * CUDA_VISIBLE_DEVICES hides, so a device is found by its UUID. Each look begins and ends with
 * NVML's own count of users, so that no file stays open and nothing is left for a forked child. The
 * library itself stays loaded.
 */
#include "neighbours.h"

#include "context.h"
#include "glibc.h"
#include "text.h"

#include <string.h>
#include <unistd.h>

enum { NVML_SUCCESS = 0, PROCESSES_MAX = 256, UUID_TEXT = 48 };
#define NVML_NOT_AVAILABLE UINT64_MAX

/* The first version of NVML's record, which every driver has. */
struct nvml_process {
    unsigned int pid;
    unsigned long long bytes;
};
_Static_assert(sizeof(struct nvml_process) == 16, "nvmlProcessInfo_v1_t");

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_by_uuid)(const char *uuid, void **ret_device);
    int (*processes)(void *device, unsigned int *count, struct nvml_process *ret);
};

/* False if something is missing. dlerror stays as it is when nothing went wrong. */
static bool nvml_load(struct nvml *nvml)
{
    static const char *const names[] = {
        "nvmlInit_v2",
        "nvmlShutdown",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetComputeRunningProcesses",
    };
    void *fn[sizeof(names) / sizeof(names[0])] = {NULL};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    bool complete = library != NULL;
    for (size_t i = 0; complete && i < sizeof(names) / sizeof(names[0]); i++) {
        fn[i] = zone_dlsym_real(library, names[i]);
        complete = fn[i] != NULL;
    }
    dlerror();
    memcpy(&nvml->init, &fn[0], sizeof(fn[0]));
    memcpy(&nvml->shutdown, &fn[1], sizeof(fn[1]));
    memcpy(&nvml->device_by_uuid, &fn[2], sizeof(fn[2]));
    memcpy(&nvml->processes, &fn[3], sizeof(fn[3]));
    return complete;
}

/* "GPU-01234567-89ab-cdef-0123-456789abcdef"; parts of a GPU have MIG for GPU. */
static void uuid_text(const char *kind, const unsigned char *uuid, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    zone_text_append(ret_text, size, "%s", kind);
    for (unsigned i = 0; i < ZONE_CONTEXT_UUID; i++) {
        bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        zone_text_append(ret_text, size, "%s%02x", dash ? "-" : "", uuid[i]);
    }
}

static void *nvml_device(const struct nvml *nvml, int ordinal)
{
    static const char *const kinds[] = {"GPU", "MIG"};
    const unsigned char *uuid = zone_context_device_uuid(ordinal);
    void *device = NULL;
    for (unsigned i = 0; uuid && i < 2 && !device; i++) {
        char text[UUID_TEXT];
        uuid_text(kinds[i], uuid, text, sizeof(text));
        if (nvml->device_by_uuid(text, &device) != NVML_SUCCESS) {
            device = NULL;
        }
    }
    return device;
}

/* This process must be among them, with its memory: in a container the numbers may be those of
 * another name space, and nobody could tell who is the other. */
static void count_others(const struct nvml_process *processes, unsigned count, struct zone_oom *oom)
{
    unsigned self = (unsigned)getpid();
    bool seen = false;
    bool complete = true;
    unsigned others = 0;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        complete = complete && processes[i].bytes != NVML_NOT_AVAILABLE;
        if (processes[i].pid == self) {
            seen = true;
        } else {
            others++;
            bytes += processes[i].bytes;
        }
    }
    if (seen && complete) {
        oom->others_known = true;
        oom->others = others;
        oom->others_bytes = bytes;
    }
}

void zone_neighbours_look(struct zone_oom *oom)
{
    static struct nvml_process processes[PROCESSES_MAX];
    struct nvml nvml;
    if (!nvml_load(&nvml) || nvml.init() != NVML_SUCCESS) {
        return;
    }
    unsigned count = PROCESSES_MAX;
    void *device = nvml_device(&nvml, oom->device);
    if (device && nvml.processes(device, &count, processes) == NVML_SUCCESS &&
        count <= PROCESSES_MAX) {
        count_others(processes, count, oom);
    }
    nvml.shutdown();
}
