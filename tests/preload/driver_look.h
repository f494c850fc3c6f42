/* SPDX-License-Identifier: Apache-2.0
 *
 * The look-ups of driver_look, in a library so that it can be opened in different ways.
 */
#pragma once

/* Prints where the driver's functions are found, allocates and frees once; 0 if all worked. */
int driver_look(void);
