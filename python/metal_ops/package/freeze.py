"""A placed graph with its variables' values in it: nodes that read a variable become nodes that pass its value on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from metal_ops.package.errors import PackageError
from metal_ops.package.function import ENTRY

# Ops that pass a variable's handle on as it is, by the attribute that says so.
PASS = {
    "Identity": "T",
    "Enter": "T",
    "Exit": "T",
    "NextIteration": "T",
    "Switch": "T",
    "Merge": "T",
}
ASSIGNS = (
    *(
        "AssignVariableOp",
        "AssignAddVariableOp",
        "AssignSubVariableOp",
        "ResourceStridedSliceAssign",
    ),
    *(
        "ResourceScatterAdd",
        "ResourceScatterUpdate",
        "ResourceScatterNdUpdate",
        "ResourceScatterNdAdd",
    ),
)
REFUSED = {
    **dict.fromkeys(("PyFunc", "PyFuncStateless", "EagerPyFunc"), "calls Python"),
    **dict.fromkeys(
        ("LookupTableFindV2", "LookupTableSizeV2", "HashTableV2", "MutableHashTableV2"),
        "uses a lookup table, whose content is not in the graph",
    ),
    **dict.fromkeys(
        ("RngReadAndSkip", "StatefulUniform"), "uses a tf.random.Generator, whose state changes"
    ),
    "VarHandleOp": "makes a variable",
    "MetalKernelByHandle": "runs a kernel that only this process knows",
}
DEVICE_PREFIX = "/job:localhost/replica:0/task:0"


def source(name: str) -> tuple[str, int]:
    """An input's node and output: ("conv", 1) of "conv:1", ("conv", -1) of "^conv"."""
    if name.startswith("^"):
        return name[1:], -1
    node, _, output = name.partition(":")
    return node, int(output or 0)


def refuse_what_is_not_in_the_graph(graph: Any) -> None:
    """Raises PackageError for nodes whose meaning lies in this process."""
    for node in each_node(graph):
        if node.op in REFUSED:
            raise PackageError(
                f"[package.save] {node.name}: the op {node.op} {REFUSED[node.op]}; take it out of the function, or "
                "do it before and after."
            )


def each_node(graph: Any) -> Iterator[Any]:
    """The nodes of a GraphDef and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def clean(graph: Any) -> None:
    """Leaves out entries for this process' TensorFlow alone, and functions that nothing calls."""
    for node in each_node(graph):
        for name in [name for name in node.attr if name in _PRIVATE or name.startswith("_handle_")]:
            del node.attr[name]
        node.device = node.device.removeprefix(DEVICE_PREFIX)
        node.ClearField("experimental_debug_info")
    by_name = {function.signature.name: function for function in graph.library.function}
    reached: set[str] = set()
    waiting = [*_called(graph.node), ENTRY]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            waiting += _called(by_name[name].node_def)
    kept = [by_name[name] for name in sorted(reached)]
    library = tf.compat.v1.GraphDef().library
    library.function.extend(kept)
    graph.library.CopyFrom(library)


_PRIVATE = frozenset(
    [
        "_class",
        "_output_shapes",
        "_user_specified_name",
        "_gradient_op_type",
        "_read_only_resource_inputs",
    ]
)


def _called(nodes: Any) -> Iterator[str]:
    for node in nodes:
        yield node.op
        for value in node.attr.values():
            if value.HasField("func"):
                yield value.func.name
            for function in value.list.func:
                yield function.name


def resolve_variables(graph: Any, variables: dict[str, Any]) -> None:
    """Has nodes take the values of variables in place of the variables.

    Args:
      graph: A placed GraphDef without functions that take variables.
      variables: The dtype of the value by the name of the node that is the variable's handle; that node is to become
        its value.

    Raises:
      PackageError: A node does with a variable a thing that a value does not allow.
    """
    nodes = {node.name: node for node in graph.node}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in dict.fromkeys(source(each)[0] for each in node.input if each[0] != "^"):
            readers.setdefault(name, []).append(node)
    waiting = list(variables.items())
    seen = set(variables)
    added = []
    while waiting:
        name, dtype = waiting.pop()
        for node in readers.get(name, []):
            kind = dtype.as_datatype_enum
            if node.op in PASS and node.attr["T"].type == tf.resource.as_datatype_enum:
                node.attr["T"].type = kind
                if node.name not in seen:
                    seen.add(node.name)
                    waiting.append((node.name, dtype))
            elif node.op == "ReadVariableOp":
                _become(node, "Identity", {"T": kind})
            elif node.op == "VariableShape":
                _become(node, "Shape", {"T": kind, "out_type": node.attr["out_type"].type or 3})
            elif node.op == "ResourceGather":
                added.append(_gather(node, kind))
            elif node.op == "ResourceGatherNd":
                _become(node, "GatherNd", {"Tparams": kind, "Tindices": node.attr["Tindices"].type})
            elif node.name not in seen and node.op not in PASS:
                _refuse(node)
    graph.node.extend(added)
    for node in nodes.values():
        if node.op in ("Placeholder", "_Arg") and node.name not in variables:
            continue
        if node.op in PASS and node.attr["T"].type == tf.resource.as_datatype_enum:
            _refuse(node)


def _refuse(node: Any) -> None:
    if node.op in ASSIGNS:
        raise PackageError(
            f"[package.save] {node.name}: the op {node.op} changes a variable, and a package's weights stay as they "
            "are; give the state as an argument and return it."
        )
    raise PackageError(
        f"[package.save] {node.name}: the op {node.op} takes a variable itself, and a package has values only; read "
        "the variable before (tf.convert_to_tensor), or take the op out of the function."
    )


def _become(node: Any, op: str, types: dict[str, int]) -> None:
    node.op = op
    for name in [*node.attr]:
        del node.attr[name]
    for name, kind in types.items():
        node.attr[name].type = kind


def _gather(node: Any, kind: int) -> Any:
    """Makes GatherV2 of ResourceGather; returns the constant that is its axis."""
    batch_dims, indices = node.attr["batch_dims"].i, node.attr["Tindices"].type
    _become(node, "GatherV2", {"Tparams": kind, "Tindices": indices, "Taxis": 3})
    node.attr["batch_dims"].i = batch_dims
    axis = constant(f"{node.name}/axis", batch_dims, tf.int32)
    axis.device = node.device
    # In a loop's frame: a constant runs there if it waits for something of that frame.
    axis.input.append(f"^{source(node.input[1])[0]}")
    controls = [each for each in node.input if each[0] == "^"]
    node.input[:] = [*node.input[:2], axis.name, *controls]
    return axis


def constant(name: str, value: Any, dtype: Any) -> Any:
    """A Const node."""
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
    return node


def placeholder(name: str, dtype: Any, shape: tf.TensorShape) -> Any:
    """A Placeholder node."""
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())
    return node
