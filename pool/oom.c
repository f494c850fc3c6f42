/* SPDX-License-Identifier: Apache-2.0
 *
 * See oom.h. The verdicts stand in the order in which they are tried: the table below gives
 * their words, the rules above it decide.
 */
#include "oom.h"

#include "text.h"

/* Memory past the pool is worth a verdict from this part of the device on. */
enum { REST_PART = 8 };
#define GATE_PAUSE_NS    UINT64_C(1000000000)
#define GATE_DOUBLES_MAX 30

size_t zone_oom_rest(const struct zone_oom *oom)
{
    size_t rest = oom->total;
    const size_t parts[] = {oom->free, oom->allocated, oom->pending, oom->cached,
                            oom->others_known ? oom->others_bytes : 0};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        rest = rest > parts[i] ? rest - parts[i] : 0;
    }
    return rest;
}

static bool oom_is_limit(const struct zone_oom *oom)
{
    return oom->refuser != NULL;
}

static bool oom_is_too_large(const struct zone_oom *oom)
{
    return oom->bytes > oom->total;
}

static bool oom_is_refused(const struct zone_oom *oom)
{
    return oom->bytes <= oom->free;
}

static bool oom_is_pending(const struct zone_oom *oom)
{
    return oom->bytes <= oom->free + oom->reclaimable;
}

/* Everything that is freed would do, but not without what others may still hold. */
static bool oom_is_shared(const struct zone_oom *oom)
{
    size_t freed = oom->free + oom->pending + oom->cached;
    return oom->bytes <= freed && oom->bytes > freed - oom->shared;
}

static bool oom_is_fragmentation(const struct zone_oom *oom)
{
    return oom->bytes <= oom->free + oom->pending + oom->cached;
}

static bool oom_is_neighbours(const struct zone_oom *oom)
{
    return oom->others_known && oom->others > 0 &&
           oom->bytes <= oom->free + oom->pending + oom->cached + oom->others_bytes;
}

static bool oom_is_elsewhere(const struct zone_oom *oom)
{
    size_t rest = zone_oom_rest(oom);
    return rest > oom->total / REST_PART &&
           oom->bytes <= oom->free + oom->pending + oom->cached + rest;
}

static bool oom_is_shortage(const struct zone_oom *oom)
{
    (void)oom;
    return true;
}

static const struct {
    bool (*fits)(const struct zone_oom *oom);
    const char *word;
    const char *why;
    const char *try;
} verdicts[] = {
    [ZONE_OOM_LIMIT] = {oom_is_limit, "limit", "the limit that was set for this process is reached",
                        "a higher limit, or a smaller problem"},
    [ZONE_OOM_TOO_LARGE] = {oom_is_too_large, "too large", "the device is smaller than the request",
                            "a smaller problem, or a GPU with more memory"},
    [ZONE_OOM_REFUSED] = {oom_is_refused, "refused",
                          "the driver refuses though it reports enough free memory: it keeps some "
                          "back, or is still clearing it",
                          "a larger oom_wait_ms"},
    [ZONE_OOM_PENDING] = {oom_is_pending, "pending",
                          "freed memory would do, but work was running for all of oom_wait_ms",
                          "a larger oom_wait_ms, or a smaller max_pending_mb"},
    [ZONE_OOM_SHARED] = {oom_is_shared, "shared",
                         "cached memory would do, but a part of it was exported and is kept with "
                         "its segment",
                         "max_cached_mb:0, so that nothing shares segments with exported blocks"},
    [ZONE_OOM_FRAGMENTATION] = {oom_is_fragmentation, "fragmentation",
                                "free and cached memory would do in sum, but not in one piece",
                                NULL},
    [ZONE_OOM_NEIGHBOURS] = {oom_is_neighbours, "neighbours",
                             "other processes hold memory that would do",
                             "a GPU of its own, or less for the others (under libzone: a smaller "
                             "max_cached_mb, a larger min_free_mb)"},
    [ZONE_OOM_ELSEWHERE] = {oom_is_elsewhere, "elsewhere", NULL, NULL},
    [ZONE_OOM_SHORTAGE] = {oom_is_shortage, "shortage",
                           "the program holds and asks for more than the device has for it",
                           "a smaller problem, or a GPU with more memory"},
};

