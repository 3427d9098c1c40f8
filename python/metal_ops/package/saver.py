"""`save`: from a function to a package."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops import device as devices
from metal_ops._version import __version__
from metal_ops.fusion import _explain as placing
from metal_ops.fusion import explain
from metal_ops.package import container, freeze, function, manifest, native, shaders, tracing
from metal_ops.package.errors import PackageError
from metal_ops.package.signature import paths, sizes

# Smaller constants stay in the graph: as an argument, one would cost a call more than it saves at load.
EXTERNAL_BYTES = 16 << 10
# Integers of more elements are quantized weights: folding would store their float values.
QUANTIZED_ELEMENTS = 64
# Grappler gets weights that it may fold as constants in a message, which can have 2 GiB.
FOLDABLE_BYTES = 1 << 30
RESULT = "package_result_{}"


def save(
    function_or_saved_model: Any,
    path: str | Path,
    *,
    signature: str = "serving_default",
    shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    specialize: Mapping[str, Any] | None = None,
    device: str | None = None,
    targets: Sequence[str] | None = None,
) -> Path:
    """Packs a function: its graph, inlined, fused and optimized for a device, its weights, its compiled shaders.

    The function is not run. Variables become the values that they have now; quantized ones stay quantized.

    Args:
      function_or_saved_model: A `tf.function`, a concrete function, any function of tensors, a Keras model (at
        inference), or a SavedModel's folder.
      path: The file to write, by convention with the suffix ".mpkg". It appears when it is whole.
      signature: Name of a signature of a SavedModel.
      shapes: Shapes by the names of inputs, or in their order: sizes that are unknown in the function can be fixed, and
        None leaves them open. A function without an input signature is traced with them: `tf.TensorSpec`s, or shapes
        that stand for float32.
      specialize: Values by the names of inputs, which are inputs no more: values that follow from them are computed
        now. A function without an input signature gets Python's numbers and words as they are, and may branch on them.
      device: "CPU" or "METAL"; None for METAL if it is loaded, else the CPU.
      targets: The targets of shaders in Metal: a processor as clang's -march has them ("x86-64-v3"), and GPUs ("sm_80",
        "sm_90"). None for the compiler's own processor, and both GPUs if the device is one.

    Returns:
      The path.

    Raises:
      PackageError: The function changes variables, calls Python, or holds objects that a file cannot; an argument does
        not fit; or the file cannot be written.

    Example:
      >>> def scaled(x, factor):
      ...     return factor * x
      >>> path = metal_ops.package.save(
      ...     scaled, "scaled.mpkg", shapes={"x": [None]}, specialize={"factor": 3.0})
      >>> metal_ops.package.load(path)(tf.constant([1.0, 2.0])).numpy().tolist()
      [3.0, 6.0]
    """
    path = Path(path)
    found_device = _device(device)
    targets = shaders.default_targets(found_device) if targets is None else tuple(targets)
    shaders.split(targets)
    traced = tracing.trace(function_or_saved_model, signature, shapes, specialize or {})
    graph = _placed(traced, "METAL" if found_device else "CPU")
    freeze.refuse_what_is_not_in_the_graph(graph)
    inputs = _bind(graph, traced, shapes, specialize)
    outputs = _results(graph, traced)
    freeze.clean(graph)
    optimized = _optimized(graph, [entry["node"] for entry in outputs], bool(found_device))
    freeze.clean(optimized)
    values = inputs.pop("values")
    entries, parts = _take_weights(optimized, values)
    drawing = _drawing(traced, optimized)
    library, stateful = function.make(optimized, [*inputs["entries"], *entries], outputs)
    freeze.clean(library)
    compiled, shader_entries = shaders.take_out(library, targets)
    counts = Counter(node.op for node in freeze.each_node(library))
    container.write(
        path,
        {
            "format": container.FORMAT,
            "version": container.VERSION,
            "metal_ops": __version__,
            "tensorflow": tf.__version__,
            "device": "METAL" if found_device else "CPU",
            "platform": container.platform_name(),
            "function": traced.name,
            "inputs": inputs["entries"],
            "outputs": outputs,
            "result": traced.result,
            "weights": entries,
            "shaders": shader_entries,
            "ops": dict(sorted(counts.items())),
            "stateful": stateful,
        },
        {
            manifest.WEIGHTS: parts,
            manifest.GRAPH: [library.SerializeToString(deterministic=True)],
            manifest.FUSION: [drawing.encode()],
            **{name: [content] for name, content in compiled.items()},
        },
    )
    return path


def _device(asked: str | None) -> Any:
    """The METAL device, or None for the CPU."""
    loaded = devices.list()
    if asked is None:
        return loaded[0] if loaded else None
    if asked == "CPU":
        return None
    if asked != "METAL":
        raise PackageError(f"[package.save] device: expected 'CPU' or 'METAL', got {asked!r}.")
    if not loaded:
        raise PackageError(
            "[package.save] device: METAL is not loaded; call metal_ops.device.load() before the first op."
        )
    return loaded[0]


def _placed(traced: tracing.Traced, device: str) -> Any:
    concrete = traced.concrete
    request = placing.placing_request(tf, concrete, concrete.function_def)
    if device == "CPU":
        kept = [n for n in request.node if n.op != "Device" or n.device == "CPU"]
        on_cpu = [n.name for n in kept if n.op == "Device"][0]
        for node in kept:
            if node.op == "_Arg" and node.device:
                node.device = on_cpu
        rest = tf.compat.v1.GraphDef(node=kept, library=request.library)
        request.CopyFrom(rest)
    return tf.compat.v1.GraphDef.FromString(native.fuse(request.SerializeToString()))


def _bind(graph: Any, traced: tracing.Traced, shapes: Any, specialize: Any) -> dict[str, Any]:
    """Makes inputs and weights of the arguments; returns the inputs' entries and the weights' values."""
    concrete = traced.concrete
    asked = tracing.by_input("shapes", shapes, traced)
    fixed = tracing.by_input("specialize", specialize, traced)
    captured = list(concrete.captured_inputs)
    arguments = {node.attr["index"].i: node for node in graph.node if node.op == "_Arg"}
    entries, values, handles = [], {}, {}
    replaced = {}
    for index, tensor in enumerate(concrete.inputs):
        node = arguments[index]
        late = index - len(traced.inputs)
        if late >= 0 and tensor.dtype == tf.resource:
            value = _variable(traced, captured[late], node.name, graph)
            handles[node.name] = value.dtype
            values[node.name] = value
            replaced[node.name] = value
        elif late >= 0:
            values[node.name] = replaced[node.name] = captured[late]
        elif traced.inputs[index] in fixed:
            name = traced.inputs[index]
            replaced[node.name] = _fixed(name, fixed[name], tensor)
        else:
            name = traced.inputs[index]
            shape = tensor.shape
            if name in asked:
                shape = tracing.narrowed(name, shape, asked[name])
            if tensor.dtype in (tf.resource, tf.variant):
                raise PackageError(
                    f"[package.save] {name}: expected a tensor of numbers or strings, got {tensor.dtype.name}."
                )
            new = freeze.placeholder(node.name, tensor.dtype, shape)
            new.device = node.device
            node.CopyFrom(new)
            entries.append(
                {"name": name, "dtype": tensor.dtype.name, "shape": sizes(shape), "node": node.name}
            )
    freeze.resolve_variables(graph, handles)
    values = _replace(graph, replaced, values)
    return {"entries": entries, "values": values}


def _replace(graph: Any, replaced: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Constants, or placeholders for values that are not to be folded; returns the values of those."""
    total = sum(_bytes(value) for value in values.values())
    kept = {}
    for node in graph.node:
        if node.name not in replaced:
            continue
        value, where = replaced[node.name], node.device
        quantized = value.dtype.is_integer and value.shape.num_elements() > QUANTIZED_ELEMENTS
        if node.name in values and (quantized or total > FOLDABLE_BYTES):
            kept[node.name] = value
            new = freeze.placeholder(node.name, value.dtype, value.shape)
        else:
            new = freeze.constant(node.name, value.numpy(), value.dtype)
        new.device = where
        node.CopyFrom(new)
    return kept


