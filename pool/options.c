/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table, the defaults, and the size classes that roundup_power2_divisions makes. Reading
 * a text is in options_parse.c, writing values in options_show.c. No state, no locking, no driver.
 */
#include "options_parse.h"

#include <string.h>

static const struct zone_option_info option_table[] = {
#define ZONE_OPTION(k, t, d, low, high, from, state, text, why)                                    \
    {.key = #k,                                                                                    \
     .type = ZONE_OPTION_##t,                                                                      \
     .origin = ZONE_OPTION_##from,                                                                 \
     .status = ZONE_OPTION_##state,                                                                \
     .default_value = (d),                                                                         \
     .min = (low),                                                                                 \
     .max = (high),                                                                                \
     .doc = (text),                                                                                \
     .reason = (why),                                                                              \
     .offset = offsetof(struct zone_options, k)},
#include "options.def"
};

/* PyTorch reads the ROCm names too, on every platform. */
static const struct {
    const char *alias;
    enum zone_option_id id;
} option_aliases[] = {
    {"release_lock_on_hipmalloc", ZONE_OPTION_ID_release_lock_on_cudamalloc},
    {"pinned_use_hip_host_register", ZONE_OPTION_ID_pinned_use_cuda_host_register},
};

const struct zone_option_info *zone_options_info(unsigned index)
{
    return index < ZONE_OPTION_COUNT ? &option_table[index] : NULL;
}

const struct zone_option_info *zone_option_find(const char *key)
{
    for (unsigned i = 0; i < ZONE_OPTION_COUNT; i++) {
        if (strcmp(option_table[i].key, key) == 0) {
            return &option_table[i];
        }
    }
    for (size_t i = 0; i < sizeof(option_aliases) / sizeof(option_aliases[0]); i++) {
        if (strcmp(option_aliases[i].alias, key) == 0) {
            return &option_table[option_aliases[i].id];
        }
    }
    return NULL;
}

uint64_t zone_option_min(const struct zone_options *opt, const struct zone_option_info *info)
{
    unsigned id = zone_option_id(info);
    if (id == ZONE_OPTION_ID_max_split_size_mb || id == ZONE_OPTION_ID_max_non_split_rounding_mb) {
        return opt->large_segment_size_mb;
    }
    return info->min;
}

void zone_option_store(struct zone_options *opt, const struct zone_option_info *info,
                       const struct zone_option_value *value)
{
    void *field = (char *)opt + info->offset;
    switch (info->type) {
    case ZONE_OPTION_BOOL:
    case ZONE_OPTION_ANY:
        *(bool *)field = value->number != 0;
        break;
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER:
        *(uint32_t *)field = (uint32_t)value->number;
        break;
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
    case ZONE_OPTION_MS:
    case ZONE_OPTION_POWER_OF_2:
    case ZONE_OPTION_FRACTION:
        *(uint64_t *)field = value->number;
        break;
    case ZONE_OPTION_MB_BY_DEVICE:
        *(struct zone_options_by_device *)field = value->by_device;
        break;
    case ZONE_OPTION_ROUNDUP:
        *(struct zone_options_roundup *)field = value->roundup;
        opt->rounds = false;
        for (unsigned i = 0; i < ZONE_OPTIONS_SLOTS; i++) {
            opt->rounds |= value->roundup.divisions[i] > 1;
        }
        break;
    }
}

void zone_option_load(const struct zone_options *opt, const struct zone_option_info *info,
                      struct zone_option_value *ret_value)
{
    const void *field = (const char *)opt + info->offset;
    memset(ret_value, 0, sizeof(*ret_value));
    switch (info->type) {
    case ZONE_OPTION_BOOL:
    case ZONE_OPTION_ANY:
        ret_value->number = *(const bool *)field;
        break;
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER:
        ret_value->number = *(const uint32_t *)field;
        break;
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
    case ZONE_OPTION_MS:
    case ZONE_OPTION_POWER_OF_2:
    case ZONE_OPTION_FRACTION:
        ret_value->number = *(const uint64_t *)field;
        break;
    case ZONE_OPTION_MB_BY_DEVICE:
        ret_value->by_device = *(const struct zone_options_by_device *)field;
        break;
    case ZONE_OPTION_ROUNDUP:
        ret_value->roundup = *(const struct zone_options_roundup *)field;
        break;
    }
}

