/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs as graph.c builds and graph_launch.c runs them; under the one lock.
 */
#pragma once

#include "sim.h"

struct sim_node {
    struct sim_graph *graph;
    struct sim_work *work;
    struct sim_node **deps;
    size_t dep_count, dep_room;
    size_t order; /* place in the executable graph being made; 0 if it has none yet */
    struct sim_node *next;
};

struct sim_graph {
    struct sim_node *first, *last;
    size_t count;
};
