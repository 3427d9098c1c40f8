"""The stubs, for type checkers and editors: `stub.py <op library> <stub>` writes the types of the ops' generated
functions, `stub.py <folder of ops> <stub>` the names in it.

Needs TensorFlow and the op library, and not the package, which is not installed where a wheel is built.
"""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

TYPES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "str | bytes",
    "type": "Any",
    "shape": "Any",
}


def render(generated: ModuleType) -> str:
    """The stub of the module that `tf.load_op_library` gives."""
    from tensorflow.python.framework import kernels, op_def_registry

    # Functions do not say their op's name, nor does the module.
    names = {kernel.op.lower(): kernel.op for kernel in kernels.get_all_registered_kernels().kernel}
    functions = {
        names[name.replace("_", "")]: function
        for name, function in vars(generated).items()
        if f"{name}_eager_fallback" in vars(generated)
    }
    definitions = {op: op_def_registry.get(op) for op in sorted(functions)}
    results = [text for definition in definitions.values() if (text := _result(definition))]
    made = [_function(functions[op], definition) for op, definition in definitions.items()]
    text = "\n\n".join([*results, *sorted(made)])
    return (
        "# Made by `make build` (tools/reference/stub.py) from the op definitions; do not edit.\n"
        "# ruff: noqa: E501\n"
        "from collections.abc import Sequence\nfrom typing import Any, Literal, NamedTuple\n\n"
        "import tensorflow as tf\n\n" + text + "\n"
    )


def render_ops(folder: Path) -> str:
    """The stub of python/metal_ops/ops: the names that its loop over the files exports."""
    public = sorted(path.stem for path in folder.glob("*.py") if not path.name.startswith("_"))
    return (
        "# Made by `make build` (tools/reference/stub.py) from the files beside it; do not edit.\n"
        + "".join(f"from metal_ops.ops.{name} import *\n" for name in public)
    )


def _function(function: Any, definition: Any) -> str:
    attrs = {attr.name: attr for attr in definition.attr}
    inputs = {arg.name for arg in definition.input_arg}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "name":
            parameters.append("name: str | None = None")
        elif name in inputs:
            parameters.append(f"{name}: Any")
        else:
            default = parameter.default
            shown = "" if default is inspect.Parameter.empty else f" = {_default(default)}"
            parameters.append(f"{name}: {_type(attrs[name])}{shown}")
    python_name = function.__name__
    outputs = definition.output_arg
    result = {0: "tf.Operation | None", 1: "tf.Tensor"}.get(len(outputs), f"_{definition.name}")
    summary = (inspect.getdoc(function) or "").strip().splitlines()[0]
    arguments = ",\n    ".join(parameters)
    summary = textwrap.shorten(summary, 200)
    return f'def {python_name}(\n    {arguments},\n) -> {result}:\n    """{summary}"""'


def _result(definition: Any) -> str:
    """The class that an op of several outputs returns, else ""."""
    outputs = definition.output_arg
    fields = "\n".join(f"    {arg.name}: tf.Tensor" for arg in outputs)
    return f"class _{definition.name}(NamedTuple):\n{fields}" if len(outputs) > 1 else ""


def _type(attr: Any) -> str:
    allowed = [value.decode() for value in attr.allowed_values.list.s]
    if allowed:
        return f"Literal[{', '.join(map(_quoted, allowed))}]"
    if attr.type.startswith("list("):
        return f"Sequence[{TYPES[attr.type[5:-1]]}]"
    return TYPES[attr.type]


def _quoted(text: str) -> str:
    return f'"{text}"'


def _default(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    return "..." if hasattr(value, "as_numpy_dtype") else repr(value)


def main(source: Path, stub: Path) -> None:
    if source.is_dir():
        text = render_ops(source)
    else:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        text = render(tf.load_op_library(str(source.resolve())))
    stub.write_text(text)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
