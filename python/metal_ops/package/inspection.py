"""`inspect`: the contents of a package, without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from metal_ops.fusion import Explanation
from metal_ops.package import container, manifest
from metal_ops.package.errors import PackageError
from metal_ops.package.freeze import each_node
from metal_ops.package.manifest import spec_of
from metal_ops.package.signature import Spec


@dataclass(frozen=True)
class Inspection:
    """A package's description of itself.

    Attributes:
      path: The file.
      function: The function that was saved.
      made_by: By name the versions of metal_ops and tensorflow, the device and the platform that it was saved for.
      inputs: The function's arguments.
      outputs: Its results.
      ops: How many nodes there are by op.
      fused: The fused nodes: the steps of each, and how many there are.
      weights: The weights that are mapped, the largest first, and the bytes of each.
      bytes: The file's size.
      shaders: By member its kernels and the targets it was compiled for.
      damaged: Members that differ from those saved, by their hashes.

    Example:
      >>> path = metal_ops.package.save(tf.nn.relu, "relu.mpkg", shapes=[[None]])
      >>> found = metal_ops.package.inspect(path)
      >>> found.ops["Relu"], found.damaged
      (1, [])
    """

    path: Path
    function: str
    made_by: dict[str, str]
    inputs: list[Spec]
    outputs: list[Spec]
    ops: dict[str, int]
    fused: dict[str, int]
    weights: list[tuple[Spec, int]]
    bytes: int
    shaders: dict[str, tuple[list[str], list[str]]]
    damaged: list[str]

    def explanation(self) -> Explanation:
        """The graph before, as it was traced, and after, as it is packed, for `save` as a page.

        Raises:
          PackageError: The package has none.
        """
        file = container.open_file(self.path)
        manifest.check(file)
        try:
            return Explanation.from_json(bytes(file.member(manifest.FUSION)).decode())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PackageError(f"{self.path}: its drawing is damaged; save it again.") from None


def inspect(path: str | Path) -> Inspection:
    """Lists the contents of a package. Nothing of it is run.

    Args:
      path: The file that `save` wrote.

    Returns:
      An `Inspection`.

    Raises:
      PackageError: The file is no package, or its manifest is damaged. Other damage is listed.

    Example:
      >>> path = metal_ops.package.save(tf.nn.relu, "relu.mpkg", shapes=[[None, 3]])
      >>> print(metal_ops.package.inspect(path).inputs[0])
      features: float32[?, 3]
    """
    file = container.open_file(Path(path))
    manifest.check(file)
    said = file.manifest
    damaged = []
    for name in said["members"]:
        try:
            file.check(name)
        except PackageError:
            damaged.append(name)
    weights = [(spec, spec.bytes) for spec in map(spec_of, said["weights"])]
    return Inspection(
        path=file.path,
        function=said["function"],
        made_by={name: said[name] for name in ("metal_ops", "tensorflow", "device", "platform")},
        inputs=[spec_of(entry) for entry in said["inputs"]],
        outputs=[spec_of(entry) for entry in said["outputs"]],
        ops=dict(said["ops"]),
        fused=_fused(file) if manifest.GRAPH not in damaged else {},
        weights=sorted(weights, key=lambda each: -each[1]),
        bytes=file.path.stat().st_size,
        shaders={e["member"]: (e["functions"], e["targets"]) for e in said["shaders"]},
        damaged=damaged,
    )


def _fused(file: container.File) -> dict[str, int]:
    try:
        graph: Any = tf.compat.v1.GraphDef.FromString(bytes(file.member(manifest.GRAPH)))
    except Exception:  # protobuf's DecodeError has no public name
        return {}
    counts: dict[str, int] = {}
    for node in each_node(graph):
        if "fused_ops" in node.attr and node.attr["fused_ops"].list.s:
            what = ", ".join(each.decode() for each in node.attr["fused_ops"].list.s)
            name = f"{node.op}[{what}]"
            counts[name] = counts.get(name, 0) + 1
    return counts
