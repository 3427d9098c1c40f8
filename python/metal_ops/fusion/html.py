"""The HTML view of an explanation: the graph before and after, side by side, in one file that needs no network.

The page is `view.html` with `view.css` and `view.js` beside this file put into it, and the explanation as JSON. The
layout of the graphs is made by the script, so that weights can be shown or left out without rendering again.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metal_ops.fusion.explanation import Explanation, Node

_HERE = Path(__file__).resolve().parent
# Ops that a model's parameters come from; the view leaves them, and values computed from them alone, out at first.
WEIGHT_OPS = frozenset(["Const", "HostConst", "VarHandleOp", "ReadVariableOp", "_VarHandlesOp"])
ATTRIBUTE_LENGTH = 200


def render(explanation: Explanation, title: str | None = None) -> str:
    """Renders an explanation as one self-contained HTML page.

    The page shows the graph before and after, fused regions in one colour on both sides, and the reasons of the rest.
    It can be searched, moved and zoomed, and loads nothing: its content security policy forbids it.

    Args:
      explanation: The result of `metal_ops.fusion.explain`.
      title: The page's title; None for one made of the function's name.

    Returns:
      The page's text, for a file with the suffix ".html".

    Example:
      >>> from metal_ops.fusion.explanation import Explanation
      >>> page = render(Explanation("f", before=[], after=[], fused=[], missed=[]))
      >>> page.splitlines()[0]
      '<!doctype html>'
    """
    content = {
        "before": _nodes(explanation.before),
        "after": _nodes(explanation.after),
        "fused": [dataclasses.asdict(fusion) for fusion in explanation.fused],
        "missed": [dataclasses.asdict(miss) for miss in explanation.missed],
    }
    parts = {
        "title": html.escape(title or f"Fusion of {explanation.function}"),
        "style": (_HERE / "view.css").read_text().strip(),
        "script": (_HERE / "view.js").read_text().strip(),
        # "</script>" in a name would end the data.
        "data": json.dumps(content, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # In one pass: inserted text is not searched again.
    return re.sub(
        r"\$(title|style|script|data)\b",
        lambda found: parts[found[1]],
        (_HERE / "view.html").read_text(),
    )


def frame(explanation: Explanation, height: int = 640) -> str:
    """The same page in an <iframe>, for a notebook: styles and scripts stay inside of it.

    Args:
      explanation: The result of `metal_ops.fusion.explain`.
      height: Height of the frame, in pixels.

    Example:
      >>> from metal_ops.fusion.explanation import Explanation
      >>> frame(Explanation("f", before=[], after=[], fused=[], missed=[]))[:7]
      '<iframe'
    """
    page = html.escape(render(explanation))
    style = f"width:100%;height:{height}px;border:1px solid #8888;border-radius:6px"
    return f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts"></iframe>'


def _nodes(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    weights = _weights(nodes)
    return [
        {
            "name": node.name,
            "op": node.op,
            "inputs": list(node.inputs),
            "attrs": {name: _short(value) for name, value in node.attrs.items()},
            "device": node.device,
            "shape": ", ".join(node.shapes),
            "dtype": node.dtype,
            **({"weight": 1} if node.name in weights else {}),
        }
        for node in nodes
    ]


def _weights(nodes: Sequence[Node]) -> set[str]:
    """Names of nodes that depend on nothing but constants and variables."""
    readers: dict[str, list[str]] = {node.name: [] for node in nodes}
    reached = []  # by data
    for node in nodes:
        sources = [source for each in node.inputs if (source := _source(each)) in readers]
        for source in sources:
            readers[source].append(node.name)
        is_resource = "resource" in str(node.dtype)
        if not sources and node.op not in WEIGHT_OPS and not is_resource:
            reached.append(node.name)
    data = set(reached)
    while reached:
        fresh = [name for name in readers[reached.pop()] if name not in data]
        data.update(fresh)
        reached += fresh
    return set(readers) - data


def _source(text: str) -> str:
    """The name of the node that an input such as "conv", "conv:1" or "^conv" comes from."""
    return re.sub(r":\d+$", "", text.removeprefix("^"))


def _short(text: str) -> str:
    return text if len(text) <= ATTRIBUTE_LENGTH else text[: ATTRIBUTE_LENGTH - 1] + "…"
