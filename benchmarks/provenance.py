"""The sources of a figure, its time, and the machine's other load. Read by the documentation's build, too."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The sources of a group's figures, besides those of all: the kernels of its name, unless there is another entry here.
SOURCES = {
    "device_ops": ("device", "hostmetal"),
    "encodings": ("kernels/sh_encode", "kernels/frequency_encode"),
    "fused_mlp": ("kernels/fused_mlp", "kernels/fused_matmul"),
    "fused_conv": ("kernels/fused_conv2d", "kernels/fused_matmul", "device", "hostmetal"),
    "package": ("graph", "python/metal_ops/package"),
    "expressions": (
        *("graph", "kernels/row_norm", "kernels/swiglu", "kernels/attention"),
        *("kernels/fused_conv2d", "kernels/fused_matmul", "device", "hostmetal"),
    ),
    "fusion_first_call": ("graph", "kernels/fused_conv2d", "kernels/fused_matmul"),
    "hostmetal": ("kernels/hash_encode", "hostmetal"),
    "language": ("kernels/swiglu", "kernels/rope"),
    "losses": ("kernels/robust_loss", "kernels/focal_loss", "kernels/scale_slope"),
    "metal_kernel": ("kernels/metal_kernel", "python/metal_ops/kernel", "device", "hostmetal"),
    "nerf": ("kernels", "python/metal_ops/nerf"),
    "ops": ("kernels", "device", "hostmetal"),
    "shader_compiler": ("python/metal_ops/metal", "hostmetal/msl"),
    "optimizers": ("kernels/fused_optimizer",),
    "quantized": ("kernels/quantized_matmul",),
    "rays": (
        *("kernels/volume_render", "kernels/packed_scan", "kernels/distortion_loss"),
        "kernels/ray_march",
    ),
}
SHARED = tuple(f"kernels/{room}" for room in ("gemm", "losses", "msl", "rays", "runtime", "simd"))


def sources(group: str) -> list[str]:
    """The folders whose changes may change a group's figures."""
    return [*SOURCES.get(group, (f"kernels/{group}",)), *SHARED]


def git(*arguments: str, root: Path = ROOT) -> str:
    """The output of git, "" where there is no git or it does not know."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def now(group: str) -> dict[str, Any]:
    """Commit, date and load of a measurement that begins."""
    commit = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *sources(group))
    return {
        "commit": commit + " and changes that were not committed" * bool(commit and changed),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 2),
    }


def said(measured: dict[str, Any], cores: str) -> str:
    """A sentence on when a result was measured."""
    return (
        f"Measured at {measured['commit']} on {measured['date']}; the load before was {measured['load']} "
        f"on {cores} cores."
    )


def changes_since(group: str, commit: str, root: Path = ROOT) -> str:
    """A sentence if the sources of a group's figures have changed after they were measured; "" if not."""
    commit = commit.split(" ")[0]
    if not commit:
        return ""
    if not git("cat-file", "-t", commit, root=root):
        return "Whether its kernels have changed since cannot be told: that commit is not in this checkout."
    dates = git("log", "--format=%cs", f"{commit}..HEAD", "--", *sources(group), root=root).split()
    if not dates:
        return ""
    times = f"{len(dates)} times" if len(dates) > 1 else "once"
    return f"Its kernels have changed {times} since, on {dates[0]} last: today's figures may be others."
