/* SPDX-License-Identifier: Apache-2.0
 *
 * Which streams capture. A context event or a context-wide wait while any stream of the context
 * captures kills that capture (facts.md), so the program's begins and our records are kept apart:
 * records are readers, a begin is a writer that waits for the records under way, which never block
 * for long.
 */
#pragma once

#include "base.h"

/* Does anything capture, or is about to? Takes no lock. */
bool zone_capture_is_begun(void);

/* Before a record or context-wide wait of ours: false while anything captures; then do
 * not call. Else pair with zone_capture_leave. Takes no lock. */
bool zone_capture_enter(void);
void zone_capture_leave(void);

/* Does any stream of the process capture, as far as the driver knows too? One load if none ever
 * began. */
bool zone_capture_is_active(void);

/* Was a way to begin a capture resolved that libzone does not know? Then nothing may be pooled any
 * more. */
bool zone_capture_is_unknown(void);

/* The program resolved this driver name to a function that is not substituted. */
void zone_capture_resolved(const char *name);

/* The context is being destroyed: its captures end with it. NULL: every context. */
void zone_capture_forget(const void *ctx);
