/* SPDX-License-Identifier: Apache-2.0
 *
 * Another preload that hooks dlsym, as profilers and GPU sharing tools do: counts the look-ups and
 * jumps to the next dlsym, so that the caller's return address stays what it was. Built with -O2,
 * or the call would not become a jump. The count is exported as tail_hook_count.
 */
#include <dlfcn.h>
#include <stddef.h>

typedef void *dlsym_fn(void *handle, const char *name);

void *dlsym(void *handle, const char *name);
extern unsigned tail_hook_count;
unsigned tail_hook_count;

static dlsym_fn *next;

void *dlsym(void *handle, const char *name)
{
    tail_hook_count++;
    if (next == NULL) {
        /* The plain "the next one in line": may be libzone's or libc's. Each glibc knows one of
         * these versions, and an unversioned dlsym answers to every one of them. */
        next = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    }
    if (next == NULL) {
#ifdef __x86_64__
        next = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
#else
        next = (dlsym_fn *)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
#endif
    }
    return next(handle, name);
}
