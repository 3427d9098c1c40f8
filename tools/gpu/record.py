"""A pytest plugin: keeps every launch of tests/msl, with its arguments and results, to be run again on a GPU.

    python -m pytest -p tools.gpu.record tests/msl        # into $GPU_RECORD

`launches.json` lists them, `data` has the bytes: of each launch its buffers before, its constants, its buffers after.
`left_out.json` says which tests' launches are not kept, and why.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np

import metal_ops.metal
from metal_ops.metal import compiler, launch

OUT = Path(os.environ["GPU_RECORD"])
TARGETS = ("sm_80", "sm_90")
# Each of these launches would end the process that replays it, and the next one starts anew.
LEFT_OUT = {
    "test_vectors_need_no_more_alignment_than_their_elements": "a vector in memory lies at a multiple of its size",
}
LAUNCHES: list[dict[str, Any]] = []
ONE_AT_A_TIME = threading.Lock()  # a test launches from several threads
LIBRARIES: dict[str, str] = {}

_compile_object, _init, _run = compiler.compile_object, launch.Library.__init__, launch.Kernel.run


def compile_object(
    file: str, options: compiler.Options, text: str | None = None
) -> tuple[bytes, str]:
    return _compile_object(file, dataclasses.replace(options, gpu=TARGETS), text)


def init(self: launch.Library, path: str | os.PathLike[str], checked: bool = False) -> None:
    _init(self, path, checked)
    self.recorded_as = None if checked else str(path)  # type: ignore[attr-defined]


def run(
    self: launch.Kernel, threads: Any, threadgroup: Any = 64, buffers: Any = None, **options: Any
) -> None:
    before = {i: None if b is None else np.array(b, copy=True) for i, b in (buffers or {}).items()}
    _run(self, threads, threadgroup, buffers, **options)
    with ONE_AT_A_TIME:
        keep(self, threads, threadgroup, buffers, before, **options)


def keep(
    self: launch.Kernel, threads: Any, threadgroup: Any, buffers: Any, before: dict, **options: Any
) -> None:
    constants = options.get("constants") or {}
    path = self._library.recorded_as  # type: ignore[attr-defined]
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
    if (
        path is None
        or any(f"::{name}[" in test for name in LEFT_OUT)
        or options.get("textures")
        or options.get("samplers")
        or any(b is None for b in before.values())
    ):
        return
    if path not in LIBRARIES:
        LIBRARIES[path] = f"{len(LIBRARIES)}.metallib"
        shutil.copy(path, OUT / LIBRARIES[path])
    types = {c["index"]: c["data_type"] for c in self.constants}
    row: dict[str, Any] = {
        "test": test,
        "library": LIBRARIES[path],
        "kernel": self.name,
        "threads": launch._three(threads),
        "group": launch._three(threadgroup),
        "buffers": [],
        "constants": [],
        "threadgroup": [list(item) for item in (options.get("threadgroup_memory") or {}).items()],
    }
    with (OUT / "data").open("ab") as data:
        for i, array in sorted(before.items()):
            # For a struct its fields: bytes between them may be anything.
            row["buffers"].append([i, array.nbytes, np.lib.format.dtype_to_descr(array.dtype)])
            data.write(array.tobytes())
        for i, value in constants.items():
            if i in types:
                raw = np.asarray(value).tobytes()
                row["constants"].append([i, types[i], len(raw)])
                data.write(raw)
        for i in sorted(before):
            data.write(np.asarray(buffers[i]).tobytes())
    LAUNCHES.append(row)


def pytest_configure() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "data").write_bytes(b"")
    metal_ops.metal.compile_object = compiler.compile_object = compile_object
    launch.Library.__init__, launch.Kernel.run = init, run  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    (OUT / "launches.json").write_text(json.dumps(LAUNCHES))
    (OUT / "left_out.json").write_text(json.dumps(LEFT_OUT))
