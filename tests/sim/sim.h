/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal types of the simulated GPU. One lock, taken by sim_lock(), guards everything below
 * unless a comment says otherwise; it is never held while work runs on simulated memory.
 * Handles given to the program are pointers to these structures, kept in the table of handle.c.
 */
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_CHUNK ((size_t)2 << 20) /* the driver's unit of physical memory */
#define SIM_UNIT  ((size_t)512)     /* step of small allocations inside a chunk */
#define SIM_LARGE SIM_CHUNK         /* from here up an allocation has chunks of its own */

/* Every implementation is sim_<exported name without _ptsz/_ptds>. */
#define API(elf, impl, base, version, twin, params, args) CUresult sim_##impl params;
#include "api.def"
#undef API

enum sim_symbol {
#define API(elf, impl, base, version, twin, params, args) SIM_##elf,
#include "api.def"
#undef API
    SIM_SYMBOLS
};

enum sim_kind {
    SIM_NONE,
    SIM_STREAM,
    SIM_EVENT,
    SIM_MODULE,
    SIM_FUNCTION,
    SIM_GRAPH,
    SIM_NODE,
    SIM_EXEC,
    SIM_POOL,
    SIM_GREEN,
    SIM_ARRAY,
    SIM_PHYSICAL,
    SIM_LIBRARY,
    SIM_KERNEL,
    SIM_EXTERNAL
};

struct sim_ctx;
struct sim_stream;
struct sim_capture;
struct sim_node;
struct sim_shared;
struct sim_graph;
struct sim_exec;
struct sim_pool;
struct sim_heap;
struct sim_kernel;
struct sim_module;
struct sim_array;
struct sim_physical;

struct sim_device {
    int ordinal;
    size_t chunks;      /* capacity in SIM_CHUNK */
    size_t used_chunks; /* of it taken, by whatever kind of memory */
    struct sim_ctx *primary;
    unsigned primary_refs, primary_flags;
    struct sim_heap *heap;
    struct sim_pool *default_pool, *pool;
    struct sim_physical_space *physical;
};

struct sim_ctx {
    struct sim_device *device;
    struct sim_ctx *owner; /* itself, or for a green context the primary one */
    unsigned long long id; /* new for each life of a context */
    unsigned flags, version;
    bool alive, primary;
    CUresult sticky;            /* the fault that every later call reports */
    struct sim_stream *streams; /* all that live or still drain; only in an owner */
    struct sim_stream *legacy;
    struct sim_op **barriers; /* what later work has to wait for (cuCtxWaitEvent) */
    size_t barrier_count;
    unsigned frees_waiting; /* threads inside a waiting free: they hold up others */
    size_t limits[CU_LIMIT_MAX];
    uint64_t peers; /* bit per device whose memory was made accessible */
    struct sim_ctx *next;
};

/* What a stream or a graph node executes. Constant once made; run without the lock. */
struct sim_work {
    int refs;
    CUgraphNodeType type;
    CUresult (*run)(const struct sim_work *work, struct sim_ctx *ctx);
    union {
        struct {
            unsigned char *dst;
            const unsigned char *src;
            size_t width, height, depth, dst_pitch, src_pitch, dst_slice, src_slice;
            void *staged; /* a pageable source, as it was at the call */
        } copy;
        struct {
            unsigned char *dst;
            uint32_t value;
            unsigned element;
            size_t width, height, pitch;
        } set;
        struct {
            const struct sim_kernel *kernel;
            uint64_t args[16];
            unsigned grid[3], block[3];
        } launch;
        struct {
            CUhostFn fn;
            CUstreamCallback callback;
            CUstream stream;
            void *arg;
        } host;
        struct {
            void *address;
            uint64_t value;
            unsigned flags;
            bool wide, write;
        } word;
        struct {
            CUdeviceptr address;
            size_t bytes;
            bool graph; /* the memory lives as long as this node and its copies */
        } memory;
        struct {
            struct sim_exec *exec;
        } graph;
        struct {
            struct sim_shared *shared;
            uint64_t ticket;
        } shared;
    } u;
};

