# SPDX-License-Identifier: Apache-2.0
"""Checks a built libzone.so: what it exports, which glibc it needs, what it is linked to.

    binary.py exports|glibc|needed|imports LIBZONE [HOOKS_DEF LIBZONE_H]

exports: the names of hooks.def and libzone.h, and dlsym, without symbol versions; nothing else.
glibc:   no symbol newer than 2.17, so that it loads in older containers; dlsym is looked for by the
         version that it has on the library's machine.
needed:  libc and its parts only, no search path, no text relocations, no executable stack.
imports: nothing of CUDA, no threads, no signal handlers, nothing shared with other processes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tree import finish

NEWEST_GLIBC = (2, 17)
MAY_NEED = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
# ld.so itself, under the name it has on each machine; linkers add it for thread-local storage.
LOADER = re.compile(r"ld-linux-(x86-64\.so\.2|aarch64\.so\.1)")

FORBIDDEN = (
    (r"cu[A-Z]\w*|cuda[A-Z]\w*|nvml\w*", "programs without CUDA would not start"),
    (r"pthread_create|thrd_create|clone3?|v?fork|posix_spawnp?|system", "libzone starts nothing"),
    (r"signal|sigaction|bsd_signal|sysv_signal|sigset", "signals are the program's"),
    (
        r"sem_\w+|shm_\w+|sem(get|op|ctl)|shm(get|at|ctl)|msg\w+|mq_\w+|flock|lockf",
        "a process that dies would stop others",
    ),
    (r"pthread_self|gettid", "threads are told apart by thread-local variables"),
    (r"_Unwind_\w+|__cxa_throw|_Z\w+", "exceptions do not cross C"),
)


def tool(*command: str) -> str:
    """A binutils program's output. readelf reads every machine's files."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def hook_names(text: str) -> list[str]:
    """The names in a hook table, one HOOK(name, …) row each."""
    return re.findall(r"^HOOK\((\w+),", text, flags=re.MULTILINE)


def call_names(header: str) -> list[str]:
    """The functions that a public header declares."""
    return re.findall(r"^int (zone_\w+)\(", header, flags=re.MULTILINE)


def malformed_rows(text: str) -> list[str]:
    """Lines that begin like a hook row and are none."""
    good = re.compile(r"^HOOK\(\w+, \w+,( |$)")
    return [line for line in text.splitlines() if line.startswith("HOOK") and not good.match(line)]


def exported(listing: str) -> dict[str, str]:
    """Name → version ("" for none) of the defined symbols that readelf --dyn-syms lists."""
    found = {}
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        if fields[4] == "LOCAL" or fields[6] == "UND":
            continue
        name, at, version = fields[7].partition("@")
        found[name] = at + version
    return found


def check_exports(listing: str, hooks_text: str, header: str) -> list[str]:
    """Differences between what is exported and what hooks.def and libzone.h promise."""
    hooks = hook_names(hooks_text)
    problems = [f"hooks.def: {name} has two rows" for name in hooks if hooks.count(name) > 1]
    problems += [f"hooks.def: not a row: {line}" for line in malformed_rows(hooks_text)]
    found = exported(listing)
    wanted = {*hooks, *call_names(header), "dlsym"}
    problems += [f"{name} is promised and not exported" for name in sorted(wanted - set(found))]
    for name, version in sorted(found.items()):
        if name not in wanted:
            problems.append(f"{name} is exported and neither in hooks.def nor in libzone.h")
        if version:
            problems.append(f"{name} has the version {version}: versioned look-ups would miss it")
    return problems


def check_glibc(dynamic_symbols: str) -> list[str]:
    """Versions that objdump -T or -p names and that an older glibc lacks."""
    problems = []
    for line in dynamic_symbols.splitlines():
        for name in re.findall(r"GLIBC_[\w.]+", line):
            numbers = name.removeprefix("GLIBC_").split(".")
            if not all(part.isdigit() for part in numbers):
                problems.append(f"{name} is needed by: {line.strip()}")
            elif tuple(int(part) for part in numbers) > NEWEST_GLIBC:
                problems.append(f"{name} is newer than 2.17: {line.strip()}")
    return problems


def check_base(data: bytes) -> list[str]:
    """The oldest glibc of the file's machine is named in it, and no other machine's."""
    base = {62: b"GLIBC_2.2.5", 183: b"GLIBC_2.17"}[int.from_bytes(data[18:20], "little")]
    problems = [] if base + b"\0" in data else [f"{base.decode()} is not asked for"]
    if base != b"GLIBC_2.2.5" and b"GLIBC_2.2.5" in data:
        problems.append("GLIBC_2.2.5 is x86-64's")
    return problems


def imported(listing: str) -> set[str]:
    """The undefined symbols that readelf --dyn-syms lists."""
    rows = (line.split() for line in listing.splitlines())
    return {row[7].partition("@")[0] for row in rows if len(row) >= 8 and row[6] == "UND"}


def check_imports(listing: str) -> list[str]:
    """What libzone must not use, by the symbol that it would need."""
    return [
        f"{name} is imported: {why}"
        for name in sorted(imported(listing))
        for pattern, why in FORBIDDEN
        if re.fullmatch(pattern, name)
    ]


def check_needed(dynamic: str, headers: str) -> list[str]:
    """Entries of the dynamic section and program headers that must not be there."""
    problems = []
    for library in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic):
        if library not in MAY_NEED and not LOADER.fullmatch(library):
            problems.append(f"linked to {library}: every preloaded process would load it")
    for tag in ("RPATH", "RUNPATH", "TEXTREL"):
        if f"({tag})" in dynamic:
            problems.append(f"has {tag}")
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+(\w+)", headers)
    if stack is None or "E" in stack.group(1):
        problems.append("asks for an executable stack")
    return problems


def main(argv: list[str]) -> int:
    what, library = argv[1], argv[2]
    if what == "exports":
        listing = tool("readelf", "-W", "--dyn-syms", library)
        hooks_text, header = (Path(path).read_text(encoding="utf-8") for path in argv[3:5])
        problems = check_exports(listing, hooks_text, header)
        return finish(problems, len(exported(listing)), "exports")
    if what == "glibc":
        # -W -V names versions that no symbol uses, too: the loader asks for those as well.
        text = tool("readelf", "-W", "--dyn-syms", library) + tool("readelf", "-W", "-V", library)
        problems = check_glibc(text) + check_base(Path(library).read_bytes())
        return finish(problems, text.count("GLIBC_"), "references to glibc")
    if what == "needed":
        dynamic, headers = (
            tool("readelf", "-W", "-d", library),
            tool("readelf", "-W", "-l", library),
        )
        return finish(check_needed(dynamic, headers), dynamic.count("(NEEDED)"), "libraries")
    if what == "imports":
        listing = tool("readelf", "-W", "--dyn-syms", library)
        return finish(check_imports(listing), len(imported(listing)), "imports")
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
