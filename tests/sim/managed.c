/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice and prefetching: checked and ordered like work, but there is nothing to move.
 */
#include "sim.h"

static CUresult run_nothing(const struct sim_work *work, struct sim_ctx *ctx)
{
    (void)work;
    (void)ctx;
    return CUDA_SUCCESS;
}

static CUresult check(CUdeviceptr ptr, size_t count)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    const struct sim_block *block = sim_block_at(ptr);
    bool inside = block && block->memory == SIM_MANAGED && count > 0 &&
                  ptr + count <= block->address + block->bytes;
    sim_unlock();
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult prefetch(CUdeviceptr ptr, size_t count, CUstream stream)
{
    CUresult rc = check(ptr, count);
    if (rc == CUDA_SUCCESS) {
        sim_lock();
        rc = sim_submit(stream, sim_work_new(CU_GRAPH_NODE_TYPE_EMPTY, run_nothing), NULL);
        sim_unlock();
    }
    return rc;
}

CUresult sim_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    (void)advice;
    (void)device;
    return check(devPtr, count);
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                            CUmemLocation location)
{
    (void)advice;
    (void)location;
    return check(devPtr, count);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                CUstream hStream)
{
    (void)dstDevice;
    return prefetch(devPtr, count, hStream);
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                   unsigned int flags, CUstream hStream)
{
    (void)location;
    return flags == 0 ? prefetch(devPtr, count, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                    unsigned int flags)
{
    (void)flags;
    return prefetch(dptr, length > 0 ? length : 1, hStream);
}
