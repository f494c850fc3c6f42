/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures, between the rules of capture.c and the calls of capture_calls.c; under the one lock.
 */
#pragma once

#include "sim.h"

struct sim_capture {
    int refs; /* the list and the events recorded in it */
    cuuint64_t id;
    CUstreamCaptureMode mode;
    const struct sim_thread *thread;
    struct sim_stream *origin;
    struct sim_graph *graph;
    bool own_graph, invalid, ended;
    struct sim_capture *next;
};

void sim_capture_start(struct sim_stream *stream, CUstreamCaptureMode mode, struct sim_graph *graph,
                       struct sim_node *const *deps, size_t count);
void sim_capture_end(struct sim_capture *capture);
void sim_stream_set_frontier(struct sim_stream *stream, struct sim_node *const *nodes,
                             size_t count);
/* A capturing blocking stream that this one, the legacy stream, would have to wait for. */
struct sim_capture *sim_capture_implicit(const struct sim_stream *stream);
