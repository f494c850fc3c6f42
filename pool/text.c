/* SPDX-License-Identifier: Apache-2.0
 *
 * Text into fixed buffers: see text.h. Whole numbers only, so that no locale's decimal comma and no
 * rounding of the C library comes in. No state, no locking, no driver.
 */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void zone_text_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length >= size - used && size >= 4) {
        memcpy(text + size - 4, "...", 4);
    }
}

/* value / unit, rounded to three significant digits or to a whole number. */
static void append_scaled(char *text, size_t size, uint64_t value, uint64_t unit, const char *name)
{
    uint64_t scale = 100;
    int decimals = 2;
    for (;;) {
        uint64_t scaled = (uint64_t)(((unsigned __int128)value * scale + unit / 2) / unit);
        if (decimals == 0) {
            zone_text_append(text, size, "%llu %s", (unsigned long long)scaled, name);
            return;
        }
        if (scaled < 1000) {
            zone_text_append(text, size, "%llu.%0*llu %s", (unsigned long long)(scaled / scale),
                             decimals, (unsigned long long)(scaled % scale), name);
            return;
        }
        scale /= 10;
        decimals--;
    }
}

void zone_text_bytes(char *text, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1000) {
        zone_text_append(text, size, "%llu B", (unsigned long long)bytes);
        return;
    }
    unsigned i = 0;
    uint64_t unit = ZONE_KIB;
    while (i + 1 < sizeof(units) / sizeof(units[0]) && bytes / unit >= 1000) {
        unit <<= 10;
        i++;
    }
    append_scaled(text, size, bytes, unit, units[i]);
}

void zone_text_ns(char *text, size_t size, uint64_t ns)
{
    static const char *const units[] = {"us", "ms", "s"};
    if (ns < 1000) {
        zone_text_append(text, size, "%llu ns", (unsigned long long)ns);
        return;
    }
    unsigned i = 0;
    uint64_t unit = 1000;
    while (i + 1 < sizeof(units) / sizeof(units[0]) && ns / unit >= 1000) {
        unit *= 1000;
        i++;
    }
    append_scaled(text, size, ns, unit, units[i]);
}

void zone_text_percent(char *text, size_t size, uint64_t part, uint64_t whole)
{
    uint64_t tenths = whole ? (uint64_t)((unsigned __int128)part * 1000 / whole) : 0;
    zone_text_append(text, size, "%llu.%llu %%", (unsigned long long)(tenths / 10),
                     (unsigned long long)(tenths % 10));
}
