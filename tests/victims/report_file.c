/* SPDX-License-Identifier: Apache-2.0
 *
 * Victim: where the report goes. Named by pid, host and a variable, as text and as JSON, one file a
 * process; none, nowhere, and switched off there is no file and no line.
 */
#include "tools.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *self;
static char folder[] = "/tmp/victim-report-XXXXXX";

struct result {
    size_t files;
    char text[4096]; /* of the first file */
    size_t lines;    /* on standard error */
};

/* Runs this program again, as one that allocates, or without CUDA. */
static struct result run(const char *pattern, const char *disable, const char *what)
{
    struct result result = {0};
    char path[256];
    char line[1024];
    glob_t found;
    int ends[2];
    int status = -1;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        snprintf(path, sizeof path, "%s/%s", folder, pattern);
        setenv("ZONE_REPORT", strcmp(pattern, "none") == 0 ? pattern : path, 1);
        setenv("ZONE_DISABLE", disable, 1);
        setenv("VICTIM_RANK", "r3", 1);
        execl(self, self, what, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    while (output && fgets(line, sizeof line, output)) {
        result.lines++;
    }
    fclose(output);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %x", (unsigned)status);
    snprintf(path, sizeof path, "%s/*", folder);
    if (glob(path, 0, NULL, &found) == 0) {
        result.files = found.gl_pathc;
        snprintf(line, sizeof line, "%d", (int)child);
        const char *name = strrchr(found.gl_pathv[0], '/');
        CHECK(!strstr(pattern, "%p") || strstr(name, line), "%s is not of %s", name, line);
        CHECK(!strstr(pattern, "VICTIM") || strstr(name, "r3"), "%s", name);
        FILE *file = fopen(found.gl_pathv[0], "r");
        CHECK(file);
        size_t bytes = fread(result.text, 1, sizeof result.text - 1, file);
        result.text[bytes] = '\0';
        fclose(file);
        for (size_t i = 0; i < found.gl_pathc; i++) {
            unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    return result;
}

static void allocate(void)
{
    victim_start();
    for (int i = 0; i < 20; i++) {
        CUdeviceptr ptr;
        OK(cuMemAlloc(&ptr, 4096));
        OK(cuMemFree(ptr));
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        if (strcmp(argv[1], "allocate") == 0) {
            allocate();
        }
        return 0;
    }
    CHECK(mkdtemp(folder));
    size_t one = under_zone() ? 1 : 0;
    struct result result = run("plain", "0", "allocate");
    CHECK(result.files == one && result.lines == 0, "%zu %zu", result.files, result.lines);
    CHECK(strncmp(result.text, "zone[", one * 5) == 0);
    result = run("%p.%h.txt", "", "allocate");
    CHECK(result.files == one && result.lines == 0, "%zu %zu", result.files, result.lines);
    result = run("rank-%q{VICTIM_RANK}.%p.json", "0", "allocate");
    CHECK(result.files == one && result.lines == 0, "%zu %zu", result.files, result.lines);
    CHECK(!one || (result.text[0] == '{' && strstr(result.text, "\"allocation\":{\"current\":0,")));
    CHECK(!one || strstr(result.text, "\"allocated\":20,\"freed\":20}"), "%s", result.text);
    result = run("none", "0", "allocate");
    CHECK(result.files == 0 && result.lines == 0, "none");
    result = run("off.%p", "1", "allocate");
    CHECK(result.files == 0 && result.lines == 0, "switched off");
    result = run("idle.%p", "0", "nothing");
    CHECK(result.files == 0 && result.lines == 0, "a process without CUDA");
    OK(rmdir(folder));
    return 0;
}
