"""Shaders of `metal_kernel` and `metal_library` that are text in a graph: compiled, and put into it again."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from typing import Any

from metal_ops.kernel import compiler as runtime
from metal_ops.kernel.library import MAGIC
from metal_ops.metal import compiler, gpu, toolchain
from metal_ops.package.errors import PackageError
from metal_ops.package.freeze import each_node

OP = "MetalKernel"
_REFERENCE = b"package:"


def default_targets(device: Any) -> tuple[str, ...]:
    """The compiler's own processor, and the GPUs it knows if the package is for a GPU."""
    on_gpu = device is not None and device.has_own_memory
    return (toolchain.default_target(), *(gpu.TARGETS if on_gpu else ()))


def split(targets: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The processor and the GPUs.

    Raises:
      PackageError: A GPU that the compiler does not know, or two processors.
    """
    gpus = tuple(target for target in targets if target.startswith("sm_"))
    unknown = [target for target in gpus if target not in gpu.TARGETS]
    processors = [target for target in targets if target not in gpus]
    if unknown:
        raise PackageError(
            f"[package.save] targets: expected GPUs {' or '.join(gpu.TARGETS)}, got {unknown[0]!r}."
        )
    if len(processors) > 1:
        raise PackageError(
            f"[package.save] targets: expected one processor (and GPUs), got {' and '.join(processors)}; save a "
            "package for each."
        )
    return (processors[0] if processors else None), gpus


def take_out(graph: Any, targets: Sequence[str]) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """Compiles shaders that are text, and leaves references in the graph.

    Args:
      graph: A GraphDef, changed.
      targets: A processor of clang's -march, and GPUs.

    Returns:
      The members by name, and the manifest's entries for them.

    Raises:
      PackageError: There is no compiler, or it refuses.
    """
    members: dict[str, bytes] = {}
    described: dict[str, dict[str, Any]] = {}
    by_text: dict[tuple[bytes, bool], tuple[str, list[str]]] = {}
    processor, gpus = split(targets)
    for node in each_node(graph):
        source = node.attr["source"].s if node.op == OP else b""
        if not source:
            continue
        fast_math = node.attr["fast_math"].b
        key = (source, fast_math)
        function = node.attr["function"].s.decode()
        if key not in by_text:
            is_text = not source.startswith(MAGIC)
            if is_text and sys.platform == "darwin":
                # Apple's compiler keeps the code of a text for the machine it runs on.
                compiled, made_for = source, ["source"]
            elif is_text:
                compiled = _compile(function, source, fast_math, processor, gpus)
                made_for = [processor or toolchain.default_target(), *gpus]
            else:
                compiled, made_for = source, ["as given"]
            by_text[key] = f"shaders/{hashlib.sha256(compiled).hexdigest()[:16]}.metallib", made_for
            members[by_text[key][0]] = compiled
        name, made_for = by_text[key]
        entry = described.setdefault(name, {"member": name, "functions": [], "targets": made_for})
        if function not in entry["functions"]:
            entry["functions"].append(function)
        node.attr["source"].s = _REFERENCE + name.encode()
    return members, [*described.values()]


def _compile(
    function: str, source: bytes, fast_math: bool, processor: str | None, gpus: tuple[str, ...]
) -> bytes:
    options = compiler.Options(fast_math=fast_math, target=processor, gpu=gpus)
    try:
        made, _ = compiler.compile_object("program_source", options, source.decode())
        return compiler.link([made], processor)
    except compiler.CompileError as error:
        raise PackageError(
            f"[package.save] {function}: its shader cannot be compiled: {error}"
        ) from None


def put_in(graph: Any, members: dict[str, bytes], path: Any) -> None:
    """The inverse of `take_out`.

    Raises:
      PackageError: The graph refers to a shader that there is not.
    """
    for node in each_node(graph):
        if node.op != OP or not node.attr["source"].s.startswith(_REFERENCE):
            continue
        name = node.attr["source"].s.removeprefix(_REFERENCE).decode("utf-8", "replace")
        if name not in members:
            raise PackageError(f"{path}: has no shader {name!r}; save it again.")
        node.attr["source"].s = members[name]


def check(path: Any, name: str, content: bytes, functions: Sequence[str]) -> None:
    """Raises PackageError unless this machine runs a compiled shader, and it has these functions."""
    try:
        found = runtime.functions(name, content, False, {})
    except Exception as error:
        raise PackageError(
            f"{path}: the shader {name} does not fit this machine ({error})."
        ) from None
    missing = [function for function in functions if function not in found]
    if missing:
        raise PackageError(
            f"{path}: the shader {name} has no function {missing[0]!r}; save it again."
        )
