/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_look LIBRARY [deepbind | namespace | again | beside DRIVER]: opens driver_look_lib.c's
 * library and has it look around. Opened with RTLD_DEEPBIND or in a namespace of its own it is
 * bound to libc's dlsym, whatever is preloaded. It must not be linked to this program: a library
 * that is there already is not bound again. `again` opens and closes it several times, `beside` has
 * opened another driver before.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { TIMES = 4 };

static int look_in(void *library)
{
    int (*look)(void) = NULL;
    int rc = 0;

    if (library != NULL) {
        *(void **)&look = dlsym(library, "driver_look");
    }
    if (look == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    rc = look();
    dlclose(library);
    return rc;
}

static int is(const char *word, const char *mode)
{
    return strcmp(word, mode) == 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[2] : "";
    int flags = RTLD_NOW | RTLD_LOCAL;
    int rc = 0;
    const unsigned *hook_count = NULL;

    if (argc < 2 || argc > 4) {
        printf("usage: driver_look LIBRARY [deepbind | namespace | again | beside DRIVER]\n");
        return 2;
    }
    if (is(mode, "deepbind")) {
        flags |= RTLD_DEEPBIND;
    } else if (is(mode, "beside") && dlopen(argv[3], RTLD_NOW | RTLD_LOCAL) == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    for (int i = 0; i < (is(mode, "again") ? TIMES : 1) && rc == 0; i++) {
        rc = look_in(is(mode, "namespace") ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW)
                                           : dlopen(argv[1], flags));
    }
    if (rc != 0) {
        return rc;
    }
    /* There if tail_hook.c is preloaded: did it see anything? */
    hook_count = dlsym(RTLD_DEFAULT, "tail_hook_count");
    if (hook_count != NULL) {
        printf("tail_hook saw %s\n", *hook_count > 0 ? "look-ups" : "nothing");
    }
    return 0;
}
