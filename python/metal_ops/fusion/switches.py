"""Switching fusion on and off, all of it or single patterns."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator

from metal_ops.fusion import _native

__all__ = ["Pattern", "Status", "disable", "disabled", "enable", "enabled", "patterns", "status"]


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A registered pattern.

    Attributes:
      name: For `enable(patterns=...)`.
      kind: "root" begins a chain, "prologue" and "epilogue" extend it; "expression" is one of its own; "update" changes
        variables.
      ops: The ops that it looks for.
      summary: Its matches, in a sentence.
      before: Drawing of the graph before.
      after: Drawing of the graph after.
      enabled: Whether it is switched on.
    """

    name: str
    kind: str
    ops: list[str]
    summary: str
    before: str
    after: str
    enabled: bool


@dataclasses.dataclass(frozen=True)
class Status:
    """The switches, and the counts of this process.

    Attributes:
      enabled: Whether functions that are run for the first time are looked at.
      cpu: Whether nodes on the CPU are fused too.
      patterns: Names of the patterns that are on.
      graphs: Graphs with candidates that were looked at.
      fused: Chains of nodes that became one node.
      errors: Graphs that were left as they were because looking at them failed; the log says why.
    """

    enabled: bool
    cpu: bool
    patterns: list[str]
    graphs: int
    fused: int
    errors: int


def patterns() -> list[Pattern]:
    """The registered patterns: roots, prologues, epilogues in the order in which they may follow, expressions, updates.

    Args:
      None.

    Returns:
      One `Pattern` each, with drawings.

    Example:
      >>> [pattern.name for pattern in metal_ops.fusion.patterns() if pattern.kind == "root"]
      ['conv2d', 'matmul']
    """
    found = []
    for fields in _native.patterns():
        drawings = {name: fields[name].strip("\n") for name in ("before", "after")}
        found.append(Pattern(**{**fields, **drawings, "ops": fields["ops"].split(",")}))
    return found


def status() -> Status:
    """The switches that are on, and the number of fusions so far.

    Args:
      None.

    Returns:
      A `Status`.

    Example:
      >>> metal_ops.fusion.status().enabled
      True
    """
    names = [pattern["name"] for pattern in _native.patterns() if pattern["enabled"]]
    return Status(patterns=names, **_native.state())


def enable(patterns: str | Iterable[str] | None = None, cpu: bool = False) -> None:
    """Switches fusion on, as it is by default: on nodes that TensorFlow places on the Metal device.

    A `tf.function` is optimized when it is run for the first time with arguments of a kind, and keeps the result:
    switches act on functions that have not been run yet.

    Args:
      patterns: Names of the patterns to use, as `patterns()` lists them, also in one text with commas; None means all.
        If no root is among them all roots are used, and if no epilogue is among them all epilogues.
      cpu: Whether nodes on the CPU are fused too. TensorFlow has fused kernels of its own there: this is for tests.

    Returns:
      None.

    Raises:
      ValueError: There is no such pattern.

    Example:
      >>> metal_ops.fusion.enable(patterns=["bias", "residual"])
      >>> metal_ops.fusion.status().patterns
      ['conv2d', 'matmul', 'bias', 'residual']
      >>> metal_ops.fusion.enable()
    """
    kinds = {pattern["name"]: pattern["kind"] for pattern in _native.patterns()}
    if isinstance(patterns, str):
        patterns = [name.strip() for name in patterns.split(",")]
    wanted = set(kinds) if patterns is None else set(patterns)
    if unknown := sorted(wanted - set(kinds)):
        raise ValueError(
            f"metal_ops.fusion: patterns: no pattern {', '.join(map(repr, unknown))}; "
            f"expected some of {', '.join(kinds)}."
        )
    for kind in ("root", "epilogue"):
        of_kind = {name for name in kinds if kinds[name] == kind}
        if not wanted & of_kind:
            wanted |= of_kind
    for name in kinds:
        _native.set_pattern(name, name in wanted)
    _native.set_switches(True, cpu)


def disable() -> None:
    """Switches fusion off, for functions that are run for the first time from now on.

    Args:
      None.

    Returns:
      None.

    Example:
      >>> metal_ops.fusion.disable()
      >>> metal_ops.fusion.status().enabled
      False
      >>> metal_ops.fusion.enable()
    """
    _native.set_switches(False, False)


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    before = status()
    try:
        yield
    finally:
        for name in [pattern["name"] for pattern in _native.patterns()]:
            _native.set_pattern(name, name in before.patterns)
        _native.set_switches(before.enabled, before.cpu)


@contextlib.contextmanager
def enabled(patterns: str | Iterable[str] | None = None, cpu: bool = False) -> Iterator[None]:
    """`enable` for the length of a `with` block, in the whole process.

    Args:
      patterns: As in `enable`.
      cpu: As in `enable`.

    Returns:
      A context manager.

    Raises:
      ValueError: There is no such pattern.

    Example:
      >>> dense = tf.function(lambda x, w, b: tf.nn.relu(tf.matmul(x, w) + b))
      >>> before = metal_ops.fusion.status().fused
      >>> with metal_ops.fusion.enabled(cpu=True):
      ...     y = dense(tf.ones([2, 3]), tf.ones([3, 4]), tf.ones([4]))
      >>> metal_ops.fusion.status().fused - before
      1
    """
    with _restored():
        enable(patterns, cpu)
        yield


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """`disable` for the length of a `with` block, in the whole process.

    Args:
      None.

    Returns:
      A context manager.

    Example:
      >>> with metal_ops.fusion.disabled():
      ...     print(metal_ops.fusion.status().enabled)
      False
      >>> metal_ops.fusion.status().enabled
      True
    """
    with _restored():
        disable()
        yield


def configure_from_environment() -> None:
    """Reads METAL_OPS_FUSION: 1 (as without it), 0 (off), or patterns with commas. `import metal_ops` calls it.

    Raises:
      ValueError: It names a pattern that does not exist.

    Example:
      >>> os.environ["METAL_OPS_FUSION"] = "conv2d, bias"
      >>> metal_ops.fusion.configure_from_environment()
      >>> metal_ops.fusion.status().patterns
      ['conv2d', 'bias']
      >>> del os.environ["METAL_OPS_FUSION"]
      >>> metal_ops.fusion.enable()
    """
    asked = os.environ.get("METAL_OPS_FUSION", "").strip()
    if asked in ("", "1"):
        return
    if asked == "0":
        disable()
        return
    try:
        enable(asked)
    except ValueError as error:
        raise ValueError(f"{error} METAL_OPS_FUSION is {asked!r}; it may also be 0 or 1.") from None
