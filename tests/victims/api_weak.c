/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program that runs with and without libzone asks by weak names whether it is there, and
 * finds the same functions as dlsym.
 */
#define LIBZONE_WEAK
#include "zone_api.h"

int main(void)
{
    struct zone_api api;
    bool loaded = zone_api_load(&api);
#define X(name) CHECK(zone_##name == api.name, #name);
    ZONE_API(X)
#undef X
    CHECK(!loaded || zone_version() == api.version());
    return 0;
}
