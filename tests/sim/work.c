/* SPDX-License-Identifier: Apache-2.0
 *
 * Host functions, callbacks and memory operations of streams.
 */
#include "sim.h"

#include <time.h>

static CUresult run_host(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)ctx;
    sim_self.in_callback = true;
    if (work->u.host.callback) {
        work->u.host.callback(work->u.host.stream, CUDA_SUCCESS, work->u.host.arg);
    } else {
        work->u.host.fn(work->u.host.arg);
    }
    sim_self.in_callback = false;
    return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, struct sim_work *work)
{
    sim_lock();
    CUresult rc = sim_submit(stream, work, NULL);
    sim_unlock();
    return rc;
}

struct sim_work *sim_host_work(CUhostFn fn, void *arg)
{
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_HOST, run_host);
    work->u.host.fn = fn;
    work->u.host.arg = arg;
    return work;
}

CUresult sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return fn ? submit(hStream, sim_host_work(fn, userData)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                                 unsigned int flags)
{
    if (!callback || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_HOST, run_host);
    work->u.host.callback = callback;
    work->u.host.stream = hStream;
    work->u.host.arg = userData;
    return submit(hStream, work);
}

static bool holds(const struct sim_work *work)
{
    const struct timespec pause = {0, 20000};
    uint64_t value = work->u.word.wide
                         ? __atomic_load_n((uint64_t *)work->u.word.address, __ATOMIC_SEQ_CST)
                         : __atomic_load_n((uint32_t *)work->u.word.address, __ATOMIC_SEQ_CST);
    bool result = false;
    switch (work->u.word.flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        result = work->u.word.wide ? (int64_t)(value - work->u.word.value) >= 0
                                   : (int32_t)(uint32_t)(value - work->u.word.value) >= 0;
        break;
    case CU_STREAM_WAIT_VALUE_EQ:
        result = value == work->u.word.value;
        break;
    case CU_STREAM_WAIT_VALUE_AND:
        result = (value & work->u.word.value) != 0;
        break;
    default:
        result =
            (~(value | work->u.word.value) & (work->u.word.wide ? UINT64_MAX : UINT32_MAX)) != 0;
        break;
    }
    if (!result) {
        nanosleep(&pause, NULL);
    }
    return result;
}

static CUresult run_word(const struct sim_work *work, struct sim_ctx *ctx)
{
    if (!sim_may_touch(ctx, work->u.word.address, work->u.word.wide ? 8 : 4)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (!work->u.word.write) {
        while (!holds(work)) {
        }
    } else if (work->u.word.wide) {
        __atomic_store_n((uint64_t *)work->u.word.address, work->u.word.value, __ATOMIC_SEQ_CST);
    } else {
        __atomic_store_n((uint32_t *)work->u.word.address, (uint32_t)work->u.word.value,
                         __ATOMIC_SEQ_CST);
    }
    return CUDA_SUCCESS;
}

static CUresult word(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags,
                     bool wide, bool write)
{
    if (address % (wide ? 8 : 4) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, run_word);
    work->u.word.address = (void *)(uintptr_t)address;
    work->u.word.value = value;
    work->u.word.flags = flags;
    work->u.word.wide = wide;
    work->u.word.write = write;
    return submit(stream, work);
}

#define WORDS(bits, suffix)                                                                        \
    CUresult sim_cuStreamWriteValue##bits##suffix(CUstream stream, CUdeviceptr addr,               \
                                                  cuuint##bits##_t value, unsigned int flags)      \
    {                                                                                              \
        return word(stream, addr, value, flags, bits == 64, true);                                 \
    }                                                                                              \
    CUresult sim_cuStreamWaitValue##bits##suffix(CUstream stream, CUdeviceptr addr,                \
                                                 cuuint##bits##_t value, unsigned int flags)       \
    {                                                                                              \
        return word(stream, addr, value, flags, bits == 64, false);                                \
    }
WORDS(32, )
WORDS(64, )
WORDS(32, _v2)
WORDS(64, _v2)

CUresult sim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                   CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    CUresult rc = flags == 0 && paramArray ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; rc == CUDA_SUCCESS && i < count; i++) {
        const CUstreamBatchMemOpParams *op = &paramArray[i];
        switch ((int)op->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            rc = word(stream, op->waitValue.address, op->waitValue.value, op->waitValue.flags,
                      false, false);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            rc = word(stream, op->writeValue.address, op->writeValue.value, op->writeValue.flags,
                      false, true);
            break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            rc = word(stream, op->waitValue.address, op->waitValue.value64, op->waitValue.flags,
                      true, false);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            rc = word(stream, op->writeValue.address, op->writeValue.value64, op->writeValue.flags,
                      true, true);
            break;
        default:
            rc = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return rc;
}
