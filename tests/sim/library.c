/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries: PTX text that belongs to no context. A context gets a module of it when first asked,
 * and takes it along when it ends; a kernel is a name in a library until a context is known.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct loaded {
    unsigned long long ctx_id; /* contexts recur, their numbers do not */
    CUmodule module;
    struct loaded *next;
};

struct sim_library {
    char *text;
    struct loaded *loaded;
    struct sim_entry *entries;
};

/* A CUkernel. */
struct sim_entry {
    struct sim_library *library;
    char *name;
    struct sim_entry *next;
};

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(sim_calloc(1, bytes), text, bytes);
}

CUresult sim_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    (void)jitOptions;
    (void)jitOptionsValues;
    (void)numJitOptions;
    (void)libraryOptions;
    (void)libraryOptionValues;
    (void)numLibraryOptions;
    if (!library || !code) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_is_ptx(code)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    struct sim_library *made = sim_calloc(1, sizeof *made);
    made->text = copy_text(code);
    sim_lock();
    sim_handle_add(made, SIM_LIBRARY, NULL);
    sim_unlock();
    *library = (CUlibrary)made;
    return CUDA_SUCCESS;
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
                                   CUjit_option *jitOptions, void **jitOptionsValues,
                                   unsigned int numJitOptions, CUlibraryOption *libraryOptions,
                                   void **libraryOptionValues, unsigned int numLibraryOptions)
{
    char *text = sim_read_text(fileName);
    if (!text) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    CUresult rc = sim_cuLibraryLoadData(library, text, jitOptions, jitOptionsValues, numJitOptions,
                                        libraryOptions, libraryOptionValues, numLibraryOptions);
    free(text);
    return rc;
}

static CUmodule loaded_in(const struct sim_library *library, unsigned long long ctx_id)
{
    for (const struct loaded *loaded = library->loaded; loaded; loaded = loaded->next) {
        if (loaded->ctx_id == ctx_id) {
            return loaded->module;
        }
    }
    return NULL;
}

/* The module of the current context, loaded if it is not. */
CUresult sim_cuLibraryGetModule(CUmodule *pMod, CUlibrary handle)
{
    struct sim_ctx *ctx;
    struct sim_library *library = (struct sim_library *)handle;
    if (!pMod) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(library, SIM_LIBRARY)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUmodule module = loaded_in(library, ctx->owner->id);
    if (!module) {
        rc = sim_module_load(ctx, library->text, &module);
    }
    if (rc == CUDA_SUCCESS && !loaded_in(library, ctx->owner->id)) {
        struct loaded *loaded = sim_calloc(1, sizeof *loaded);
        loaded->ctx_id = ctx->owner->id;
        loaded->module = module;
        loaded->next = library->loaded;
        library->loaded = loaded;
    }
    sim_unlock();
    *pMod = rc == CUDA_SUCCESS ? module : *pMod;
    return rc;
}

static bool is_live(unsigned long long ctx_id)
{
    for (const struct sim_ctx *ctx = sim_ctx_first(); ctx; ctx = ctx->next) {
        if (ctx->id == ctx_id && ctx->alive) {
            return true;
        }
    }
    return false;
}

CUresult sim_cuLibraryUnload(CUlibrary handle)
{
    struct sim_library *library = (struct sim_library *)handle;
    sim_lock();
    if (!sim_handle_is(library, SIM_LIBRARY)) {
        sim_unlock();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    sim_handle_drop(library);
    for (struct loaded *loaded = library->loaded, *next; loaded; loaded = next) {
        next = loaded->next;
        if (is_live(loaded->ctx_id)) {
            sim_module_free((struct sim_module *)loaded->module);
        }
        free(loaded);
    }
    for (struct sim_entry *entry = library->entries, *next; entry; entry = next) {
        next = entry->next;
        sim_handle_drop(entry);
        free(entry->name);
        free(entry);
    }
    sim_unlock();
    free(library->text);
    free(library);
    return CUDA_SUCCESS;
}

static bool has_entry(const char *ptx, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = ptx; (at = strstr(at, ".entry "));) {
        at += strlen(".entry ");
        if (strncmp(at, name, length) == 0 && strchr(" (\n", at[length])) {
            return true;
        }
    }
    return false;
}

CUresult sim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary handle, const char *name)
{
    struct sim_library *library = (struct sim_library *)handle;
    if (!pKernel || !name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_is(library, SIM_LIBRARY)) {
        struct sim_entry *entry = library->entries;
        while (entry && strcmp(entry->name, name) != 0) {
            entry = entry->next;
        }
        if (!entry && has_entry(library->text, name)) {
            entry = sim_calloc(1, sizeof *entry);
            entry->library = library;
            entry->name = copy_text(name);
            entry->next = library->entries;
            library->entries = entry;
            sim_handle_add(entry, SIM_KERNEL, NULL);
        }
        rc = entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
        *pKernel = entry ? (CUkernel)entry : *pKernel;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    const struct sim_entry *entry = (const struct sim_entry *)kernel;
    CUmodule module;
    sim_lock();
    bool known = sim_handle_is(entry, SIM_KERNEL);
    sim_unlock();
    if (!known) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult rc = sim_cuLibraryGetModule(&module, (CUlibrary)entry->library);
    return rc == CUDA_SUCCESS ? sim_cuModuleGetFunction(pFunc, module, entry->name) : rc;
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                const char *name)
{
    CUmodule module;
    CUresult rc = sim_cuLibraryGetModule(&module, library);
    return rc == CUDA_SUCCESS ? sim_cuModuleGetGlobal_v2(dptr, bytes, module, name) : rc;
}

CUresult sim_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
                                 const char *name)
{
    CUdeviceptr found = 0;
    CUresult rc = sim_cuLibraryGetGlobal(&found, bytes, library, name);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    sim_lock();
    const struct sim_block *block = sim_block_at(found);
    rc = block && block->memory == SIM_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    sim_unlock();
    if (rc == CUDA_SUCCESS && dptr) {
        *dptr = found;
    }
    return rc;
}
