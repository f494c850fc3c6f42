/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the room of streams: marks, as stream_ready.c and stream_borrow.c look at them. The lock
 * of the stream is held by the caller of everything here.
 */
#pragma once

#include "stream.h"

static inline struct zone_stream_mark *zone_stream_mark_at(struct zone_stream *stream,
                                                           unsigned index)
{
    return &stream->marks[index % ZONE_STREAM_MARKS];
}

/* Frees with this stamp or an older one are done. Marks that nobody needs make room. */
static inline void zone_stream_settle(struct zone_stream *stream, uint64_t epoch)
{
    stream->ready = epoch > stream->ready ? epoch : stream->ready;
    while (stream->head != stream->tail &&
           zone_stream_mark_at(stream, stream->head)->epoch <= stream->ready &&
           zone_stream_mark_at(stream, stream->head)->users == 0) {
        stream->head++;
    }
}

/* The oldest mark that covers the stamp; tail if there is none. */
static inline unsigned zone_stream_covering(struct zone_stream *stream, uint64_t stamp)
{
    unsigned index = stream->head;
    while (index != stream->tail && zone_stream_mark_at(stream, index)->epoch < stamp) {
        index++;
    }
    return index;
}

/* Blocks stamped at most this are good for everybody. */
static inline uint64_t zone_stream_ready(const struct zone_stream *stream)
{
    uint64_t ready = stream->foreign ? 0 : zone_fence_ready(&stream->pool->fence);
    return ready > stream->ready ? ready : stream->ready;
}
