/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the driver in use for every cu* name it exports, by dlsym and by both cuGetProcAddress for
 * several versions and flags, and prints what came back: codes, and each pointer as an offset into
 * the object that owns it, so that two runs compare. walk_compare.py compares a native run with one
 * under libzone. Links against no CUDA library and starts none; works on the simulated driver too.
 * Usage: walk [--dlsym-only]
 * Output: dlsym NAME WHERE | default NAME WHERE | next NAME WHERE |
 *         v1 NAME VERSION FLAGS RC WHERE | v2 NAME VERSION FLAGS RC STATUS WHERE
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 8192, NAME_SIZE = 128, STATUS_UNTOUCHED = -77 };

typedef int (*resolve_v1)(const char *name, void **pfn, int version, uint64_t flags);
typedef int (*resolve_v2)(const char *name, void **pfn, int version, uint64_t flags, int *status);

static char names[NAMES_MAX][NAME_SIZE];
static size_t name_count;
static char untouched;

static const int versions[] = {2000, 3020, 4000, 7000, 11020, 11030, 12000, 12050, 13000};
static const uint64_t flag_sets[] = {0, 1, 2};

static void add_name(const char *name)
{
    if (strlen(name) >= NAME_SIZE || name_count == NAMES_MAX) {
        fprintf(stderr, "walk: too many or too long names: %s\n", name);
        exit(2);
    }
    strcpy(names[name_count++], name);
}

static int is_driver_name(const char *name)
{
    return strncmp(name, "cu", 2) == 0 && name[2] >= 'A' && name[2] <= 'Z';
}

/* Adds the name, and its bases: cuMemAlloc_v2 is asked for as cuMemAlloc. */
static void add_with_bases(const char *exported)
{
    static const char *const suffixes[] = {"_ptsz", "_ptds", "_v2", "_v3", "_v4"};
    char base[NAME_SIZE];
    add_name(exported);
    snprintf(base, sizeof(base), "%s", exported);
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        size_t length = strlen(base);
        size_t cut = strlen(suffixes[i]);
        if (length > cut && strcmp(base + length - cut, suffixes[i]) == 0) {
            base[length - cut] = '\0';
            add_name(base);
        }
    }
}

static int by_name(const void *left, const void *right)
{
    return strcmp(left, right);
}

static void sort_names(void)
{
    size_t kept = 0;
    qsort(names, name_count, NAME_SIZE, by_name);
    for (size_t i = 0; i < name_count; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0) {
            memmove(names[kept++], names[i], NAME_SIZE);
        }
    }
    name_count = kept;
}

/* Reads the dynamic symbols out of the file itself: what the driver exports, not what we know. */
static void read_exports(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        perror(path);
        exit(2);
    }
    const char *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (file == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    const ElfW(Ehdr) *header = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
    for (size_t s = 0; s < header->e_shnum; s++) {
        if (sections[s].sh_type != SHT_DYNSYM) {
            continue;
        }
        const ElfW(Sym) *symbols = (const void *)(file + sections[s].sh_offset);
        const char *strings = file + sections[sections[s].sh_link].sh_offset;
        for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
            const char *name = strings + symbols[i].st_name;
            if (symbols[i].st_shndx != SHN_UNDEF && is_driver_name(name)) {
                add_with_bases(name);
            }
        }
    }
    munmap((void *)(uintptr_t)file, (size_t)info.st_size);
    sort_names();
}

/* Base name of the owner and the offset in it; the offset is what two processes have in common. */
static const char *where(const void *address)
{
    static char text[512];
    Dl_info info;
    if (address == NULL) {
        return "null";
    }
    if (address == &untouched) {
        return "untouched";
    }
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return "nowhere";
    }
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(text, sizeof(text), "%s+0x%zx", slash != NULL ? slash + 1 : info.dli_fname,
             (size_t)((const char *)address - (const char *)info.dli_fbase));
    return text;
}

static void walk_lookups(void *driver)
{
    static const char *const others[] = {"malloc",         "dlopen",         "dlsym",
                                         "pthread_create", "curl_easy_init", "cudnnCreate",
                                         "cuzone",         "environ"};
    for (size_t i = 0; i < name_count; i++) {
        printf("dlsym %s %s\n", names[i], where(dlsym(driver, names[i])));
    }
    for (size_t i = 0; i < name_count; i++) {
        printf("default %s %s\n", names[i], where(dlsym(RTLD_DEFAULT, names[i])));
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        printf("dlsym %s %s\n", others[i], where(dlsym(driver, others[i])));
        printf("default %s %s\n", others[i], where(dlsym(RTLD_DEFAULT, others[i])));
        printf("next %s %s\n", others[i], where(dlsym(RTLD_NEXT, others[i])));
    }
}

static void walk_versions(void *driver, const char *name)
{
    resolve_v1 v1 = (resolve_v1)dlsym(driver, "cuGetProcAddress");
    resolve_v2 v2 = (resolve_v2)dlsym(driver, "cuGetProcAddress_v2");
    for (size_t v = 0; v < sizeof(versions) / sizeof(versions[0]); v++) {
        for (size_t f = 0; f < sizeof(flag_sets) / sizeof(flag_sets[0]); f++) {
            if (v1 != NULL) {
                void *pfn = &untouched;
                int rc = v1(name, &pfn, versions[v], flag_sets[f]);
                printf("v1 %s %d %d %d %s\n", name[0] != '\0' ? name : "-", versions[v],
                       (int)flag_sets[f], rc, where(pfn));
            }
            if (v2 != NULL) {
                void *pfn = &untouched;
                int status = STATUS_UNTOUCHED;
                int rc = v2(name, &pfn, versions[v], flag_sets[f], &status);
                printf("v2 %s %d %d %d %d %s\n", name[0] != '\0' ? name : "-", versions[v],
                       (int)flag_sets[f], rc, status, where(pfn));
            }
        }
    }
}

int main(int argc, char **argv)
{
    Dl_info info;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "walk: %s\n", dlerror());
        return 77;
    }
    /* cuGetErrorString is wrapped by nobody: its owner is the driver itself. */
    void *known = dlsym(driver, "cuGetErrorString");
    if (known == NULL || dladdr(known, &info) == 0) {
        fprintf(stderr, "walk: the driver has no cuGetErrorString\n");
        return 2;
    }
    read_exports(info.dli_fname);
    walk_lookups(driver);
    if (argc > 1 && strcmp(argv[1], "--dlsym-only") == 0) {
        return 0;
    }
    walk_versions(driver, "");
    walk_versions(driver, "cuNoSuchFunction");
    for (size_t i = 0; i < name_count; i++) {
        walk_versions(driver, names[i]);
    }
    return 0;
}
