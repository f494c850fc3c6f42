/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: a program asks for the report in the middle. It comes where ZONE_REPORT says, with the
 * numbers of that moment; the one at exit comes as always.
 */
#include "tools.h"
#include "zone_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct zone_api api;
static char file[] = "/tmp/victim-api-XXXXXX.json";

/* How often the text stands in the report's file. */
static int in_file(const char *text)
{
    char line[32768];
    int count = 0;
    FILE *report = fopen(file, "r");
    while (report && fgets(line, sizeof line, report)) {
        for (const char *at = line; (at = strstr(at, text)) != NULL; at++) {
            count++;
        }
    }
    if (report) {
        fclose(report);
    }
    return count;
}

static void child(const char *what)
{
    CUdeviceptr ptr;
    int code = strcmp(what, "none") == 0 ? ZONE_ERROR_REPORT : ZONE_OK;
    OK(api.report()); /* nothing to say yet */
    victim_start();
    OK(cuMemAlloc(&ptr, 4 * MIB));
    OK(api.set_allocator_settings("min_free_mb:100"));
    EXPECT(code, api.report());
    if (strcmp(what, "file") == 0) {
        CHECK(in_file("\"allocated_bytes\":{\"current\":4194304") == 2); /* device and total */
        CHECK(in_file("\"options\":\"min_free_mb:100\"") == 1);
    }
    OK(cuMemFree(ptr));
}

int main(int argc, char **argv)
{
    int status;
    if (!zone_api_load(&api)) {
        return 0;
    }
    if (argc > 1) {
        snprintf(file, sizeof file, "%s", getenv("VICTIM_FILE"));
        child(argv[1]);
        return 0;
    }
    int fd = mkstemps(file, 5);
    CHECK(fd >= 0);
    close(fd);
    setenv("VICTIM_FILE", file, 1);
    unsetenv("ZONE_REPORT");
    CHECK(reports_of_child(argv[0], "stderr", &status) == 2 && status == 0);
    setenv("ZONE_REPORT", "none", 1);
    CHECK(reports_of_child(argv[0], "none", &status) == 0 && status == 0);
    setenv("ZONE_REPORT", file, 1);
    CHECK(reports_of_child(argv[0], "file", &status) == 0 && status == 0);
    CHECK(in_file("\"allocated_bytes\":{\"current\":0") == 3); /* and of no device */
    OK(unlink(file));
    return 0;
}
