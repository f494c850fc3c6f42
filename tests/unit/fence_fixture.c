/* SPDX-License-Identifier: Apache-2.0
 *
 * The fence under test: see fence_fixture.h.
 */
#include "fence_fixture.h"

struct zone_fence fence;

static void check_no_lock(void *arg)
{
    (void)arg;
    ck_assert_msg(fence.lock == 0, "calls the device with the lock held");
}

void fence_setup(void)
{
    model_reset(ZONE_GIB);
    model_set_check(check_no_lock);
    zone_fence_init(&fence);
}

struct zone_ticket fence_close(size_t bytes)
{
    struct zone_ticket ticket;
    ck_assert_int_eq(zone_fence_close(&fence, model_gpu(), MODEL_CTX, bytes, true, &ticket), 0);
    ck_assert(ticket.published);
    return ticket;
}

bool fence_ask(uint64_t stamp)
{
    int fault = 0;
    bool ready = zone_fence_ask(&fence, model_gpu(), stamp, &fault);
    ck_assert_int_eq(fault, 0);
    ck_assert(ready == (zone_fence_ready(&fence) >= stamp));
    return ready;
}

uint64_t fence_settle_to(const struct zone_ticket *ticket, size_t target)
{
    uint64_t waited = 0;
    ck_assert_int_eq(zone_fence_settle_to(&fence, model_gpu(), ticket, target, &waited), 0);
    return waited;
}

void fence_two_marks(void)
{
    model_launch(MODEL_CTX, 1, 0, MS);
    fence_close(1);
    model_launch(MODEL_CTX, 1, 0, MS);
    fence_close(1);
    fence.ask_newest = false;
}

void fence_other_settles_and_closes(void *arg)
{
    const struct other *other = arg;
    model_advance(10 * MS);
    ck_assert(fence_ask(fence_close(1).epoch));
    for (unsigned i = 0; i < other->rounds; i++) {
        fence_close(1);
    }
}