/* One entry of a stream's queue, or (without a stream) the meeting point of several streams. */
struct sim_op {
    int refs;
    bool done;
    unsigned pending; /* operations that must be done first, besides those ahead in the queue */
    struct sim_op **dependents;
    size_t dependent_count, dependent_room;
    struct sim_stream *stream;
    struct sim_work *work;
    void (*on_done)(void *data); /* called with the lock held */
    void *data;
    uint64_t finished_ns;
    struct sim_op *next;
};

struct sim_stream {
    struct sim_ctx *ctx;   /* the owner context */
    struct sim_ctx *green; /* or NULL */
    unsigned flags;
    int priority;
    bool legacy, destroyed, running;
    unsigned long long id;
    const struct sim_thread *thread; /* of a per-thread stream */
    struct sim_op *head, *tail;      /* queued and not done */
    struct sim_op *last;             /* the newest operation ever queued */
    pthread_cond_t wake;
    struct sim_capture *capture;
    struct sim_node **frontier; /* nodes the next captured node depends on */
    size_t frontier_count;
    struct sim_stream *prev, *next;
};

struct sim_event {
    struct sim_ctx *ctx;
    unsigned flags;
    struct sim_op *op;           /* of the newest record, or NULL */
    struct sim_capture *capture; /* if that record was captured */
    struct sim_node **nodes;
    size_t node_count;
    struct sim_shared *shared; /* of an event for several processes */
    bool imported;             /* and that another one made it */
};

enum sim_memory {
    SIM_DEVICE,  /* cuMemAlloc */
    SIM_ASYNC,   /* stream-ordered */
    SIM_MANAGED, /* cuMemAllocManaged */
    SIM_HOST,    /* pinned, allocated or registered */
    SIM_IMPORT,  /* opened from another process */
    SIM_BUFFER,  /* of another API's memory */
    SIM_RANGE    /* a physical handle mapped into reserved addresses */
};

struct sim_block {
    uintptr_t address;
    size_t size;  /* as requested */
    size_t bytes; /* taken */
    enum sim_memory memory;
    struct sim_device *device;
    struct sim_ctx *ctx; /* owner context, or NULL */
    unsigned long long id;
    void *owner; /* slab owner, pool or physical handle */
    unsigned host_flags;
    bool registered, leaving, graph, variable, sync_memops;
    bool of_pool;  /* an import that is freed, not closed */
    unsigned refs; /* opens of an import, and where it is from */
    int import_pid;
    uint64_t import_offset;
    size_t import_mapped;
    uint64_t access; /* bit per device that may read and write a mapped range */
};

struct sim_thread {
    struct {
        struct sim_ctx *ctx;
        unsigned long long id;
    } stack[32];
    unsigned depth;
    bool per_thread; /* the call being served came through a _ptsz or _ptds name */
    bool in_callback;
    CUstreamCaptureMode mode;
    bool has_stream; /* a per-thread stream somewhere, to be retired with the thread */
};

extern __thread struct sim_thread sim_self;

/* process.c: knobs, life, counters */
void sim_lock(void);
void sim_unlock(void);
void sim_wait_progress(void); /* until something completes; the lock is given up meanwhile */
void sim_progress(void);
pthread_mutex_t *sim_lock_for_wait(void);
CUresult sim_enter(enum sim_symbol symbol, bool implemented);
void sim_leave(enum sim_symbol symbol, CUresult rc);
size_t sim_memory_mb(void);
size_t sim_neighbours_mb(void); /* what other processes hold of the first device */
int sim_device_count(void);
int sim_driver_version(void);
double sim_time_scale(void);
void sim_latency(void); /* the pause before each piece of work, by ZSIM_LATENCY_US */
uint64_t sim_now_ns(void);
bool sim_jitters(void); /* jitter.c */
void sim_jitter(void);  /* a random pause, by ZSIM_JITTER_US; the lock is not held */
void *sim_calloc(size_t count, size_t size);
void *sim_grow(void *array, size_t *room, size_t needed, size_t size);

/* resolver.c */
const char *sim_symbol_name(enum sim_symbol symbol);
int sim_symbol_version(enum sim_symbol symbol);

/* handle.c: which pointers are live handles, and whose */
void sim_handle_add(void *handle, enum sim_kind kind, struct sim_ctx *ctx);
void sim_handle_drop(void *handle);
bool sim_handle_is(const void *handle, enum sim_kind kind);
void *sim_handle_of_ctx(const struct sim_ctx *ctx, enum sim_kind *ret_kind);
size_t sim_handle_count(enum sim_kind kind);

