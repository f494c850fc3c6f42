/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers that depend on where they are drawn alone: every step of every thread starts its
 * own generator, so that step N of a thread always asks for the same, whatever happened before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

/* splitmix64, public domain algorithm by Sebastiano Vigna. */
static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static inline struct rng rng_at(uint64_t seed, uint64_t where, uint64_t step)
{
    struct rng rng = {.state = seed};
    rng.state = rng_next(&rng) ^ where * UINT64_C(0xD1342543DE82EF95);
    rng.state = rng_next(&rng) ^ step * UINT64_C(0x2545F4914F6CDD1D);
    return rng;
}

/* From 0 to below `end`. */
static inline uint32_t rng_below(struct rng *rng, uint32_t end)
{
    return (uint32_t)((rng_next(rng) >> 32) * end >> 32);
}

/* True once in `times`. */
static inline bool rng_once_in(struct rng *rng, uint32_t times)
{
    return rng_below(rng, times) == 0;
}
