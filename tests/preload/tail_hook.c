/* SPDX-License-Identifier: Apache-2.0
 *
 * Another preload that hooks dlsym, as profilers and GPU sharing tools do: counts the look-ups and
 * jumps to the next dlsym, so that the caller's return address stays what it was. Built with -O2,
 * or the call would not become a jump. The count is exported as tail_hook_count.
 *
 * Two kinds are in use. With STRAIGHT_TO_LIBC the next dlsym is asked for by version, which only
 * libc has: other hooks in between are left out. Without, whoever comes next in line gets its turn.
 */
#include <dlfcn.h>
#include <stddef.h>

typedef void *dlsym_fn(void *handle, const char *name);

void *dlsym(void *handle, const char *name);
extern unsigned tail_hook_count;
unsigned tail_hook_count;

static dlsym_fn *next;

static dlsym_fn *libc_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *found = NULL;

    for (size_t i = 0; found == NULL && i < sizeof(versions) / sizeof(versions[0]); i++) {
        found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    return (dlsym_fn *)found;
}

/* Not inlined: the answer to RTLD_NEXT goes by the return address, which must be in this file. */
static __attribute__((noinline)) dlsym_fn *find_next(void)
{
    dlsym_fn *libc = libc_dlsym();
#ifdef STRAIGHT_TO_LIBC
    return libc;
#else
    dlsym_fn *volatile in_line = (dlsym_fn *)libc(RTLD_NEXT, "dlsym");
    return in_line;
#endif
}

void *dlsym(void *handle, const char *name)
{
    tail_hook_count++;
    if (next == NULL) {
        next = find_next();
    }
    return next(handle, name);
}
