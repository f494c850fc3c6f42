/* SPDX-License-Identifier: Apache-2.0
 *
 * look_main LIBRARY: makes look.c's look-ups from that library, opened with RTLD_LOCAL, and twice,
 * since a hook that remembers calls may answer the second one differently.
 */
#include "look.h"

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void (*look)(const char *who) = NULL;

    if (library == NULL) {
        printf("%s\n", argc == 2 ? dlerror() : "usage: look_main LIBRARY");
        return 1;
    }
    *(void **)&look = dlsym(library, "look_around");
    if (look == NULL) {
        printf("no look_around\n");
        return 1;
    }
    look("library");
    look("again");
    return 0;
}
