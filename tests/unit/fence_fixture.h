/* SPDX-License-Identifier: Apache-2.0
 *
 * One fence over the model of a GPU, and the short forms that its tests are written in.
 */
#pragma once

#include "fence.h"
#include "model_gpu.h"
#include "unit_main.h"

#define MS UINT64_C(1000000)

extern struct zone_fence fence;

/* A new device and fence; every call of the device checks that the fence's lock is free. */
void fence_setup(void);

/* A free of so many bytes that records and natively waits. */
struct zone_ticket fence_close(size_t bytes);

/* zone_fence_ask, which must meet no fault. */
bool fence_ask(uint64_t stamp);

/* zone_fence_settle_to; returns the time waited. */
uint64_t fence_settle_to(const struct zone_ticket *ticket, size_t target);

/* Two frees, each behind 1 ms of work; asked next is the older one. */
void fence_two_marks(void);

/* What another thread does inside a hook, and what it saw. */
struct other {
    unsigned work;
    uint64_t stamp;
    struct zone_ticket ticket;
    unsigned rounds;
    bool ready;
};

/* Hook: all work so far ends and the thread learns so, then it frees `rounds` times, which uses
 * events again. */
void fence_other_settles_and_closes(void *arg);
