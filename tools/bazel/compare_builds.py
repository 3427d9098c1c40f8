"""Compares two builds of the package: exported symbols, libraries needed, shaders, and the ops and kernels registered
with TensorFlow.

    compare_builds.py <package> <other package>

Prints the differences, one line each, and exits with 1 if there are any.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

MACOS = platform.system() == "Darwin"
LIBRARIES = ["_metal_ops.so", "_metal_kernels.so"]
METALLIBS = ["metal_ops.metallib"]
if not MACOS:
    LIBRARIES += ["libhostmetal.so", "libmetal_device.so"]
    METALLIBS += ["libmetal_device.metallib"]

# Every registered op and kernel that stock TensorFlow does not have.
REGISTRY = """
import ctypes, json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from pathlib import Path
import tensorflow as tf
from google.protobuf import descriptor_pool, message_factory

class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("free", ctypes.c_void_p)]

def message(name, function, *arguments):
    function.restype = ctypes.POINTER(Buffer)
    buffer = function(*arguments).contents
    kind = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("tensorflow." + name))
    return kind.FromString(ctypes.string_at(buffer.data, buffer.length))

folder = Path(tf.sysconfig.get_lib())
library = ctypes.CDLL(str(next(folder.glob("libtensorflow_cc*"))))
framework = ctypes.CDLL(str(next(folder.glob("libtensorflow_framework*"))))
framework.TF_NewStatus.restype = ctypes.c_void_p

def registered():
    status = ctypes.c_void_p(framework.TF_NewStatus())
    kernels = message("KernelList", library.TF_GetAllRegisteredKernels, status).kernel
    ops = message("OpList", library.TF_GetAllOpList).op
    return {f"kernel {k.op} {k.SerializeToString(deterministic=True).hex()}" for k in kernels} | {
        f"op {op.name} {op.SerializeToString(deterministic=True).hex()}" for op in ops}

stock = registered()
import metal_ops, metal_ops.device
assert Path(metal_ops.__file__).parent == Path(sys.argv[1]), metal_ops.__file__
metal_ops.device.load()
print(json.dumps(sorted(registered() - stock)))
"""


def exported(library: Path) -> set[str]:
    """Names of the symbols that other libraries can see."""
    flags = ["-gU"] if MACOS else ["-D", "--defined-only"]
    lines = _run("nm", *flags, str(library)).splitlines()
    return {line.split()[-1] for line in lines if len(line.split()) >= 3}


def needed(library: Path) -> set[str]:
    """Numbered, the libraries that the loader loads with it, as it takes a name that two have from the first.

    The standard library's differ by compiler.
    """
    if MACOS:
        lines = _run("otool", "-L", str(library)).splitlines()[1:]
        found = [Path(line.split()[0]).name for line in lines]
    else:
        found = re.findall(r"NEEDED.*\[(.*)\]", _run("readelf", "-d", str(library)))
    standard = re.compile(r"lib(c|m|gcc_s|stdc\+\+|c\+\+|pthread|dl)\.|ld-")
    found = [name for name in found if not standard.match(name)]
    return {f"{place}. {name}" for place, name in enumerate(found, 1)}


def shaders(library: Path) -> set[str]:
    """Names of the kernels in a shader library."""
    if MACOS:
        listed = _run("xcrun", "-sdk", "macosx", "metal-nm", str(library))
        return {line.split()[-1] for line in listed.splitlines() if line.strip()}
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from metal.launch import Library; "
        "print(json.dumps(sorted(Library(sys.argv[2]).kernels)))"
    )
    return set(json.loads(_run(sys.executable, "-c", program, str(library.parent), str(library))))


def registry(package: Path) -> set[str]:
    """Ops and kernels that the package brings to TensorFlow, with all their attributes."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    out = _run(sys.executable, "-c", REGISTRY, str(package), env=environment)
    return set(json.loads(out.splitlines()[-1]))


def differences(one: Path, other: Path) -> list[str]:
    """The differences between the packages, one per line."""
    found = []
    looks = [(exported, LIBRARIES), (needed, LIBRARIES), (shaders, METALLIBS), (registry, ["."])]
    for look, names in looks:
        for name in names:
            missing = [
                str(package / name) for package in (one, other) if not (package / name).exists()
            ]
            if missing:
                found += [f"{path} is missing" for path in missing]
                continue
            left, right = look((one / name).resolve()), look((other / name).resolve())
            if not left | right:
                found.append(f"{look.__name__} {name}: nothing found")
            found += [
                f"{look.__name__} {name}: only in {one}: {_short(item)}"
                for item in sorted(left - right)
            ]
            found += [
                f"{look.__name__} {name}: only in {other}: {_short(item)}"
                for item in sorted(right - left)
            ]
    return found


def _short(item: str) -> str:
    return item if len(item) < 120 else f"{item[:117]}..."


def _run(*command: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:2])} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    one, other = (Path(argument).resolve() for argument in sys.argv[1:3])
    if not (other / LIBRARIES[0]).exists():
        sys.exit(f"{other} holds no libraries to compare with; run `make build metal` first.")
    found = differences(one, other)
    print(*found, sep="\n")
    print(f"{len(found)} differences between {one} and {other}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
