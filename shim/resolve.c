/* SPDX-License-Identifier: Apache-2.0
 *
 * How programs get their driver functions, and get ours instead: dlsym on a real handle and
 * cuGetProcAddress. Both ask the real one with the caller's own arguments and substitute by the
 * identity of the pointer that came back, so that versions, flags, status and unknown names stay
 * the driver's. Nothing here takes a lock, prints or calls CUDA (looked-up code runs before
 * cuInit).
 */
#include "glibc.h"

#include "capture.h"
#include "driver.h"
#include "hooks.h"
#include "life.h"
#include "resolve.h"

#include <string.h>
#include <sys/mman.h>

typedef void *(*dlsym_fn)(void *handle, const char *symbol);

/* What dlsym_*.S reads, calls and jumps to. */
__attribute__((visibility("hidden"))) void *zone_dlsym_find(void);
__attribute__((visibility("hidden"))) void *zone_dlsym_cu(void *handle, const char *symbol);
void *zone_dlsym_next __attribute__((visibility("hidden")));
static const struct zone_driver *_Atomic driver_table;
static _Atomic bool lookups_seen;

bool zone_resolve_was_asked(void)
{
    return atomic_load_explicit(&lookups_seen, memory_order_relaxed);
}

static void *dlsym_none(void *handle, const char *symbol)
{
    (void)handle;
    (void)symbol;
    return NULL;
}

/* Finds the next dlsym behind ours, which another preload may have put there. dlvsym gives the C
 * library's, as it takes the version to the letter; that one, asked without a version, finds the
 * next in line. Not instrumented: a sanitizer's runtime looks its functions up before it is ready.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) void *zone_dlsym_find(void)
{
    static const char *const versions[] = {"GLIBC_2.34", ZONE_GLIBC_BASE};
    void *next = __atomic_load_n(&zone_dlsym_next, __ATOMIC_ACQUIRE);
    if (next) {
        return next;
    }
    dlsym_fn libc = NULL;
    for (unsigned i = 0; !libc && i < sizeof(versions) / sizeof(versions[0]); i++) {
        libc = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    if (libc) {
        next = libc(RTLD_NEXT, "dlsym");
    }
    if (!next) {
        next = libc ? (void *)libc : (void *)dlsym_none;
    }
    __atomic_store_n(&zone_dlsym_next, next, __ATOMIC_RELEASE);
    return next;
}

void *zone_dlsym_real(void *handle, const char *symbol)
{
    dlsym_fn next = (dlsym_fn)__atomic_load_n(&zone_dlsym_next, __ATOMIC_ACQUIRE);
    return (next ? next : (dlsym_fn)zone_dlsym_find())(handle, symbol);
}

static const struct {
    const char *name;
    void *wrapper; /* NULL: called, not substituted */
} driver_rows[ZONE_DRIVER_COUNT] = {
#define HOOK(name, kind, params, args) [ZONE_DRIVER_##name] = {#name, (void *)hook_##name},
#define CALL(name, params)             [ZONE_DRIVER_##name] = {#name, NULL},
#include "hooks.def"
};

/* Two names may be one function of the driver; it is entered once. */
static void table_insert(struct zone_driver *table, void *real, void *wrapper)
{
    unsigned at = table->substitutes;
    while (at > 0 && (uintptr_t)table->substitute[at - 1].real >= (uintptr_t)real) {
        at--;
    }
    if (at < table->substitutes && table->substitute[at].real == real) {
        return;
    }
    memmove(&table->substitute[at + 1], &table->substitute[at],
            (table->substitutes - at) * sizeof(table->substitute[0]));
    table->substitute[at].real = real;
    table->substitute[at].wrapper = wrapper;
    table->substitutes++;
}

static void table_fill(struct zone_driver *table, void *libcuda)
{
    bool enabled = !zone_life_is_disabled();
    for (unsigned i = 0; i < ZONE_DRIVER_COUNT; i++) {
        void *real = zone_dlsym_real(libcuda, driver_rows[i].name);
        table->fn[i] = real;
        if (real && driver_rows[i].wrapper && enabled) {
            table_insert(table, real, driver_rows[i].wrapper);
        }
    }
    dlerror(); /* of names that this driver lacks */
}

const struct zone_driver *zone_driver(void)
{
    const struct zone_driver *table = atomic_load_explicit(&driver_table, memory_order_acquire);
    if (ZONE_LIKELY(table)) {
        return table;
    }
    /* Never released: the table points into it. */
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!libcuda) {
        return NULL;
    }
    struct zone_driver *mine =
        mmap(NULL, sizeof(*mine), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mine == MAP_FAILED) {
        return NULL;
    }
    table_fill(mine, libcuda);
    if (!atomic_compare_exchange_strong_explicit(&driver_table, &table, mine, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        munmap(mine, sizeof(*mine));
        return table;
    }
    return mine;
}

void *zone_driver_substitute(const struct zone_driver *driver, const void *real)
{
    unsigned low = 0;
    unsigned high = driver->substitutes;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        uintptr_t at = (uintptr_t)driver->substitute[middle].real;
        if (at == (uintptr_t)real) {
            return driver->substitute[middle].wrapper;
        }
        if (at < (uintptr_t)real) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* What to hand out for a pointer that the real resolver returned for this name. */
static void *resolve_pointer(const struct zone_driver *driver, const char *symbol, void *real)
{
    atomic_store_explicit(&lookups_seen, true, memory_order_relaxed);
    void *wrapper = zone_driver_substitute(driver, real);
    if (!wrapper && symbol) {
        zone_capture_resolved(symbol);
    }
    return wrapper ? wrapper : real;
}

/* dlsym of a name like cuMemAlloc_v2 in a real handle; jumped to by dlsym_*.S. */
void *zone_dlsym_cu(void *handle, const char *symbol)
{
    /* Before the real call: dlerror must stay as that one leaves it. */
    const struct zone_driver *driver = zone_driver();
    void *real = zone_dlsym_real(handle, symbol);
    return driver && real ? resolve_pointer(driver, symbol, real) : real;
}

CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuGetProcAddress)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuGetProcAddress)(symbol, pfn, version, flags);
    if (rc == CUDA_SUCCESS && pfn && *pfn) {
        *pfn = resolve_pointer(driver, symbol, *pfn);
    }
    return rc;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                  void *status)
{
    const struct zone_driver *driver = zone_driver();
    if (!driver || !ZONE_REAL(driver, cuGetProcAddress_v2)) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    CUresult rc = ZONE_REAL(driver, cuGetProcAddress_v2)(symbol, pfn, version, flags, status);
    if (rc == CUDA_SUCCESS && pfn && *pfn) {
        *pfn = resolve_pointer(driver, symbol, *pfn);
    }
    return rc;
}
