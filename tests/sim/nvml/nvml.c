/* SPDX-License-Identifier: Apache-2.0
 *
 * The few functions of libnvidia-ml.so.1 that libzone looks for, over the simulated GPU's first
 * device. ZSIM_NEIGHBOURS names the other processes there, as the simulated GPU reads it; a number
 * of MiB that is no number is not available. ZSIM_NVML=CODE: every function fails with CODE.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define NOT_AVAILABLE (~0ull)

struct process {
    unsigned int pid;
    unsigned long long bytes;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device);
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned int *count,
                                                struct process *ret);
EXPORT unsigned zsim_nvml_looks(void);
EXPORT int zsim_nvml_users(void);

static unsigned looks;
static int users;

static int scripted(void)
{
    const char *code = getenv("ZSIM_NVML");
    return code ? atoi(code) : SUCCESS;
}

int nvmlInit_v2(void)
{
    int rc = scripted();
    users += rc == SUCCESS;
    return rc;
}

int nvmlShutdown(void)
{
    users--;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret_device)
{
    static char device;
    if (users == 0) {
        return UNINITIALIZED;
    }
    if (strcmp(uuid, "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00") != 0) {
        return NOT_FOUND;
    }
    *ret_device = &device;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned int *count, struct process *ret)
{
    const char *text = getenv("ZSIM_NEIGHBOURS");
    unsigned int room = *count;
    if (users == 0 || !device) {
        return UNINITIALIZED;
    }
    looks++;
    *count = 0;
    if (room > 0 && !getenv("ZSIM_NVML_FOREIGN")) {
        ret[(*count)++] = (struct process){.pid = (unsigned int)getpid(), .bytes = 1 << 20};
    }
    while (text && *text) {
        char *end;
        if (*count == room) {
            return INSUFFICIENT_SIZE;
        }
        struct process *other = &ret[(*count)++];
        other->pid = (unsigned int)strtoul(text, &end, 10);
        text = *end == ':' ? end + 1 : end;
        other->bytes = (unsigned long long)strtoul(text, &end, 10) << 20;
        other->bytes = end == text ? NOT_AVAILABLE : other->bytes;
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
    return SUCCESS;
}

unsigned zsim_nvml_looks(void)
{
    return looks;
}

int zsim_nvml_users(void)
{
    return users;
}
