/* SPDX-License-Identifier: Apache-2.0
 *
 * See report.h. The report is our own JSON, so that a key is found by its text.
 */
#include "report.h"

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPORT_BYTES = 1 << 16 };

/* The number after "key": in the object of sums; of a gauge, its part. */
static uint64_t number(const char *total, const char *key, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\"", key);
    const char *at = strstr(total, name);
    if (at && part) {
        snprintf(name, sizeof name, "\"%s\"", part);
        at = strstr(at, name);
    }
    at = at ? strchr(at, ':') : NULL;
    return at ? strtoull(at + 1, NULL, 10) : UINT64_MAX;
}

static bool is_equal(const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected) {
        fprintf(stderr, "stress: the report says %s = %llu, not %llu\n", what,
                (unsigned long long)got, (unsigned long long)expected);
    }
    return got == expected;
}

bool report_is_right(int fd, const struct round_result *result, const struct plan *plan)
{
    char text[REPORT_BYTES];
    ssize_t bytes = pread(fd, text, sizeof text - 1, 0);
    if (bytes <= 0) {
        if (result->reports) {
            fprintf(stderr, "stress: there is no report\n");
        }
        return !result->reports;
    }
    text[bytes] = '\0';
    const char *total = strstr(text, "\"total\"");
    if (!total || text[bytes - 1] != '\n') {
        fprintf(stderr, "stress: the report is not complete\n");
        return false;
    }
    if (!result->tidy) {
        return true;
    }
    /* Blocks had while a capture hid the context, or without a context, are the driver's. */
    uint64_t counted = number(total, "allocation", "allocated");
    uint64_t passed = number(total, "bypass_capture", NULL) +
                      number(total, "bypass_no_context", NULL) +
                      number(total, "bypass_async", NULL);
    /* A pool whose questions to the driver fail does not learn of a block. */
    passed += plan->inject ? result->allocs : 0;
    if (counted > result->allocs || counted + passed < result->allocs) {
        fprintf(stderr, "stress: the report counts %llu allocations, %llu past the pool, of %llu\n",
                (unsigned long long)counted, (unsigned long long)passed,
                (unsigned long long)result->allocs);
        return false;
    }
    return is_equal("allocated_bytes", number(total, "allocated_bytes", "current"), 0) &&
           is_equal("requested_bytes", number(total, "requested_bytes", "current"), 0) &&
           is_equal("allocation", number(total, "allocation", "current"), 0) &&
           is_equal("fault_code", number(total, "fault_code", NULL),
                    result->faults ? CUDA_ERROR_ILLEGAL_ADDRESS : 0);
}
