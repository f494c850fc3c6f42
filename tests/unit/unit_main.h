/* SPDX-License-Identifier: Apache-2.0
 *
 * How a unit test of the pool's rooms runs: one suite, results as TAP on stdout.
 */
#pragma once

#include <check.h>

/* Runs the suite and returns what main returns. */
int unit_main(Suite *suite);
