/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules and launches. A module is PTX text; its entries are bound to the C functions of
 * kernels.c, and their parameter types say how to read the arguments of a launch.
 */
#include "sim.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 16

struct sim_function {
    char name[64];
    const struct sim_kernel *kernel;
    struct sim_module *module;
    unsigned params;
    unsigned char size[MAX_PARAMS];
    struct sim_function *next;
};

/* A variable of a module, at the start of its line: .visible .global [.attribute(.managed)] … */
struct variable {
    char name[64];
    CUdeviceptr address;
    size_t size;
    struct variable *next;
};

struct sim_module {
    struct sim_ctx *ctx;
    uintptr_t image; /* its first bytes on the device; its variables follow in the same chunk */
    size_t image_bytes;
    struct sim_function *functions;
    struct variable *variables;
};

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    return at;
}

/* Reads one `.entry name(.param .u64 a, …)`; NULL if the text is not of that form. */
static struct sim_function *parse_entry(const char *at)
{
    struct sim_function *function = sim_calloc(1, sizeof *function);
    at = skip_space(at);
    size_t length = strcspn(at, " \t\n(");
    if (length >= sizeof function->name) {
        free(function);
        return NULL;
    }
    memcpy(function->name, at, length);
    const char *end = strpbrk(at, "{;");
    while ((at = strstr(at, ".param")) && end && at < end && function->params < MAX_PARAMS) {
        const char *type = skip_space(at + strlen(".param"));
        bool wide = strncmp(type, ".u64", 4) == 0 || strncmp(type, ".b64", 4) == 0;
        function->size[function->params++] = wide ? 8 : 4;
        at = type;
    }
    function->kernel = sim_kernel_find(function->name);
    return function;
}

/* One 4-byte word; managed ones are host memory. */
static void add_variable(struct sim_module *module, const char *line, size_t length)
{
    const char *end = memchr(line, ';', length);
    const char *at = end;
    while (at && at > line && !isspace((unsigned char)at[-1])) {
        at--;
    }
    if (!at || (size_t)(end - at) >= sizeof(struct variable){0}.name) {
        return;
    }
    struct variable *variable = sim_calloc(1, sizeof *variable);
    bool managed = memmem(line, length, ".managed", 8) != NULL;
    memcpy(variable->name, at, (size_t)(end - at));
    variable->size = sizeof(uint32_t);
    if (sim_variable_alloc(module->ctx, module, variable->size, managed, &variable->address)) {
        variable->next = module->variables;
        module->variables = variable;
    } else {
        free(variable);
    }
}

static void add_variables(struct sim_module *module, const char *ptx)
{
    static const char start[] = ".visible .global";
    for (const char *line = ptx; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, start, sizeof start - 1) == 0) {
            add_variable(module, line, strcspn(line, "\n"));
        }
    }
}

static void free_variables(struct sim_module *module)
{
    struct variable *next;
    for (struct variable *variable = module->variables; variable; variable = next) {
        next = variable->next;
        struct sim_block *block = sim_block_from(variable->address);
        if (block) {
            sim_block_release(block);
        }
        free(variable);
    }
}

void sim_module_free(struct sim_module *module)
{
    free_variables(module);
    struct sim_function *next;
    for (struct sim_function *function = module->functions; function; function = next) {
        next = function->next;
        sim_handle_drop(function);
        free(function);
    }
    sim_heap_free(module->ctx->device, module, module->image, module->image_bytes);
    sim_handle_drop(module);
    free(module);
}

CUresult sim_module_load(struct sim_ctx *ctx, const char *ptx, CUmodule *ret_module)
{
    CUresult rc = sim_capture_check_unsafe();
    struct sim_module *module = sim_calloc(1, sizeof *module);
    if (rc == CUDA_SUCCESS) {
        rc = sim_heap_alloc(ctx->device, module, 1, false, &module->image, &module->image_bytes);
    }
    if (rc != CUDA_SUCCESS) {
        free(module);
    } else {
        module->ctx = ctx->owner;
        sim_handle_add(module, SIM_MODULE, ctx->owner);
        for (const char *at = ptx; (at = strstr(at, ".entry")); at++) {
            struct sim_function *function = parse_entry(at + strlen(".entry"));
            if (function) {
                function->module = module;
                function->next = module->functions;
                module->functions = function;
                sim_handle_add(function, SIM_FUNCTION, NULL);
            }
        }
        add_variables(module, ptx);
        *ret_module = (CUmodule)module;
    }
    return rc;
}

bool sim_is_ptx(const void *image)
{
    return strncmp(image, "//", 2) == 0 || strncmp(image, ".version", 8) == 0;
}

CUresult sim_cuModuleLoadData(CUmodule *module, const void *image)
{
    struct sim_ctx *ctx;
    if (!module || !image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!sim_is_ptx(image)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    CUresult rc = sim_begin(&ctx);
    if (rc == CUDA_SUCCESS) {
        rc = sim_module_load(ctx, image, module);
        sim_unlock();
    }
    return rc;
}

/* A real one is a container of machine code, which nothing here could run: text all the same. */
CUresult sim_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return sim_cuModuleLoadData(module, fatCubin);
}

