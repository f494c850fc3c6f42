/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_look [deepbind LIBRARY]: opens the driver as libcudart does, takes cuMemAlloc_v2 and
 * cuInit from it by dlsym and by cuGetProcAddress_v2, and prints the file that each pointer lies
 * in. With "deepbind" the look-ups are made by a library opened with RTLD_DEEPBIND, which binds to
 * libc's dlsym whatever is preloaded.
 */
#include "driver_look.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const unsigned *hook_count = NULL;

    if (argc == 3 && strcmp(argv[1], "deepbind") == 0) {
        void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        int (*look)(void) = NULL;

        if (library != NULL) {
            *(void **)&look = dlsym(library, "driver_look");
        }
        if (look == NULL) {
            printf("%s\n", dlerror());
            return 1;
        }
        return look();
    }
    if (driver_look() != 0) {
        return 1;
    }
    /* There if tail_hook.c is preloaded: did it see anything? */
    hook_count = dlsym(RTLD_DEFAULT, "tail_hook_count");
    if (hook_count != NULL) {
        printf("tail_hook %s\n", *hook_count > 0 ? "saw look-ups" : "saw nothing");
    }
    return 0;
}
