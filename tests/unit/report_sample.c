/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a made-up report, for test_json.py: report_sample small|full text|json
 */
#include "report_sample.h"

#include <stdio.h>
#include <string.h>

static int write_stdout(void *arg, const char *text, size_t bytes)
{
    (void)arg;
    return fwrite(text, 1, bytes, stdout) == bytes ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct zone_report report;
    if (argc != 3) {
        fprintf(stderr, "usage: report_sample small|full text|json\n");
        return 2;
    }
    if (strcmp(argv[1], "full") == 0) {
        sample_full(&report);
    } else {
        sample_small(&report);
    }
    int rc = strcmp(argv[2], "json") == 0 ? zone_report_json(&report, write_stdout, NULL)
                                          : zone_report_text(&report, write_stdout, NULL);
    return rc == 0 && fflush(stdout) == 0 ? 0 : 1;
}
