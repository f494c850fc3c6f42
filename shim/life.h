/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the process, as libzone sees it:
 *
 *   IDLE --first allocation in a context--> ON --fork--> OFF, in the child
 *     |                                      `--exit---> report; nothing is freed
 *     `--ZONE_DISABLE-----------------------> IDLE for good
 *
 * IDLE: no file, lock, allocation or line. OFF: every hook goes to the driver, which answers as it
 * does in a forked child. The state lies in a page that the kernel wipes on fork, so that a child
 * made by clone is OFF too.
 */
#pragma once

#include "pool.h"

struct zone_life_page {
    bool on;
};

extern struct zone_life_page *_Atomic zone_life_page;

/* Whether this thread is in the middle of an allocation or a free. A signal handler that calls
 * exit() then runs our exit handler under whatever locks the interrupted call holds, ours or the
 * driver's. */
extern _Thread_local volatile bool zone_life_inside;

/* Whether libzone serves in this process. Costs two loads. */
static inline bool zone_life_is_on(void)
{
    const struct zone_life_page *page = atomic_load_explicit(&zone_life_page, memory_order_acquire);
    return page && page->on;
}

/* Whether this process was forked from one in which libzone served. */
static inline bool zone_life_is_child(void)
{
    const struct zone_life_page *page = atomic_load_explicit(&zone_life_page, memory_order_acquire);
    return page && !page->on;
}

/* ZONE_DISABLE is set, to anything but 0 or nothing. Takes no lock, prints nothing. */
bool zone_life_is_disabled(void);

/* At an allocation: turns IDLE into ON, which reads the configuration, prints what is wrong with it
 * and registers the exit handler. True if the process is ON afterwards. Exits the process with 78
 * if the configuration has errors and asks for that. Calls the driver only through later users. */
bool zone_life_start(void);

/* Applies a text of settings that a program changes while it runs, or before its first allocation,
 * and says what is wrong with it. Returns the number of problems. Not for a forked child. */
int zone_life_adjust(const char *text);

/* What all pools share. Valid once the process was ON. */
struct zone_process *zone_life_process(void);

/* When the library is loaded: is there a standard error? */
void zone_life_look(void);
bool zone_life_has_stderr(void);

/* Writes one line that begins `zone[PID] ` to the standard error of the start; before that, to that
 * of now. */
void zone_life_say(const char *line);

/* Writes all of it, or -1. The program must not die of a pipe that nobody reads, or of its limit on
 * the size of files, where it wrote nothing itself. */
int zone_life_write(int fd, const char *text, size_t bytes);

/* The descriptor kept for the report, or -1 if it is no longer what it was. */
int zone_life_stderr(void);
