/* SPDX-License-Identifier: Apache-2.0
 *
 * See zone_api.h.
 */
#include "zone_api.h"

#include <dlfcn.h>
#include <string.h>

bool zone_api_load(struct zone_api *ret_api)
{
    unsigned found = 0;
    unsigned all = 0;
#define X(name)                                                                                    \
    {                                                                                              \
        void *at = dlsym(RTLD_DEFAULT, "zone_" #name);                                             \
        memcpy(&ret_api->name, &at, sizeof at);                                                    \
        found += at != NULL;                                                                       \
        all++;                                                                                     \
    }
    ZONE_API(X)
#undef X
    CHECK(found == (under_zone() ? all : 0), "%u of %u", found, all);
    return found > 0;
}

size_t zone_api_bytes(int (*call)(int device, size_t *ret_bytes), int device, int code)
{
    size_t bytes = 77;
    EXPECT(code, call(device, &bytes));
    EXPECT(code, call(device, NULL));
    CHECK(code == ZONE_OK || bytes == 0, "%zu bytes with code %d", bytes, code);
    return bytes;
}

void zone_api_all(const struct zone_api *api, int device, int code)
{
    CHECK(zone_api_bytes(api->memory_allocated, device, code) == 0);
    CHECK(zone_api_bytes(api->max_memory_allocated, device, code) == 0);
    CHECK(zone_api_bytes(api->memory_reserved, device, code) == 0);
    CHECK(zone_api_bytes(api->empty_cache, device, code) == 0);
    EXPECT(code, api->reset_peak_memory_stats(device));
    if (code != ZONE_ERROR_DEVICE) {
        EXPECT(code, api->set_allocator_settings(""));
        EXPECT(code, api->report());
    }
    CHECK(api->version() >= 100, "%d", api->version());
}
