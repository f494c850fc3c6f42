/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of tests/gpu share: a clock, quantiles, error checks and the one output form.
 * A measured value is printed as `name=value` on a line of its own; tests/gpu/harness reads those
 * lines and nothing else. No file here knows libzone: the same binary runs natively and under it.
 * Header only, usable from C and from nvcc's C++; the check macros need the header of the API used.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)

/* A failed call ends the program: a measurement after a failure would mean nothing. */
#define RT(call)                                                                                   \
    do {                                                                                           \
        cudaError_t rt_rc = (call);                                                                \
        if (rt_rc != cudaSuccess) {                                                                \
            printf("%s:%d: %s gave %d (%s)\n", __FILE__, __LINE__, #call, (int)rt_rc,              \
                   cudaGetErrorString(rt_rc));                                                     \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

#define CU(call)                                                                                   \
    do {                                                                                           \
        CUresult cu_rc = (call);                                                                   \
        if (cu_rc != CUDA_SUCCESS) {                                                               \
            printf("%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, (int)cu_rc);                  \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

static inline double now_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static inline int by_value(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts the values. */
static inline double quantile(double *values, size_t count, double share)
{
    qsort(values, count, sizeof(*values), by_value);
    size_t at = (size_t)(share * (double)count);
    return values[at < count ? at : count - 1];
}

static inline double median(double *values, size_t count)
{
    return quantile(values, count, 0.5);
}

static inline void put(const char *name, double value)
{
    printf("%s=%.9g\n", name, value);
    fflush(stdout);
}
