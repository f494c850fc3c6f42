# SPDX-License-Identifier: Apache-2.0
"""hooks.def and cuda_abi.h against a cuda.h: the same parameters by class, the same numbers.

The shim declares the driver's functions itself, because cuda.h renames them by macros. What this
header does not know (newer or older than it) is not compared, and said so in one count.

Usage: abi.py CUDA_INCLUDE HOOKS_DEF CUDA_ABI_H CC
"""

import re
import subprocess
import sys
from pathlib import Path

# What a type is to the calling convention. Whatever has a star, and every handle, is a pointer.
CLASSES = {
    "size_t": "u64",
    "unsigned long long": "u64",
    "cuuint64_t": "u64",
    "CUdeviceptr": "u64",
    "CUmemGenericAllocationHandle": "u64",
    "CUipcMemHandle": "64 bytes",
    "int": "i32",
    "unsigned char": "u8",
    "unsigned int": "i32",
    "CUdevice": "i32",
    "CUdevice_v1": "i32",
    "CUdeviceptr_v1": "i32",
    "CUdeviceptr_v2": "u64",
    "CUmemGenericAllocationHandle_v1": "u64",
    "CUipcMemHandle_v1": "64 bytes",
    "CUpointer_attribute": "i32",
    "CUstreamCaptureMode": "i32",
    "CUlimit": "i32",
    "CUmemRangeHandleType": "i32",
    "CUmemPool_attribute": "i32",
    "CUmemAllocationType": "i32",
    "void": "",
}


def type_class(parameter: str) -> str:
    """The class of one parameter as it stands in a prototype, with or without its name."""
    if "*" in parameter:
        return "pointer"
    words = re.sub(r"\b(const|volatile)\b", "", parameter).split()
    for count in range(len(words), 0, -1):
        name = " ".join(words[:count])
        if name in CLASSES:
            return CLASSES[name]
    return "pointer"  # a handle: CUcontext, CUstream ...


def classes(parameters: str) -> list[str]:
    found = [type_class(part) for part in parameters.split(",") if part.strip()]
    return [one for one in found if one]


def header_prototypes(text: str) -> dict[str, list[str]]:
    """Exported name -> classes. Up to the block of old versions, macros rename what is declared."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    start_of_old = [
        match.start()
        for match in re.finditer(r"#if defined\(__CUDA_API_VERSION_INTERNAL\)\s*\n", text)
    ]
    split = start_of_old[-1] if start_of_old else len(text)
    renames = {}
    for base, macro, plain in re.findall(
        r"#\s*define\s+(cu\w+)\s+(?:__CUDA_API_PT(?:SZ|DS)\((cu\w+)\)|(cu\w+))\s*\n", text[:split]
    ):
        renames.setdefault(base, macro or plain)
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^)]*)\)\s*;", text):
        name = match[1] if match.start() > split else renames.get(match[1], match[1])
        found.setdefault(name, classes(" ".join(match[2].split())))
        found.setdefault(name + "_ptsz", found[name])
    return found


def hook_prototypes(text: str) -> dict[str, list[str]]:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    rows = re.findall(r"^(?:HOOK\((\w+),\s*\w+|CALL\((\w+)),\s*\(([^)]*)\)", text, re.MULTILINE)
    return {hook or call: classes(" ".join(params.split())) for hook, call, params in rows}


def compare(header: dict[str, list[str]], hooks: dict[str, list[str]]) -> tuple[list[str], int]:
    """What differs, and how many rows could be compared."""
    wrong = [
        f"{name}: hooks.def has ({', '.join(hooks[name])}), cuda.h ({', '.join(header[name])})"
        for name in hooks
        if name in header and hooks[name] != header[name]
    ]
    return wrong, sum(name in header for name in hooks)


def numbers_program(abi: str) -> str:
    """A C file that compiles only if cuda.h gives the names in cuda_abi.h the same numbers."""
    names = re.findall(r"^\s+(CU\w+) = (\w+),", abi, re.MULTILINE)
    asserts = "".join(f'_Static_assert({name} == {value}, "{name}");\n' for name, value in names)
    return "#include <cuda.h>\n" + asserts


def main() -> int:
    include, hooks_def, cuda_abi_h, compiler = sys.argv[1:]
    cuda_h = Path(include, "cuda.h").read_text(encoding="utf-8", errors="replace")
    header = header_prototypes(cuda_h)
    hooks = hook_prototypes(Path(hooks_def).read_text(encoding="utf-8"))
    wrong, compared = compare(header, hooks)
    abi = Path(cuda_abi_h).read_text(encoding="utf-8")
    command = [compiler, "-std=c17", "-fsyntax-only", "-isystem", include, "-x", "c", "-"]
    result = subprocess.run(command, input=numbers_program(abi), capture_output=True, text=True)
    print(*wrong, result.stderr, sep="\n")
    print(f"{compared} of {len(hooks)} functions are in this cuda.h")
    return 1 if wrong or result.returncode or compared < len(hooks) // 2 else 0


if __name__ == "__main__":
    sys.exit(main())
