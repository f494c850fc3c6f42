/* SPDX-License-Identifier: Apache-2.0
 *
 * pool_program.c with the bytes of an input as its choices: the first is the number of the
 * settings, the program ends where the input does. Check's failures end the process; the program
 * runs outside of Check, so what Check's macros call is here.
 */
#include "pool_fixture.h"
#include "pool_program.h"
#include "target.h"

#include <stdarg.h>

struct source {
    const uint8_t *data;
    size_t left;
};

static unsigned below(void *arg, unsigned n)
{
    struct source *source = arg;
    if (source->left == 0) {
        return 0;
    }
    source->left--;
    return *source->data++ % n;
}

static bool more(void *arg)
{
    const struct source *source = arg;
    return source->left > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source source = {data, size};
    unsigned conf = below(&source, 256);
    pool_setup();
    pool_program_run(&(struct pool_choices){below, more, &source}, conf);
    pool_teardown();
    return 0;
}

/* Check's own names. */
void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    va_list args;
    va_start(args, msg);
    fprintf(stderr, "%s:%d: %s ", file, line, expr);
    if (msg) {
        vfprintf(stderr, msg, args);
    }
    fputc('\n', stderr);
    va_end(args);
    abort();
}

void _mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}
