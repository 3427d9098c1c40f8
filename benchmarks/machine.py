"""The machine of the figures: processor, caches, versions. No names of hosts or users."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path


def describe() -> dict[str, str]:
    """The machine and the versions of the measured libraries."""
    return {
        "cpu": _cpu(),
        "cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "caches": _caches(),
        "simd": _simd(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("tensorflow-cpu", "numpy")),
    }


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _field(name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match.group(1).strip() if match else ""


def _cpu() -> str:
    model = _field("model name") or platform.processor() or "unknown"
    family = _field("cpu family")
    return f"{model} (family {family}, model {_field('model')})" if family else model


def _simd() -> str:
    flags = set(_field("flags").split())
    for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")):
        if flag in flags:
            return name
    return "NEON" if platform.machine() in ("aarch64", "arm64") else "none"


def _caches() -> str:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _read(f"{index}/type").strip()
        if kind != "Instruction":
            found.append(f"L{_read(f'{index}/level').strip()} {_read(f'{index}/size').strip()}")
    return ", ".join(found) or "unknown"


def _memory() -> str:
    match = re.search(r"MemTotal:\s*(\d+) kB", _read("/proc/meminfo"))
    return f"{int(match.group(1)) / 2**20:.0f} GiB" if match else "unknown"
