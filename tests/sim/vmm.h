/* SPDX-License-Identifier: Apache-2.0
 *
 * A physical handle, as vmm.c maps it and ipc.c shares it; under the one lock.
 */
#pragma once

#include "sim.h"

struct sim_physical {
    struct sim_device *device;
    CUmemAllocationProp prop;
    size_t first, bytes; /* first chunk in the file of the device */
    int fd;              /* a file of its own if it may be exported, else -1 */
    bool imported;       /* the chunks are the exporter's */
    unsigned handles, mappings;
};

struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
