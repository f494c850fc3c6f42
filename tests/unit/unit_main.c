/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a suite: see unit_main.h.
 */
#include "unit_main.h"

#include <stdlib.h>

int unit_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
