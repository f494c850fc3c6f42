/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds the loader's functions to their oldest versions. glibc 2.34 moved them into libc under a
 * new version; an object that asks for that one does not load in older containers, where every
 * preloaded process would then fail to start. Include before use in every file that calls them.
 */
#pragma once

#include <dlfcn.h>

#if defined(__x86_64__)
#define ZONE_GLIBC_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define ZONE_GLIBC_BASE "GLIBC_2.17"
#else
#error "libzone knows x86-64 and aarch64"
#endif
#if !defined(__GLIBC__)
#error "libzone needs glibc: there is no NVIDIA driver for other C libraries"
#endif

__asm__(".symver dlopen,dlopen@" ZONE_GLIBC_BASE);
__asm__(".symver dlvsym,dlvsym@" ZONE_GLIBC_BASE);
__asm__(".symver dlerror,dlerror@" ZONE_GLIBC_BASE);
/* fcntl got a new version in 2.28, under either name that the file offset size chooses. */
__asm__(".symver fcntl,fcntl@" ZONE_GLIBC_BASE);
__asm__(".symver fcntl64,fcntl@" ZONE_GLIBC_BASE);