/* context.c */
struct sim_device *sim_device_at(CUdevice ordinal); /* NULL if there is none */
CUresult sim_current(struct sim_ctx **ret_ctx);     /* of this thread, checked */
CUresult sim_begin(struct sim_ctx **ret_ctx);       /* lock + sim_current; unlocked on failure */
struct sim_ctx *sim_ctx_live(CUcontext handle);
struct sim_ctx *sim_ctx_first(void);
struct sim_ctx *sim_ctx_new(struct sim_device *device, unsigned flags);
struct sim_ctx *sim_ctx_new_green(struct sim_ctx *primary);
void sim_ctx_teardown(struct sim_ctx *ctx);
void sim_ctx_fault(struct sim_ctx *ctx, CUresult code);
CUresult sim_gate(struct sim_ctx *ctx); /* waits while another thread sits in a free */

/* queue.c: operations, their order and the stream threads */
struct sim_op *sim_op_new(struct sim_work *work);
void sim_op_ref(struct sim_op *op);
void sim_op_unref(struct sim_op *op);
void sim_op_depend(struct sim_op *op, struct sim_op *on);
void sim_op_start(struct sim_op *op); /* one without a stream: done when its dependencies are */
void sim_op_wait(struct sim_op *op);  /* the caller holds a reference */
void sim_stream_queue(struct sim_stream *stream, struct sim_op *op);
struct sim_op *sim_ctx_join(struct sim_ctx *ctx); /* everything queued so far; with a reference */
void sim_ctx_drain(struct sim_ctx *ctx);
struct sim_work *sim_work_new(CUgraphNodeType type,
                              CUresult (*run)(const struct sim_work *, struct sim_ctx *));
void sim_work_unref(struct sim_work *work);

/* stream.c */
CUresult sim_stream_find(CUstream handle, struct sim_ctx *ctx, struct sim_stream **ret_stream);
struct sim_stream *sim_stream_new(struct sim_ctx *ctx, struct sim_ctx *green, unsigned flags);
void sim_stream_retire(struct sim_stream *stream);
void sim_event_free(struct sim_event *event);
/* Finds the stream, waits at the gate and hands the work over to its queue or its capture. Takes
 * over the reference to work. ret_op, if not NULL, gets a reference, or NULL if it was captured. */
CUresult sim_submit(CUstream handle, struct sim_work *work, struct sim_op **ret_op);

/* capture.c */
CUresult sim_capture_check_unsafe(void);             /* for calls that a capture may prohibit */
CUresult sim_capture_check_ctx(struct sim_ctx *ctx); /* for calls on a whole context */
CUresult sim_capture_check_legacy(struct sim_stream *stream);
CUresult sim_capture_add(struct sim_stream *stream, struct sim_work *work);
CUresult sim_capture_record(struct sim_stream *stream, struct sim_event *event);
CUresult sim_capture_wait(struct sim_stream *stream, struct sim_event *event);
void sim_capture_invalidate(struct sim_capture *capture);
void sim_capture_stream_gone(struct sim_stream *stream);
bool sim_capture_active(const struct sim_capture *capture);
CUresult sim_capture_event_busy(struct sim_event *event);
void sim_event_uncapture(struct sim_event *event);

/* graph.c */
struct sim_graph *sim_graph_new(void);
struct sim_node *sim_graph_add(struct sim_graph *graph, struct sim_work *work,
                               struct sim_node *const *deps, size_t count);
void sim_graph_free(struct sim_graph *graph);
struct sim_work *sim_fill_work(CUdeviceptr dst, size_t pitch, uint32_t value, unsigned element,
                               size_t width, size_t height);
struct sim_work *sim_host_work(CUhostFn fn, void *arg);
/* Memory for an alloc node, which goes when the work does. */
CUresult sim_graph_memory(struct sim_device *device, size_t size, struct sim_work **ret_work);
struct sim_work *sim_memory_work(CUgraphNodeType type, uintptr_t address, size_t bytes);
/* Whether some node of from depends on target, or is it. */
bool sim_node_reaches(struct sim_node *const *from, size_t count, const struct sim_node *target);
void sim_exec_unref(struct sim_exec *exec);

