/* SPDX-License-Identifier: Apache-2.0
 *
 * Two libraries and a program that look symbols up in every way the dynamic linker has, and print
 * where each look-up led. What they print must not depend on a preloaded libzone.
 */
#pragma once

/* Prints the look-ups that a library makes, with who as the first word of each line. */
void look_around(const char *who);

/* Defined in the dependency alone. */
const char *look_only_in_dependency(void);

/* Defined in the library and in its dependency: RTLD_NEXT must find the dependency's. */
const char *look_in_both(void);