enum zone_oom_verdict zone_oom_verdict(const struct zone_oom *oom)
{
    unsigned verdict = 0;
    while (!verdicts[verdict].fits(oom)) {
        verdict++;
    }
    return (enum zone_oom_verdict)verdict;
}

const char *zone_oom_word(const struct zone_oom *oom)
{
    return verdicts[zone_oom_verdict(oom)].word;
}

const char *zone_oom_why(const struct zone_oom *oom)
{
    enum zone_oom_verdict verdict = zone_oom_verdict(oom);
    if (verdict == ZONE_OOM_ELSEWHERE) {
        return oom->others_known ? "memory of this process past the pool would do: contexts, code, "
                                   "arrays, managed or stream-ordered memory"
                                 : "memory past the pool would do: other processes, or contexts, "
                                   "code, arrays, managed or stream-ordered memory of this one";
    }
    return verdicts[verdict].why;
}

const char *zone_oom_try(const struct zone_oom *oom)
{
    enum zone_oom_verdict verdict = zone_oom_verdict(oom);
    if (verdict == ZONE_OOM_FRAGMENTATION) {
        return oom->cuts_large ? "a smaller max_split_size_mb, or no cutting of large blocks: "
                                 "without it and large_segment_size_mb"
                               : "max_cached_mb:0, which cuts no blocks from segments";
    }
    if (verdict == ZONE_OOM_ELSEWHERE) {
        return oom->others_known ? "to give it back earlier; cudaMalloc's share is the smaller one"
                                 : "nvidia-smi, to see which process holds it";
    }
    return verdicts[verdict].try;
}

static void append_part(char *text, size_t size, const char *name, size_t bytes)
{
    zone_text_append(text, size, "%s", name);
    zone_text_bytes(text, size, bytes);
}

void zone_oom_numbers(const struct zone_oom *oom, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    append_part(ret_text, size, "out of memory: tried to allocate ", oom->requested);
    zone_text_append(ret_text, size, " on device %d. ", oom->device);
    append_part(ret_text, size, "Of ", oom->total);
    append_part(ret_text, size, ": free ", oom->free);
    append_part(ret_text, size, ", allocated ", oom->allocated);
    append_part(ret_text, size, ", pending ", oom->pending);
    append_part(ret_text, size, ", cached ", oom->cached);
    if (oom->pending + oom->cached > 0) {
        append_part(ret_text, size, " (largest piece ", oom->largest);
        zone_text_append(ret_text, size, ")");
    }
    if (oom->others_known) {
        zone_text_append(ret_text, size, ", %u other process%s ", oom->others,
                         oom->others == 1 ? "" : "es");
        zone_text_bytes(ret_text, size, oom->others_bytes);
    }
    append_part(ret_text, size, ", rest ", zone_oom_rest(oom));
    if (!oom->others_known) {
        zone_text_append(ret_text, size, " (other processes: unknown)");
    }
    if (oom->refuser) {
        append_part(ret_text, size, "; limit ", oom->limit);
        zone_text_append(ret_text, size, " (%s), used ", oom->refuser);
        zone_text_bytes(ret_text, size, oom->limit_used);
    }
}

void zone_oom_meaning(const struct zone_oom *oom, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    zone_text_append(ret_text, size, "out of memory: %s: %s; try %s", zone_oom_word(oom),
                     zone_oom_why(oom), zone_oom_try(oom));
}

bool zone_oom_due(struct zone_oom_gate *gate, uint64_t now_ns)
{
    uint64_t next = atomic_load_explicit(&gate->next_ns, memory_order_relaxed);
    if (now_ns < next) {
        return false;
    }
    unsigned passed = atomic_load_explicit(&gate->passed, memory_order_relaxed);
    uint64_t pause = GATE_PAUSE_NS << (passed < GATE_DOUBLES_MAX ? passed : GATE_DOUBLES_MAX);
    if (!atomic_compare_exchange_strong_explicit(&gate->next_ns, &next, now_ns + pause,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return false;
    }
    atomic_store_explicit(&gate->passed, passed + 1, memory_order_relaxed);
    return true;
}