/* heap.c: addresses and chunks of a device */
void sim_heap_init(struct sim_device *device);
CUresult sim_heap_alloc(struct sim_device *device, void *owner, size_t size, bool zero,
                        uintptr_t *ret_address, size_t *ret_bytes);
void sim_heap_free(struct sim_device *device, void *owner, uintptr_t address, size_t bytes);
bool sim_heap_touches(const struct sim_device *device, uintptr_t address);
bool sim_heap_mapped(const struct sim_device *device, uintptr_t address, size_t bytes);
int sim_heap_fd(const struct sim_device *device, uintptr_t address, size_t *ret_offset);
bool sim_chunks_take(struct sim_device *device, size_t count);

/* neighbours.c: what other processes take of a device. Lock held, but at exit. */
void sim_neighbours_init(void);
bool sim_neighbours_take(const struct sim_device *device, size_t count);
void sim_neighbours_give(const struct sim_device *device, size_t count);
size_t sim_neighbours_used(const struct sim_device *device); /* chunks, with this process's own */
void sim_neighbours_exit(void);
void sim_chunks_give(struct sim_device *device, size_t count);

/* block.c: the allocations */
struct sim_block *sim_block_add(uintptr_t address, size_t size, size_t bytes,
                                enum sim_memory memory, struct sim_ctx *ctx);
struct sim_block *sim_block_at(uintptr_t address);            /* that holds this address */
const struct sim_block *sim_block_visible(uintptr_t address); /* the same, as programs see it */
struct sim_block *sim_block_from(uintptr_t address);          /* that starts here */
void sim_block_remove(struct sim_block *block);
void sim_block_release(struct sim_block *block); /* its memory too */
void sim_block_release_ctx(struct sim_ctx *ctx);
struct sim_block *sim_block_each(struct sim_block *after);
size_t sim_block_count(void);
/* Whether work of ctx may touch this range; without the lock. */
bool sim_may_touch(struct sim_ctx *ctx, const void *address, size_t bytes);
bool sim_copyable(const void *address, size_t bytes); /* for copies, by any device; no lock */
/* Whether a copy by ctx accepts this range; with the lock. */
bool sim_copy_allowed(const struct sim_ctx *ctx, const void *address, size_t bytes);
bool sim_is_pageable(const void *address);
bool sim_on_device(const void *address);

/* host.c */
void sim_host_release(uintptr_t address, size_t bytes);

/* pool.c */
void sim_pool_release(struct sim_block *block);

/* kernels.c */
struct sim_kernel {
    const char *name;
    CUresult (*run)(struct sim_ctx *ctx, const uint64_t *args);
};
const struct sim_kernel *sim_kernel_find(const char *name);

/* module.c */
bool sim_is_ptx(const void *image);
char *sim_read_text(const char *path); /* NULL if there is none; to be freed */
CUresult sim_module_load(struct sim_ctx *ctx, const char *ptx, CUmodule *ret_module);
void sim_module_free(struct sim_module *module);

/* memory.c: a module's variable, device or managed memory of ctx */
bool sim_variable_alloc(struct sim_ctx *ctx, void *module, size_t size, bool managed,
                        CUdeviceptr *ret_address);

/* array.c */
void sim_array_free(struct sim_array *array);
/* The bytes of a live array, rows of *ret_pitch, layers of *ret_rows rows; NULL if it is none. */
unsigned char *sim_array_bytes(CUarray handle, size_t *ret_pitch, size_t *ret_rows,
                               size_t *ret_layers);

/* vmm.c */
void sim_physical_free(struct sim_physical *physical);
void sim_range_unmap(struct sim_block *block);

/* ipc_event.c */
struct sim_shared *sim_shared_new(void);
void sim_shared_record(struct sim_shared *shared, struct sim_op *op);
uint64_t sim_shared_ticket(struct sim_shared *shared);
bool sim_shared_done(struct sim_shared *shared, uint64_t ticket);
void sim_shared_wait(struct sim_shared *shared, uint64_t ticket); /* without the lock */
struct sim_work *sim_shared_work(struct sim_shared *shared);

/* ipc.c */
void sim_import_unmap(struct sim_block *block);
