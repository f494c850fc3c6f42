/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_look LIBRARY [deepbind]: opens driver_look_lib.c's library and has it look around. Opened
 * with RTLD_DEEPBIND it is bound to libc's dlsym, whatever is preloaded. It must not be linked to
 * this program: a library that is there already is not bound again.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int flags = RTLD_NOW | RTLD_LOCAL;
    void *library = NULL;
    int (*look)(void) = NULL;
    const unsigned *hook_count = NULL;

    if (argc == 3 && strcmp(argv[2], "deepbind") == 0) {
        flags |= RTLD_DEEPBIND;
    } else if (argc != 2) {
        printf("usage: driver_look LIBRARY [deepbind]\n");
        return 2;
    }
    library = dlopen(argv[1], flags);
    if (library != NULL) {
        *(void **)&look = dlsym(library, "driver_look");
    }
    if (look == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (look() != 0) {
        return 1;
    }
    /* There if tail_hook.c is preloaded: did it see anything? */
    hook_count = dlsym(RTLD_DEFAULT, "tail_hook_count");
    if (hook_count != NULL) {
        printf("tail_hook saw %s\n", *hook_count > 0 ? "look-ups" : "nothing");
    }
    return 0;
}