CUresult sim_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                                CUjit_option *options, void **optionValues)
{
    (void)numOptions;
    (void)options;
    (void)optionValues;
    return sim_cuModuleLoadData(module, image);
}

char *sim_read_text(const char *path)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    char *text = NULL;
    size_t room = 0;
    if (!file) {
        return NULL;
    }
    if (getdelim(&text, &room, '\0', file) <= 0) {
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

CUresult sim_cuModuleLoad(CUmodule *module, const char *fname)
{
    char *text = sim_read_text(fname);
    CUresult rc = text ? sim_cuModuleLoadData(module, text) : CUDA_ERROR_FILE_NOT_FOUND;
    free(text);
    return rc;
}

CUresult sim_cuModuleUnload(CUmodule hmod)
{
    struct sim_ctx *ctx;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (sim_handle_is(hmod, SIM_MODULE)) {
        sim_module_free((struct sim_module *)hmod);
    } else {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    if (!hfunc || !name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_is(hmod, SIM_MODULE)) {
        struct sim_function *function = ((struct sim_module *)hmod)->functions;
        while (function && strcmp(function->name, name) != 0) {
            function = function->next;
        }
        rc = function && function->kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
        if (rc == CUDA_SUCCESS) {
            *hfunc = (CUfunction)function;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    if (!name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    sim_lock();
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_is(hmod, SIM_MODULE)) {
        const struct variable *variable = ((struct sim_module *)hmod)->variables;
        while (variable && strcmp(variable->name, name) != 0) {
            variable = variable->next;
        }
        rc = variable ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
        if (variable && dptr) {
            *dptr = variable->address;
        }
        if (variable && bytes) {
            *bytes = variable->size;
        }
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    sim_lock();
    bool known = sim_handle_is(hfunc, SIM_FUNCTION);
    sim_unlock();
    if (!pi || !known) {
        return pi ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    }
    *pi = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

static CUresult run_launch(const struct sim_work *work, struct sim_ctx *ctx)
{
    return work->u.launch.kernel->run(ctx, work->u.launch.args);
}

/* The arguments as one buffer, each at the alignment of its size. */
static CUresult unpack(const struct sim_function *function, void **extra, uint64_t *args)
{
    const unsigned char *buffer = NULL;
    size_t bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *(const size_t *)extra[i + 1];
        }
    }
    size_t at = 0;
    for (unsigned i = 0; i < function->params; i++) {
        at = (at + function->size[i] - 1) & ~((size_t)function->size[i] - 1);
        if (!buffer || at + function->size[i] > bytes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        memcpy(&args[i], buffer + at, function->size[i]);
        at += function->size[i];
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction handle, const unsigned *grid, const unsigned *block,
                       CUstream stream, void **params, void **extra)
{
    struct sim_ctx *ctx;
    const struct sim_function *function = (const struct sim_function *)handle;
    CUresult rc = sim_begin(&ctx);
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    if (!sim_handle_is(handle, SIM_FUNCTION) || function->module->ctx != ctx->owner) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    for (int i = 0; rc == CUDA_SUCCESS && i < 3; i++) {
        rc = grid[i] == 0 || block[i] == 0 || block[i] > 1024 ? CUDA_ERROR_INVALID_VALUE : rc;
    }
    struct sim_stream *target;
    rc = rc == CUDA_SUCCESS ? sim_stream_find(stream, ctx, &target) : rc;
    if (rc == CUDA_SUCCESS && target->ctx != ctx->owner) {
        rc = CUDA_ERROR_INVALID_HANDLE;
    }
    if (rc != CUDA_SUCCESS) {
        sim_unlock();
        return rc;
    }
    struct sim_work *work = sim_work_new(CU_GRAPH_NODE_TYPE_KERNEL, run_launch);
    work->u.launch.kernel = function->kernel;
    if (extra) {
        rc = unpack(function, extra, work->u.launch.args);
    }
    for (unsigned i = 0; !extra && i < function->params; i++) {
        memcpy(&work->u.launch.args[i], params[i], function->size[i]);
    }
    if (rc == CUDA_SUCCESS) {
        rc = sim_submit(stream, work, NULL);
    } else {
        sim_work_unref(work);
    }
    sim_unlock();
    return rc;
}

CUresult sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                            unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                            unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                            void **kernelParams, void **extra)
{
    unsigned grid[] = {gridDimX, gridDimY, gridDimZ};
    unsigned block[] = {blockDimX, blockDimY, blockDimZ};
    (void)sharedMemBytes;
    return launch(f, grid, block, hStream, kernelParams, extra);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                              void **extra)
{
    if (!config) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return launch(f, grid, block, config->hStream, kernelParams, extra);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                       unsigned int gridDimZ, unsigned int blockDimX,
                                       unsigned int blockDimY, unsigned int blockDimZ,
                                       unsigned int sharedMemBytes, CUstream hStream,
                                       void **kernelParams)
{
    return sim_cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                              sharedMemBytes, hStream, kernelParams, NULL);
}
