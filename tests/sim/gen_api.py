#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write api.def, the simulator's one table of driver symbols, from a toolkit's headers and stub.

    gen_api.py CUDA_INCLUDE STUB_LIBCUDA > api.def
    gen_api.py --errors CUDA_INCLUDE > errors.def

Each row is API(elf, impl, base, version, per_thread, params, args): the exported name, the name its
implementation goes by, the name and version that cuGetProcAddress knows it by, whether it is the
per-thread twin, its parameters and how to pass them on. The file is committed; run this again when
a new toolkit adds symbols.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Symbols that cudaTypedefs.h does not list, with the version that introduced them.
UNTYPED_VERSIONS = {
    "cuCoredumpGetAttribute": 12010,
    "cuCoredumpGetAttributeGlobal": 12010,
    "cuCoredumpSetAttribute": 12010,
    "cuCoredumpSetAttributeGlobal": 12010,
    "cuCtxFromGreenCtx": 12040,
    "cuCtxGetDevResource": 12040,
    "cuCtxRecordEvent": 12050,
    "cuCtxWaitEvent": 12050,
    "cuDevResourceGenerateDesc": 12040,
    "cuDevSmResourceSplitByCount": 12040,
    "cuDeviceGetDevResource": 12040,
    "cuDeviceRegisterAsyncNotification": 12040,
    "cuDeviceUnregisterAsyncNotification": 12040,
    "cuGreenCtxCreate": 12040,
    "cuGreenCtxDestroy": 12040,
    "cuGreenCtxGetDevResource": 12040,
    "cuGreenCtxGetId": 12090,
    "cuGreenCtxRecordEvent": 12040,
    "cuGreenCtxWaitEvent": 12040,
    "cuProfilerInitialize": 4000,
    "cuProfilerStart": 4000,
    "cuProfilerStop": 4000,
    "cuStreamGetGreenCtx": 12040,
}

TWIN = re.compile(r"_pt(?:ds|sz)$")
SUFFIX = re.compile(r"(_v\d+)?(_pt(?:ds|sz))?$")


def stub_names(stub: Path) -> list[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(stub)], check=True, capture_output=True, text=True
    ).stdout
    names = [line.split()[-1] for line in listing.splitlines()]
    return sorted(name for name in names if re.match(r"cu[A-Z]", name))


def typed_rows(include: Path) -> dict[str, dict[int, str]]:
    """Base name -> version -> parameter list, from the typedefs."""
    text = (include / "cudaTypedefs.h").read_text(encoding="utf-8", errors="replace")
    rows: dict[str, dict[int, str]] = {}
    pattern = r"typedef CUresult \(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_pt(?:ds|sz))?\)\((.*?)\);"
    for base, version, params in re.findall(pattern, text):
        rows.setdefault(base, {})[int(version)] = params
    # A plain row that the typedefs give only as a per-thread one has its real version in the
    # macro that picks between the two.
    picks = re.findall(
        r"#define PFN_(cu\w+)\s+__API_TYPEDEF_PT[DS][SZ]\(PFN_\w+,\s*(\d+),\s*(\d+)\)", text
    )
    for base, plain, twin in picks:
        known = rows.setdefault(base, {})
        if int(twin) != int(plain) and int(twin) in known:
            params = known.pop(int(twin))
            known.setdefault(int(plain), params)
    return rows


def header_params(include: Path, name: str) -> str:
    text = "".join(
        (include / header).read_text(encoding="utf-8", errors="replace")
        for header in ("cuda.h", "cudaProfiler.h")
    )
    found = re.search(r"CUresult(?: CUDAAPI)? " + name + r"\(\s*(.*?)\);", text, re.S)
    if not found:
        raise SystemExit(f"no prototype for {name}")
    return found.group(1)


def split_params(params: str) -> list[str]:
    params = " ".join(params.split())
    if params in ("", "void"):
        return []
    return [part.strip() for part in params.split(",")]


def param_name(param: str) -> str:
    found = re.search(r"(\w+)(\[\d*\])?$", param)
    if not found:
        raise SystemExit(f"no name in {param}")
    return found.group(1)


def print_errors(include: Path) -> None:
    text = (include / "cuda.h").read_text(encoding="utf-8", errors="replace")
    start = text.index("typedef enum cudaError_enum")
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" *")
    print(" * Written by gen_api.py --errors: every CUresult.")
    print(" */")
    for name in re.findall(r"\b(CUDA_\w+)\s*=", text[start : text.index("} CUresult", start)]):
        print(f"ERROR({name})")


def main() -> None:
    if sys.argv[1] == "--errors":
        print_errors(Path(sys.argv[2]))
        return
    include, stub = Path(sys.argv[1]), Path(sys.argv[2])
    typed = typed_rows(include)
    print("/* SPDX-License-Identifier: Apache-2.0")
    print(" *")
    print(" * Written by gen_api.py: every driver symbol, API(elf, impl, base, version,")
    print(" * per_thread, params, args). A row whose sim_<impl> nobody defines answers")
    print(" * CUDA_ERROR_NOT_SUPPORTED.")
    print(" */")
    print("/* clang-format off */")
    for elf in stub_names(stub):
        impl = TWIN.sub("", elf)
        base = SUFFIX.sub("", elf)
        twin = impl != elf
        versions = typed.get(base)
        if versions:
            index = int(m.group(1)) - 1 if (m := re.search(r"_v(\d+)$", impl)) else 0
            version = sorted(versions)[index]
            raw = versions[version]
        else:
            version = UNTYPED_VERSIONS[base]
            raw = header_params(include, base)
        params = split_params(raw)
        args = ", ".join(param_name(param) for param in params)
        version = max(version, 7000) if twin else version
        decl = ", ".join(params) or "void"
        print(f"API({elf}, {impl}, {base}, {version}, {int(twin)}, ({decl}), ({args}))")


if __name__ == "__main__":
    main()
