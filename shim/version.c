/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program can look up to find out whether it runs under libzone.
 */
#include "zone_version.h"

__attribute__((visibility("default"))) const char *zone_version(void);

/* The version as text, valid for good; never calls the driver. */
const char *zone_version(void)
{
    return ZONE_VERSION;
}
