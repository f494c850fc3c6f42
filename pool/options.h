/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of one process: what ZONE_ALLOC_CONF said, read once. Afterwards only those marked
 * LIVE change, which the pools copy (zone_pool_bound) or read as atomics.
 * options.def holds a row per key; options.c fills the struct from a text; the pool reads its
 * fields. Nothing here allocates, reads the environment, depends on the locale or calls the driver.
 * Parsing is for one thread; reading needs no lock.
 */
#pragma once

#include "base.h"

/* Fields in MiB or ms may hold these instead of a number. */
#define ZONE_OPTIONS_UNLIMITED UINT64_MAX
#define ZONE_OPTIONS_AUTO      (UINT64_MAX - 1)
/* The most MiB whose bytes fit into 64 bits. */
#define ZONE_OPTIONS_MAX_MB (UINT64_MAX >> 20)
/* Fractions are whole numbers of parts per billion: no floating point, no decimal comma. */
#define ZONE_OPTIONS_ONE     1000000000
#define ZONE_OPTIONS_SLOTS   16
#define ZONE_OPTIONS_DEVICES 32
/* Room for any value or message text; longer ones are cut and end in "...". */
#define ZONE_OPTIONS_LINE 512

enum zone_backend {
    ZONE_BACKEND_NATIVE,
    ZONE_BACKEND_OFF,
    ZONE_BACKEND_CUDA_MALLOC_ASYNC, /* the pool, with memory of the driver's default pool */
};

enum zone_free_order {
    ZONE_FREE_ORDER_AUTO,
    ZONE_FREE_ORDER_EVENT,
    ZONE_FREE_ORDER_SYNC,
    ZONE_FREE_ORDER_UNSAFE,
};

/* Slot i is for sizes from 2^i MiB to below 2^(i+1) MiB, slot 0 also below, slot 15 also above. */
struct zone_options_roundup {
    uint64_t divisions[ZONE_OPTIONS_SLOTS];
};

struct zone_options_by_device {
    uint64_t mb[ZONE_OPTIONS_DEVICES];
};

/* How the type of a row is stored. */
#define ZONE_OPTION_STORE_BOOL            bool
#define ZONE_OPTION_STORE_BACKEND         uint32_t /* enum zone_backend */
#define ZONE_OPTION_STORE_FREE_ORDER      uint32_t /* enum zone_free_order */
#define ZONE_OPTION_STORE_MB              uint64_t
#define ZONE_OPTION_STORE_MB_OR_AUTO      uint64_t /* or ZONE_OPTIONS_AUTO */
#define ZONE_OPTION_STORE_MB_OR_UNLIMITED uint64_t /* or ZONE_OPTIONS_UNLIMITED */
#define ZONE_OPTION_STORE_MB_BY_DEVICE    struct zone_options_by_device
#define ZONE_OPTION_STORE_MS              uint64_t
#define ZONE_OPTION_STORE_POWER_OF_2      uint64_t
#define ZONE_OPTION_STORE_FRACTION        uint64_t /* of ZONE_OPTIONS_ONE */
#define ZONE_OPTION_STORE_ROUNDUP         struct zone_options_roundup
#define ZONE_OPTION_STORE_ANY             bool /* was a value given? */

enum zone_option_type {
    ZONE_OPTION_BOOL,
    ZONE_OPTION_BACKEND,
    ZONE_OPTION_FREE_ORDER,
    ZONE_OPTION_MB,
    ZONE_OPTION_MB_OR_AUTO,
    ZONE_OPTION_MB_OR_UNLIMITED,
    ZONE_OPTION_MB_BY_DEVICE,
    ZONE_OPTION_MS,
    ZONE_OPTION_POWER_OF_2,
    ZONE_OPTION_FRACTION,
    ZONE_OPTION_ROUNDUP,
    ZONE_OPTION_ANY,
};

enum zone_option_id {
#define ZONE_OPTION(key, ...) ZONE_OPTION_ID_##key,
#include "options.def"
    ZONE_OPTION_COUNT,
};

/* One field per key, named as the key. */
struct zone_options {
#define ZONE_OPTION(key, type, ...) ZONE_OPTION_STORE_##type key;
#include "options.def"
    uint64_t given; /* bit i: the text set option i to a valid value */
    bool rounds;    /* derived: some slot of roundup_power2_divisions is above 1 */
};

_Static_assert(ZONE_OPTION_COUNT <= 64, "struct zone_options.given has one bit per option");

