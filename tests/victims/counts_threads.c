/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: the report's sums after many threads allocated and freed at once: exact, as if one thread
 * had done it all. Usage: counts_threads [child].
 */
#include "tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, LEFT = 3 };

static int pairs(void)
{
    return 3000 / (int)slowness();
}

static void churn(void *unused)
{
    CUdeviceptr ptr;
    (void)unused;
    for (int i = 0; i < pairs(); i++) {
        OK(cuMemAlloc(&ptr, (size_t)512 << i % 4));
        OK(cuMemFree(ptr));
    }
    for (int i = 0; i < LEFT; i++) {
        OK(cuMemAlloc(&ptr, 4 * KIB)); /* never freed */
    }
}

static void work(void)
{
    struct worker workers[THREADS];
    victim_start();
    for (int i = 0; i < THREADS; i++) {
        worker_start(&workers[i], churn, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        worker_join(&workers[i]);
    }
}

int main(int argc, char **argv)
{
    char path[64];
    char text[4096] = "";
    char sums[128];
    int status = -1;
    if (argc > 1) {
        work();
        return 0;
    }
    snprintf(path, sizeof path, "/tmp/victim-counts-%d.json", (int)getpid());
    setenv("ZONE_REPORT", path, 1);
    CHECK(reports_of_child(argv[0], "child", &status) == 0 && status == 0);
    FILE *file = fopen(path, "r");
    CHECK((file != NULL) == pooled(), "report");
    if (file) {
        CHECK(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        unlink(path);
        snprintf(sums, sizeof sums, "\"allocated\":%d,\"freed\":%d}", THREADS * (pairs() + LEFT),
                 THREADS * pairs());
        CHECK(strstr(text, sums), "%s", text);
        snprintf(sums, sizeof sums, "\"allocated_bytes\":{\"current\":%d,", THREADS * LEFT * 4096);
        CHECK(strstr(text, sums), "%s", text);
    }
    return 0;
}
