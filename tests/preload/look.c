/* SPDX-License-Identifier: Apache-2.0
 *
 * The library of look.h. The answers to RTLD_NEXT and RTLD_DEFAULT depend on who asks: glibc takes
 * the return address of the call. A hook that calls dlsym instead of jumping to it changes them.
 */
#include "look.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#define OLDEST_GLIBC "GLIBC_2.2.5"
#else
#define OLDEST_GLIBC "GLIBC_2.17"
#endif

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* The file and the offset in it, the same in every run, unlike addresses. */
static void print_answer(const char *who, const char *how, const char *name, const void *address)
{
    const char *error = dlerror();
    Dl_info info;

    printf("%s %s %s: ", who, how, name);
    if (address == NULL) {
        printf("none (%s)\n", error != NULL ? error : "no error");
    } else if (dladdr(address, &info) == 0) {
        printf("outside every file\n");
    } else {
        printf("%s+0x%zx\n", base_name(info.dli_fname),
               (size_t)((const char *)address - (const char *)info.dli_fbase));
    }
}

/* In the program's place if it defines the function itself: not for RTLD_NEXT to find. */
const char *look_in_both(void)
{
    return "library";
}

/* Names that a careless hook mistakes for the driver's, and plain ones; cu + capital letter names
 * are the hook's business only with a real handle. */
static const char *const names[] = {
    "look_in_both",
    "look_only_in_dependency",
    "look_around",
    "malloc",
    "puts",
    "cublasCreate_v2",
    "curl_easy_init",
    "cudnnCreate",
    "custom_function",
    "cuserid",
    "no_such_name",
    "",
};

void look_around(const char *who)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *self = dlopen(NULL, RTLD_LAZY);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        dlerror();
        print_answer(who, "next", names[i], dlsym(RTLD_NEXT, names[i]));
        print_answer(who, "default", names[i], dlsym(RTLD_DEFAULT, names[i]));
        print_answer(who, "libc", names[i], dlsym(libc, names[i]));
        print_answer(who, "program", names[i], dlsym(self, names[i]));
    }
    print_answer(who, "dlvsym", "puts", dlvsym(RTLD_DEFAULT, "puts", OLDEST_GLIBC));
    /* The second time, the error of the first look-up must be gone, and this one's be there. */
    print_answer(who, "dlerror", "gone", (dlsym(libc, "absent"), dlerror(), NULL));
    /* A driver function that nobody has here: a plain miss in libc, whoever wraps the name. */
    print_answer(who, "libc", "cuMemAlloc_v2", dlsym(libc, "cuMemAlloc_v2"));
    /* The call is what makes the dependency one. */
    printf("%s calls %s\n", who, look_only_in_dependency());
    dlclose(self);
    dlclose(libc);
}
