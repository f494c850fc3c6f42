/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program gets its functions in one of the ways that there are: linked, from the runtime,
 * by dlsym on a handle, by either version of cuGetProcAddress, from a runtime that is loaded and
 * unloaded again and again. Whichever way, all its calls are served. Usage: resolve_ways [WAY].
 */
#include "tools.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS = 20, LOADS = 5 };

typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);
typedef CUresult (*resolve_fn)(const char *, void **, int, cuuint64_t);
typedef cudaError_t (*runtime_alloc_fn)(void **, size_t);
typedef cudaError_t (*runtime_free_fn)(void *);
typedef CUresult (*resolve2_fn)(const char *, void **, int, cuuint64_t, void *);

static char *self;

/* ISO C has no conversion from data to function pointers; POSIX wants this one to work. */
#define FUNCTION(type, data)                                                                       \
    ((union {                                                                                      \
         void *in;                                                                                 \
         type out;                                                                                 \
     }){.in = (data)}                                                                              \
         .out)

static void pairs(alloc_fn alloc, free_fn release, int count)
{
    for (int i = 0; i < count; i++) {
        CUdeviceptr ptr;
        OK(alloc(&ptr, 4096));
        OK(release(ptr));
    }
}

static void linked(void)
{
    pairs(cuMemAlloc, cuMemFree, PAIRS);
}

static void runtime(void)
{
    for (int i = 0; i < PAIRS; i++) {
        void *ptr;
        OK(cudaMalloc(&ptr, 4096));
        OK(cudaFree(ptr));
    }
}

static void by_handle(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *other = dlopen("libcuda.so.1", RTLD_LAZY);
    CHECK(handle && other);
    pairs(FUNCTION(alloc_fn, dlsym(handle, "cuMemAlloc_v2")),
          FUNCTION(free_fn, dlsym(other, "cuMemFree_v2")), PAIRS);
}

static void by_default(void)
{
    pairs(FUNCTION(alloc_fn, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")),
          FUNCTION(free_fn, dlsym(RTLD_DEFAULT, "cuMemFree_v2")), PAIRS);
}

static void by_first_resolver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    resolve_fn resolve = FUNCTION(resolve_fn, dlsym(handle, "cuGetProcAddress"));
    void *alloc = NULL;
    void *release = NULL;
    OK(resolve("cuMemAlloc", &alloc, 3020, 0));
    OK(resolve("cuMemFree", &release, 3020, 0));
    pairs(FUNCTION(alloc_fn, alloc), FUNCTION(free_fn, release), PAIRS);
}

/* The resolver is asked for itself first, as the runtime does. */
static void by_second_resolver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    void *itself = dlsym(handle, "cuGetProcAddress_v2");
    void *alloc = NULL;
    void *release = NULL;
    OK(FUNCTION(resolve2_fn, itself)("cuGetProcAddress", &itself, 12000, 0, NULL));
    resolve2_fn resolve = FUNCTION(resolve2_fn, itself);
    OK(resolve("cuMemAlloc", &alloc, 13000, 0, NULL));
    OK(resolve("cuMemFree", &release, 13000, 2, NULL));
    pairs(FUNCTION(alloc_fn, alloc), FUNCTION(free_fn, release), PAIRS);
}

static void reloaded(void)
{
    for (int i = 0; i < LOADS; i++) {
        void *handle = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
        CHECK(handle, "%s", dlerror());
        void *alloc = dlsym(handle, "cudaMalloc");
        void *release = dlsym(handle, "cudaFree");
        for (int pair = 0; pair < PAIRS / LOADS; pair++) {
            void *ptr;
            OK(FUNCTION(runtime_alloc_fn, alloc)(&ptr, 4096));
            OK(FUNCTION(runtime_free_fn, release)(ptr));
        }
        OK(dlclose(handle));
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} ways[] = {
    {"linked", linked},
    {"runtime", runtime},
    {"handle", by_handle},
    {"default", by_default},
    {"cuGetProcAddress", by_first_resolver},
    {"cuGetProcAddress_v2", by_second_resolver},
    {"reloaded", reloaded},
};

/* Runs one way in a process of its own and finds its pairs in the report. */
static void check(size_t way)
{
    char path[64];
    char text[2048] = "";
    int status = -1;
    snprintf(path, sizeof path, "/tmp/victim-ways-%d.json", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        setenv("ZONE_REPORT", path, 1);
        execl(self, self, ways[way].name, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "%s: %x", ways[way].name,
          (unsigned)status);
    FILE *file = fopen(path, "r");
    CHECK((file != NULL) == pooled(), "%s: report", ways[way].name);
    if (file) {
        CHECK(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        unlink(path);
        CHECK(strstr(text, "\"allocated\":20,\"freed\":20}"), "%s: %s", ways[way].name, text);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (argc == 1) {
            check(i);
        } else if (strcmp(argv[1], ways[i].name) == 0) {
            victim_start();
            ways[i].run();
        }
    }
    return 0;
}