static void default_of(const struct zone_option_info *info, struct zone_option_value *ret_value)
{
    memset(ret_value, 0, sizeof(*ret_value));
    switch (info->type) {
    case ZONE_OPTION_MB_BY_DEVICE:
        for (unsigned i = 0; i < ZONE_OPTIONS_DEVICES; i++) {
            ret_value->by_device.mb[i] = info->default_value;
        }
        break;
    case ZONE_OPTION_ROUNDUP:
        for (unsigned i = 0; i < ZONE_OPTIONS_SLOTS; i++) {
            ret_value->roundup.divisions[i] = info->default_value;
        }
        break;
    case ZONE_OPTION_BOOL:
    case ZONE_OPTION_BACKEND:
    case ZONE_OPTION_FREE_ORDER:
    case ZONE_OPTION_MB:
    case ZONE_OPTION_MB_OR_AUTO:
    case ZONE_OPTION_MB_OR_UNLIMITED:
    case ZONE_OPTION_MS:
    case ZONE_OPTION_POWER_OF_2:
    case ZONE_OPTION_FRACTION:
    case ZONE_OPTION_ANY:
        ret_value->number = info->default_value;
        break;
    }
}

bool zone_option_is(const struct zone_options *opt, const struct zone_option_info *info,
                    const struct zone_option_value *value)
{
    struct zone_option_value now;
    zone_option_load(opt, info, &now);
    return now.number == value->number &&
           memcmp(&now.by_device, &value->by_device, sizeof(now.by_device)) == 0 &&
           memcmp(&now.roundup, &value->roundup, sizeof(now.roundup)) == 0;
}

bool zone_option_is_default(const struct zone_options *opt, const struct zone_option_info *info)
{
    struct zone_option_value standard;
    default_of(info, &standard);
    return zone_option_is(opt, info, &standard);
}

/* All LIVE options are numbers of 64 bits; a test holds the table to it. */
void zone_options_take(struct zone_options *opt, const struct zone_options *from, uint64_t keys)
{
    for (unsigned i = 0; i < ZONE_OPTION_COUNT; i++) {
        const struct zone_option_info *info = &option_table[i];
        if (info->status == ZONE_OPTION_LIVE && (keys >> i & 1)) {
            const uint64_t *source = (const void *)((const char *)from + info->offset);
            uint64_t *field = (void *)((char *)opt + info->offset);
            __atomic_store_n(field, *source, __ATOMIC_RELAXED);
            opt->given |= UINT64_C(1) << i;
        }
    }
}

void zone_options_init(struct zone_options *opt)
{
    memset(opt, 0, sizeof(*opt));
    for (unsigned i = 0; i < ZONE_OPTION_COUNT; i++) {
        struct zone_option_value value;
        default_of(&option_table[i], &value);
        zone_option_store(opt, &option_table[i], &value);
    }
}

size_t zone_options_roundup_divisions(const struct zone_options *opt, size_t bytes)
{
    if (bytes < 512) {
        return bytes; /* the smallest class anyway, and 0 has no highest bit */
    }
    unsigned log2 = 63 - (unsigned)__builtin_clzll(bytes);
    unsigned slot = log2 < 20 ? 0 : log2 - 20;
    if (slot >= ZONE_OPTIONS_SLOTS) {
        slot = ZONE_OPTIONS_SLOTS - 1;
    }
    uint64_t divisions = opt->roundup_power2_divisions.divisions[slot];
    /* Sizes up to 512 bytes a step stay as they are. As a quotient, since the product may overflow.
     */
    if (divisions <= 1 || bytes / 512 < divisions) {
        return bytes;
    }
    /* Near SIZE_MAX this wraps to 0, as the caller's rounding does. */
    size_t step = ((size_t)1 << log2) / divisions;
    return (bytes + step - 1) & ~(step - 1);
}
