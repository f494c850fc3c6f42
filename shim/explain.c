/* SPDX-License-Identifier: Apache-2.0
 *
 * See explain.h. The two lines are written with one call, and not at all if that could block: the
 * program is in the middle of an allocation, and whoever reads its standard error may be waiting
 * for it. The facts are kept for the report either way.
 */
#include "explain.h"

#include "context.h"
#include "life.h"
#include "neighbours.h"
#include "tally.h"
#include "text.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static _Atomic bool explaining;
static struct zone_oom facts[2]; /* whoever is explaining writes the one that is not the last */
static const struct zone_oom *_Atomic last_facts;

static void explain_append(char *text, size_t size,
                           void (*line)(const struct zone_oom *oom, char *ret_text, size_t size),
                           const struct zone_oom *oom)
{
    char words[ZONE_OOM_LINE];
    line(oom, words, sizeof(words));
    zone_text_append(text, size, "zone[%d] %s\n", (int)getpid(), words);
}

static void explain_write(const struct zone_oom *oom)
{
    char text[2 * ZONE_OOM_LINE + 64] = "";
    struct pollfd to = {.fd = zone_life_stderr(), .events = POLLOUT};
    if (to.fd < 0 || poll(&to, 1, 0) != 1 || !(to.revents & POLLOUT)) {
        return;
    }
    explain_append(text, sizeof(text), zone_oom_numbers, oom);
    explain_append(text, sizeof(text), zone_oom_meaning, oom);
    zone_life_write(to.fd, text, strlen(text));
}

void zone_explain(const struct zone_oom *oom)
{
    int error = errno;
    if (!atomic_exchange(&explaining, true)) {
        const struct zone_oom *last = atomic_load(&last_facts);
        struct zone_oom *mine = &facts[last == &facts[0] ? 1 : 0];
        *mine = *oom;
        mine->explained = last ? last->explained + 1 : 1;
        zone_neighbours_look(mine);
        atomic_store(&last_facts, mine);
        explain_write(mine);
        atomic_store(&explaining, false);
    }
    errno = error;
}

void zone_explain_first(const struct zone_driver *driver, CUcontext ctx, size_t req_bytes)
{
    struct zone_oom oom = {.requested = req_bytes, .bytes = req_bytes};
    ZONE_TALLY(ooms);
    if (ZONE_REAL(driver, cuCtxGetDevice)(&oom.device) == CUDA_SUCCESS) {
        zone_context_see_device(oom.device);
        zone_refuse(zone_life_process(), ctx, &oom);
    }
}

const struct zone_oom *zone_explain_last(void)
{
    return atomic_load(&last_facts);
}
