/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that only look.c's library is linked to: opened with RTLD_LOCAL, its symbols are in
 * that library's own scope and nowhere else.
 */
#include "look.h"

const char *look_only_in_dependency(void)
{
    return "dependency";
}

const char *look_in_both(void)
{
    return "dependency";
}