def _bytes(value: Any) -> int:
    return 0 if value.dtype == tf.string else int(value.shape.num_elements()) * value.dtype.size


def _variable(traced: tracing.Traced, handle: Any, name: str, graph: Any) -> Any:
    """A variable's value."""
    for variable in (*traced.concrete.graph.variables, *traced.concrete.variables):
        if variable.handle is handle:
            return variable.read_value()
    for node in graph.node:
        if node.op == "ReadVariableOp" and freeze.source(node.input[0])[0] == name:
            dtype = tf.as_dtype(node.attr["dtype"].type)
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    # A table or a variable that is nowhere read: the node that takes it names its kind.
    for node in graph.node:
        if any(freeze.source(each)[0] == name for each in node.input):
            freeze._refuse(node)
    return tf.constant(0)


def _fixed(name: str, value: Any, tensor: Any) -> Any:
    try:
        converted = tf.convert_to_tensor(value, tensor.dtype)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise PackageError(
            f"[package.save] specialize[{name!r}]: expected a value of {tensor.dtype.name} ({error})."
        ) from None
    if not tensor.shape.is_compatible_with(converted.shape):
        raise PackageError(
            f"[package.save] specialize[{name!r}]: expected shape {tensor.shape}, got {converted.shape}."
        )
    return converted