enum zone_option_status { ZONE_OPTION_SERVED, ZONE_OPTION_LIVE, ZONE_OPTION_NO_EFFECT };
enum zone_option_origin { ZONE_OPTION_PYTORCH, ZONE_OPTION_OWN };

/* A row of the table, for whoever lists options. */
struct zone_option_info {
    const char *key;
    enum zone_option_type type;
    enum zone_option_origin origin;
    enum zone_option_status status;
    uint64_t default_value; /* of each entry, where the type has several */
    uint64_t min, max;      /* in the type's unit; meaningless for types without a number */
    const char *doc;
    const char *reason; /* why it has no effect; "" if served */
    size_t offset;      /* of the field in struct zone_options */
};

/* Called once per problem or note with one line, without a newline. */
typedef void (*zone_options_say_fn)(void *arg, const char *line);

/* The same with what the line is about, for tools. */
struct zone_options_message {
    bool problem;    /* false: a note, the value was accepted */
    const char *key; /* as written in the text, cut if long */
    size_t at;       /* offset in the text, from 0 */
    const char *line;
};
typedef void (*zone_options_message_fn)(void *arg, const struct zone_options_message *message);

/* Sets every option to its default. */
void zone_options_init(struct zone_options *opt);

/*
 * Applies `text` (NULL: nothing) to `opt`. `variable` is the name that messages begin with. A
 * problem concerns one key only: it keeps its value, and the rest of the text applies. Returns the
 * number of problems; notes do not count. `say` may be NULL.
 */
int zone_options_parse(struct zone_options *opt, const char *variable, const char *text,
                       zone_options_say_fn say, void *arg);
int zone_options_parse_messages(struct zone_options *opt, const char *variable, const char *text,
                                zone_options_message_fn say, void *arg);

/*
 * The same for a text that comes while `opt` is in use: pass a copy. A key that is not LIVE is a
 * problem unless it has that value already. *ret_keys gets a bit for each LIVE option that was set.
 */
int zone_options_adjust(struct zone_options *opt, const char *variable, const char *text,
                        zone_options_say_fn say, void *arg, uint64_t *ret_keys);

/* Takes the values of these LIVE options over. Others may read `opt` meanwhile, not write it. */
void zone_options_take(struct zone_options *opt, const struct zone_options *from, uint64_t keys);

/* For confirm_conf: a line `key:value (default)` or `key:value (set)` for each option in effect. */
void zone_options_echo(const struct zone_options *opt, zone_options_say_fn say, void *arg);

/* Writes what was given and makes a difference as a ZONE_ALLOC_CONF text, "" if nothing does; cut
 * to fit. */
void zone_options_summary(const struct zone_options *opt, char *ret_text, size_t size);

/* The table: row `index`, NULL after the last one. */
const struct zone_option_info *zone_options_info(unsigned index);
/* Writes the value of one option as it would be written in ZONE_ALLOC_CONF. */
void zone_options_value(const struct zone_options *opt, const struct zone_option_info *info,
                        char *ret_text, size_t size);
/* The words that a type takes besides numbers, NULL after the last one. */
const char *zone_options_word(enum zone_option_type type, unsigned index);
/* "a whole number of MiB from 0 to 1048576, or auto" */
void zone_options_expected(const struct zone_option_info *info, char *ret_text, size_t size);

/* MiB to bytes; ZONE_OPTIONS_UNLIMITED gives SIZE_MAX, ZONE_OPTIONS_AUTO is the caller's to
 * resolve. */
static inline size_t zone_options_bytes(uint64_t mb)
{
    return mb > ZONE_OPTIONS_MAX_MB ? SIZE_MAX : (size_t)mb << 20;
}

/* A share of bytes. In two parts, as the product may not fit. */
static inline size_t zone_options_share(uint64_t fraction, size_t bytes)
{
    return bytes / ZONE_OPTIONS_ONE * fraction +
           bytes % ZONE_OPTIONS_ONE * fraction / ZONE_OPTIONS_ONE;
}

/* The slow half of zone_options_roundup(). */
size_t zone_options_roundup_divisions(const struct zone_options *opt, size_t bytes);

/*
 * The size class of a request: its roundup_power2_divisions step, then a multiple of 512 bytes.
 * 0 if that does not fit into a size_t (or for 0 bytes).
 */
static inline size_t zone_options_roundup(const struct zone_options *opt, size_t bytes)
{
    if (ZONE_UNLIKELY(opt->rounds)) {
        bytes = zone_options_roundup_divisions(opt, bytes);
    }
    return (bytes + 511) & ~(size_t)511; /* wraps to 0 near SIZE_MAX */
}
