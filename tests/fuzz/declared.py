"""The signatures and declarations of public functions and raw ops. Loads TensorFlow, which calls.py does not."""

from __future__ import annotations

import inspect
import json
from typing import Any

import metal_ops
from metal_ops import raw_ops
from metal_ops.ops import _declared


def read() -> dict[str, dict[str, Any]]:
    """As `calls.Declared`."""
    public = {}
    for name in metal_ops.ops.__all__:
        function = getattr(metal_ops, name)
        if inspect.isfunction(function) and not name.startswith("metal_"):
            said = inspect.signature(function).parameters.values()
            public[name] = {
                p.name: [p.default][p.default is p.empty :] for p in said if p.name != "name"
            }
    raw = {}
    for name in dir(raw_ops):
        op = _declared.declarations().get(name.replace("_", ""))
        if op is not None:
            names = list(inspect.signature(getattr(raw_ops, name)).parameters)
            inputs = {
                key: _tensor(op, given_as) for key, given_as in zip(names, op.inputs, strict=False)
            }
            types = {i.type for i in op.inputs} | {i.variable for i in op.inputs}
            raw[name] = (
                inputs,
                {key: _default(spec) for key, spec in op.attrs.items() if key not in types},
            )
    return {"public": public, "raw": raw}


def _default(spec: str) -> Any:
    kind, text = spec.split()[0], spec.rpartition(" = ")[2] if " = " in spec else ""
    if text:
        return json.loads(text.lower()) if kind in ("int", "float", "bool") else text.strip("'")
    return {"int": 1, "float": 1.0, "bool": True, "string": ""}.get(kind, [])


def _tensor(op: _declared.Declaration, given_as: _declared.Input) -> Any:
    if "*" in given_as.type or op.attrs.get(given_as.type, "").startswith("list("):
        return None
    dtype = "float32" if given_as.variable else op.dtypes(given_as.type)[0].name
    return given_as.shape, dtype, given_as.variable


if __name__ == "__main__":
    print(json.dumps(read(), default=lambda value: value.name))