def _results(graph: Any, traced: tracing.Traced) -> list[dict[str, Any]]:
    """Makes nodes of names of their own of the results.

    TensorFlow's control edges have them wait for the function's other effects.
    """
    entries = {}
    outputs = traced.concrete.outputs
    named = paths(traced.result, len(outputs))
    for node in graph.node:
        if node.op != "_Retval":
            continue
        index = node.attr["index"].i
        kind = node.attr["T"].type
        for name in [*node.attr]:
            del node.attr[name]
        node.op, node.name = "Identity", RESULT.format(index)
        node.attr["T"].type = kind
        entries[index] = {
            "name": named[index],
            "dtype": outputs[index].dtype.name,
            "shape": sizes(outputs[index].shape),
            "node": node.name,
        }
    return [entries[index] for index in range(len(outputs))]


def _optimized(graph: Any, fetches: list[str], on_metal: bool) -> Any:
    request = tf.compat.v1.GraphDef()
    for each in tf.config.list_logical_devices():
        if on_metal or each.device_type == "CPU":
            name = f"{freeze.DEVICE_PREFIX}{each.name}"
            request.node.add(op="Device", name=name, device=each.device_type)
    for name in fetches:
        request.node.add(op="Fetch", name=name)
    reply = native.optimize(request.SerializeToString(), graph.SerializeToString())
    return tf.compat.v1.GraphDef.FromString(reply)


def _take_weights(graph: Any, values: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Large constants, and values that were kept from folding: their entries, and the parts of weights.bin."""
    entries: list[dict[str, Any]] = []
    parts: list[Any] = []
    places: dict[bytes, int] = {}
    size = 0
    for node in graph.node:
        if node.op == "Placeholder" and node.name in values:
            array, dtype = values[node.name].numpy(), values[node.name].dtype
            if array.nbytes < EXTERNAL_BYTES:
                _become_constant(node, array, dtype)
                continue
        elif node.op == "Const":
            dtype = tf.as_dtype(node.attr["dtype"].type)
            shape = tf.TensorShape(node.attr["value"].tensor.tensor_shape)
            if dtype == tf.string or shape.num_elements() * dtype.size < EXTERNAL_BYTES:
                continue
            array = tf.make_ndarray(node.attr["value"].tensor)
        else:
            continue
        array = np.ascontiguousarray(array)
        content: Any = array.reshape(-1).view(np.uint8)
        digest = hashlib.sha256(content).digest()
        if digest not in places:
            padding = -size % container.ALIGNMENT
            parts += [bytes(padding), content]
            size += padding
            places[digest] = size
            size += array.nbytes
        entries.append(
            {
                "name": _weight_name(node.name),
                "node": node.name,
                "dtype": dtype.name,
                "shape": list(array.shape),
                "offset": places[digest],
                "device": node.device,
            }
        )
        if node.op == "Const":
            controls = [each for each in node.input if each[0] == "^"]
            new = freeze.placeholder(node.name, dtype, tf.TensorShape(array.shape))
            new.device = node.device
            new.input.extend(controls)
            node.CopyFrom(new)
    return entries, parts


def _weight_name(node: str) -> str:
    return node.removeprefix("StatefulPartitionedCall/").removesuffix("/ReadVariableOp")


def _become_constant(node: Any, value: Any, dtype: Any) -> None:
    new = freeze.constant(node.name, value, dtype)
    new.device = node.device
    node.CopyFrom(new)


def _drawing(traced: tracing.Traced, graph: Any) -> str:
    """The graph as it was traced and as it is packed, for the graph view."""
    import dataclasses

    from metal_ops.fusion import Node

    explanation = explain(traced.concrete)
    found = native.nodes(graph.SerializeToString())
    for node in found:
        node["dtype"] = tf.as_dtype(node["dtype"]).name if node["dtype"] else ""
    names = {node["name"] for node in found}
    kept = dataclasses.replace(
        explanation,
        function=traced.name,
        after=[Node(**node) for node in found],
        fused=[fusion for fusion in explanation.fused if fusion.node in names],
    )
    return kept.to_json()
