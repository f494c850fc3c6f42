/* SPDX-License-Identifier: Apache-2.0
 *
 * What each fuzz_*.c is to its driver: libFuzzer, or replay.c where that is missing. A target runs
 * one input and ends the process by FUZZ_CHECK when something that must always hold does not.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's own name. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition, ...)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a C string of exactly its size, so that a read past its end is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) {
        abort();
    }
    for (size_t i = 0; i < size; i++) {
        text[i] = (char)data[i];
    }
    text[size] = '\0';
    return text;
}

/* A message: one line that a terminal shows as it is. */
static inline void fuzz_check_line(const char *line)
{
    FUZZ_CHECK(line[0] != '\0', "an empty message");
    for (const char *c = line; *c != '\0'; c++) {
        FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f, "byte %#x in \"%s\"",
                   (unsigned)(unsigned char)*c, line);
    }
}
