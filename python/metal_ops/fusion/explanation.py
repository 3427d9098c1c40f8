"""The result of `metal_ops.fusion.explain`: the graph before and after, the fused ops, and the others with the
reasons."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

_WIDEST = 48  # characters of a column of names

__all__ = ["Explanation", "Fusion", "Miss", "Node"]


@dataclasses.dataclass(frozen=True)
class Node:
    """One node of a graph.

    Attributes:
      name: Its name, unique in its graph.
      op: Its op, e.g. "Conv2D".
      inputs: Where its inputs come from, as TensorFlow writes it: "conv", "split:1", control inputs "^init" last.
      attrs: Attributes as short text, e.g. `{"padding": "SAME", "strides": "[1, 1, 1, 1]"}`.
      device: The device it was placed on, e.g. "GPU:0"; "" if it was not placed.
      shapes: One for each output, e.g. `["[?, 8, 8, 16]"]`; "?" is an unknown dimension, "unknown" an unknown rank.
      dtype: The first output's, e.g. "float32"; "" if it has none.
    """

    name: str
    op: str
    inputs: list[str]
    attrs: dict[str, str]
    device: str
    shapes: list[str]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Fusion:
    """Nodes that became one.

    Attributes:
      pattern: Names of the patterns that matched, from the root on: "conv2d+bias+residual+activation".
      root: Name of the Conv2D, MatMul or BatchMatMulV2 node, of an expression's Rsqrt, Sigmoid or Softmax,
        or of the op by which an update changes the weights.
      removed: Names of the nodes of `before` that are gone or replaced, the root first, the last one of the chain last.
      fused_op: "MetalFusedConv2D" or "MetalFusedMatMul"; an expression's "RowNorm", "Swiglu" or
        "ScaledDotProductAttention"; "Conv2D" where it does nothing but pad its input.
      fused_ops: The steps around the root, e.g. `["Pad", "BiasAdd", "Add", "Relu"]`; an expression's steps.
      node: Name of the new node in `after`: that of the chain's last node.
      added: Names of small helper nodes that were added beside it, e.g. to fold a bias into a batch norm.
      condition: Why the chain ends where it does: the id of the condition that failed on the next node, e.g.
        "one_consumer".
      reason: The same as a sentence that names the nodes.
    """

    pattern: str
    root: str
    removed: list[str]
    fused_op: str
    fused_ops: list[str]
    node: str
    added: list[str] = dataclasses.field(default_factory=list)
    condition: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Miss:
    """A Conv2D, MatMul or BatchMatMulV2 node that was left as it is, or an expression that is nearly one.

    Attributes:
      root: Its name.
      op: Its op.
      condition: Id of the condition that failed, e.g. "one_consumer".
      reason: A sentence that names the nodes.
    """

    root: str
    op: str
    condition: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The fusion pass' changes of a function. Printing it shows a table, a notebook shows the graphs.

    Attributes:
      function: The function's name.
      before: The nodes as the pass gets them: functions inlined, devices assigned.
      after: The nodes as it leaves them.
      fused: The nodes that became one.
      missed: The candidates that were left as they are.

    Example:
      >>> found = Explanation("f", [], [], [], [Miss("conv", "Conv2D", "no_epilogue", "Nothing follows 'conv'.")])
      >>> print(found)
      f: 0 of 1 candidates fused
      <BLANKLINE>
      left as it is  condition    why
      conv           no_epilogue  Nothing follows 'conv'.
      >>> Explanation.from_json(found.to_json()) == found
      True
    """

    function: str
    before: list[Node]
    after: list[Node]
    fused: list[Fusion]
    missed: list[Miss]

    def to_json(self, indent: int | None = None) -> str:
        """All of it as JSON: the attributes, under their names."""
        return json.dumps(dataclasses.asdict(self), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """The inverse of `to_json`."""
        parts: dict[str, Any] = json.loads(text)
        return cls(
            function=parts["function"],
            before=[Node(**each) for each in parts["before"]],
            after=[Node(**each) for each in parts["after"]],
            fused=[Fusion(**each) for each in parts["fused"]],
            missed=[Miss(**each) for each in parts["missed"]],
        )

    def to_html(self) -> str:
        """A page, complete in one file, that draws the graph before and after side by side."""
        from metal_ops.fusion import html

        return html.render(self)

    def save(self, path: str | Path) -> Path:
        """Writes the page of `to_html`, or the JSON of `to_json` if the name ends so; returns the path."""
        path = Path(path)
        as_json = path.suffix == ".json"
        path.write_text(self.to_json(indent=1) if as_json else self.to_html(), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        candidates = len(self.fused) + len(self.missed)
        lines = [f"{self.function}: {len(self.fused)} of {candidates} candidates fused"]
        if self.fused:
            # Not by the lengths of the graphs: nodes that others wait for leave a NoOp, and helpers come in.
            nodes = len({name for fusion in self.fused for name in fusion.removed})
            kinds = Counter(fusion.fused_op for fusion in self.fused).most_common()
            lines[0] += f": {nodes} nodes became {', '.join(f'{n} {op}' for op, n in kinds)}"
        if self.fused:
            lines += ["", *_table(("fused", "into", "chain ends because"), self._fused_rows())]
        if self.missed:
            rows: list[tuple[str, ...]] = [(m.root, m.condition, m.reason) for m in self.missed]
            lines += ["", *_table(("left as it is", "condition", "why"), rows)]
        return "\n".join(lines)

    def _fused_rows(self) -> list[tuple[str, ...]]:
        return [
            (fusion.root, f"{fusion.fused_op}[{', '.join(fusion.fused_ops)}]", fusion.reason)
            for fusion in self.fused
        ]

    def _repr_html_(self) -> str:
        from metal_ops.fusion import html

        return html.frame(self)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], last_width: int = 72) -> list[str]:
    """Aligned columns, the last one wrapped; a name longer than its column has a line of its own."""
    rows = [head, *rows]
    widths = [min(max(len(row[i]) for row in rows), _WIDEST) for i in range(len(head) - 1)]
    lines = []
    for row in rows:
        left = ""
        for place, (cell, width) in enumerate(zip(row[:-1], widths, strict=True)):
            left += cell.ljust(width) + "  "
            if len(cell) > width:
                lines.append(left.rstrip())
                left = " " * sum(each + 2 for each in widths[: place + 1])
        # Not within a name, which is to be searched for.
        wrapped = textwrap.wrap(row[-1], last_width, break_long_words=False) or [""]
        lines.append((left + wrapped[0]).rstrip())
        lines += [" " * len(left) + more for more in wrapped[1:]]
    return lines
