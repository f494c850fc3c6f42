/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread waits for: answers of check kernels, and memory that a stream gives back. Each
 * thread has a ring of questions; a full ring waits for the oldest, which bounds how much is
 * queued.
 */
#include "block.h"
#include "claim.h"

void check_start(struct thread *thread)
{
    uint32_t *words = words_new(2 * (size_t)CHECKS);
    for (unsigned i = 0; i < CHECKS; i++) {
        thread->checks[i].answer = &words[(size_t)2 * i];
    }
}

static bool check_is_done(const struct check *check)
{
    return __atomic_load_n(&check->answer[1], __ATOMIC_ACQUIRE) != 0;
}

static void check_look(const struct check *check)
{
    uint32_t wrong = __atomic_load_n(&check->answer[0], __ATOMIC_ACQUIRE);
    if (wrong > 0) {
        stress_fail_at(__FILE__, __LINE__, check->ptr,
                       "%u words of %#llx (%zu bytes) were not %#x when checked in step %llu",
                       wrong, (unsigned long long)check->ptr, check->bytes, check->tag,
                       (unsigned long long)check->step);
    }
}

void check_poll(struct thread *thread, bool all)
{
    while (thread->check_head < thread->check_tail) {
        const struct check *check = &thread->checks[thread->check_head % CHECKS];
        bool full = thread->check_tail - thread->check_head == CHECKS;
        while (check->place && (all || full) && !check_is_done(check)) {
            sleep_us(50);
        }
        if (check->place && !check_is_done(check)) {
            return;
        }
        if (check->place) {
            check_look(check);
        }
        thread->check_head++;
    }
}

void check_queue(struct thread *thread, const struct block *block, CUstream stream)
{
    check_poll(thread, false);
    struct check *check = &thread->checks[thread->check_tail++ % CHECKS];
    uint32_t *answer = check->answer;
    *check = (struct check){.place = block->place,
                            .ptr = block->ptr,
                            .bytes = block->bytes,
                            .tag = block->tag,
                            .step = atomic_load(&thread->step),
                            .answer = answer};
    __atomic_store_n(&answer[0], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&answer[1], 0, __ATOMIC_RELEASE);
    submit_check(block->place, stream, block->ptr, block->bytes, block->tag, answer);
    submit_signal(block->place, stream, &answer[1]);
}

void check_forget(struct thread *thread, const struct place *place)
{
    for (uint64_t i = thread->check_head; i < thread->check_tail; i++) {
        struct check *check = &thread->checks[i % CHECKS];
        if (check->place == place) {
            if (check_is_done(check)) {
                check_look(check);
            }
            check->place = NULL;
        }
    }
}

void leaving_poll(struct thread *thread)
{
    for (unsigned i = thread->leaving_count; i > 0; i--) {
        struct leaving *leaving = &thread->leaving[i - 1];
        CUresult rc = cuEventQuery(leaving->event);
        if (rc == CUDA_ERROR_NOT_READY && thread->leaving_count == LEAVING) {
            rc = cuEventSynchronize(leaving->event);
        }
        if (rc == CUDA_SUCCESS) {
            claim_give(leaving->chunks);
            MUST(cuEventDestroy(leaving->event));
            *leaving = thread->leaving[--thread->leaving_count];
        } else {
            REQUIRE(rc == CUDA_ERROR_NOT_READY || (rc == INJECTED && stress.plan.inject),
                    "an event gave %d", (int)rc);
        }
    }
}

void leaving_add(struct thread *thread, struct place *place, CUstream stream, size_t chunks)
{
    while (thread->leaving_count == LEAVING) {
        leaving_poll(thread);
    }
    struct leaving *leaving = &thread->leaving[thread->leaving_count];
    *leaving = (struct leaving){.place = place, .chunks = chunks};
    MUST(cuEventCreate(&leaving->event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(leaving->event, stream));
    thread->leaving_count++;
}

void leaving_forget(struct thread *thread, const struct place *place)
{
    for (unsigned i = thread->leaving_count; i > 0; i--) {
        if (thread->leaving[i - 1].place == place) {
            claim_give(thread->leaving[i - 1].chunks);
            thread->leaving[i - 1] = thread->leaving[--thread->leaving_count];
        }
    }
}
