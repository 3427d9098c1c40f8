"""`explain`: the fusion pass' changes of a function, and the reasons where it made none."""

from __future__ import annotations

from typing import Any

from metal_ops.fusion import _native
from metal_ops.fusion.explanation import Explanation, Fusion, Miss, Node

__all__ = ["explain"]


def explain(fn: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Reports the fusion pass' changes of a function under the present switches, without running the function.

    TensorFlow inlines and places the function as before its first run, and the pass itself reports: the nodes that
    became one, and for each other Conv2D, MatMul and norm, gate or attention the condition that failed.

    Args:
      fn: A `tf.function`, a concrete function such as a signature of a SavedModel, a Keras model, or any function of
        tensors.
      *args: Arguments to trace it with: tensors, arrays or `tf.TensorSpec`s. None for a concrete function.
      **kwargs: The same by name.

    Returns:
      An `Explanation`: print it, `save` it as a page, or look into `fused` and `missed`.

    Raises:
      TypeError: `fn` cannot be called.
      RuntimeError: TensorFlow cannot place the function.

    Example:
      >>> def block(x, filters, shift):
      ...     return tf.nn.relu(tf.nn.conv2d(x, filters, strides=1, padding="SAME") + shift + x)
      >>> with metal_ops.fusion.enabled(cpu=True):
      ...     found = metal_ops.fusion.explain(
      ...         block, tf.TensorSpec([None, 8, 8, 4]), tf.ones([3, 3, 4, 4]), tf.ones([4]))
      >>> found.fused[0].fused_op, found.fused[0].fused_ops
      ('MetalFusedConv2D', ['BiasAdd', 'Add', 'Relu'])
    """
    import tensorflow as tf

    concrete = _concrete(tf, fn, args, kwargs)
    definition = concrete.function_def
    asked = placing_request(tf, concrete, definition)
    reply = _native.explain(asked.SerializeToString())
    for node in [*reply["before"], *reply["after"]]:
        node["dtype"] = tf.as_dtype(node["dtype"]).name if node["dtype"] else ""
    if definition.attr["_XlaMustCompile"].b:
        _leave_to_xla(reply)
    return Explanation(
        function=_name(fn, definition),
        before=[Node(**node) for node in reply["before"]],
        after=[Node(**node) for node in reply["after"]],
        fused=[Fusion(**fusion) for fusion in reply["fused"]],
        missed=[Miss(**miss) for miss in reply["missed"]],
    )


def placing_request(tf: Any, concrete: Any, definition: Any) -> Any:
    """The request of graph/placed.h, in a GraphDef: functions, devices, arguments."""
    request = tf.compat.v1.GraphDef()
    request.library.CopyFrom(concrete.graph.as_graph_def().library)
    if definition.signature.name not in {f.signature.name for f in request.library.function}:
        request.library.function.append(definition)
    request.node.add(op="Function", name=definition.signature.name)
    for device in tf.config.list_logical_devices():
        full = f"/job:localhost/replica:0/task:0{device.name}"
        request.node.add(op="Device", name=full, device=device.device_type)
    captured = list(concrete.captured_inputs)
    for index, tensor in enumerate(concrete.inputs):
        late = index - (len(concrete.inputs) - len(captured))
        _describe(request.node.add(op="_Arg"), tensor, captured[late] if late >= 0 else None)
    return request


def _leave_to_xla(reply: dict[str, Any]) -> None:
    """TensorFlow hands such a function to XLA as a whole: the pass never sees it."""
    ops = {node["name"]: node["op"] for node in reply["before"]}
    roots = [each["root"] for each in (*reply["fused"], *reply["missed"])]
    reason = "The function is compiled by XLA (jit_compile=True), which fuses by itself."
    reply["missed"] = [
        {"root": root, "op": ops[root], "condition": "xla", "reason": reason} for root in roots
    ]
    reply["fused"] = []
    reply["after"] = [dict(node) for node in reply["before"]]


def _concrete(tf: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(fn, tf.types.experimental.ConcreteFunction):
        if args or kwargs:
            raise TypeError(
                "metal_ops.fusion.explain: fn is a concrete function, which has its arguments already; "
                f"got {len(args) + len(kwargs)} more."
            )
        return fn
    if hasattr(fn, "get_concrete_function"):
        return fn.get_concrete_function(*args, **kwargs)
    if not callable(fn):
        raise TypeError(
            f"metal_ops.fusion.explain: fn: expected a function, got {type(fn).__name__}."
        )
    return tf.function(fn).get_concrete_function(*args, **kwargs)


def _describe(node: Any, tensor: Any, captured: Any) -> None:
    """Writes TensorFlow's facts of an argument when it instantiates the function: shape, or variable's shape."""
    if tensor.dtype != "resource":
        node.attr["_output_shapes"].list.shape.append(tensor.shape.as_proto())
        return
    if captured is not None:
        node.device = captured.device
    # No public name: the shape of a handle's variable. Without it shapes of variables count as unknown.
    for each in (captured, tensor):
        data = getattr(each, "_handle_data", None)
        if data is not None and data.is_set:
            node.attr["_handle_dtypes"].list.type.extend(s.dtype for s in data.shape_and_type)
            node.attr["_handle_shapes"].list.shape.extend(s.shape for s in data.shape_and_type)
            return


def _name(fn: Any, definition: Any) -> str:
    for attribute in ("__name__", "name"):
        name = getattr(fn, attribute, None)
        if isinstance(name, str) and not name.startswith("__inference"):
            return name
    return definition.signature.name
