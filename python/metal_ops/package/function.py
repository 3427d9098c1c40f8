"""The packed graph as a function of TensorFlow's library: a name that is called with the inputs and the weights.

As nodes of a graph in Python each would cost a tenth of a millisecond, for an object and its place in tables. In a
library all of them are one message.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from metal_ops.package.signature import sizes

ENTRY = "package"
_numbers = itertools.count()


def make(
    graph: Any, arguments: Sequence[dict[str, Any]], outputs: Sequence[dict[str, Any]]
) -> tuple[Any, bool]:
    """Makes a library of a graph.

    Args:
      graph: A GraphDef.
      arguments: Entries of the Placeholders that become arguments, in order.
      outputs: Entries of the nodes that become results; their shapes are made as narrow as the graph tells.

    Returns:
      A GraphDef that has nothing but functions, one of them called ENTRY; and whether a call does more than return
      something, or returns something else each time.
    """
    specs = [
        tf.TensorSpec(each["shape"], each["dtype"], f"argument_{i}")
        for i, each in enumerate(arguments)
    ]

    names = [each["node"] for each in arguments]
    nodes = _without(graph, names)
    used = {name.removesuffix(":0") for node in nodes.node for name in node.input}

    def body(*tensors: tf.Tensor) -> Any:
        given = zip(names, tensors, strict=True)
        return tf.graph_util.import_graph_def(
            nodes,
            input_map={f"{name}:0": tensor for name, tensor in given if name in used},
            return_elements=[f"{each['node']}:0" for each in outputs],
            name="",
        )

    wrapped = tf.compat.v1.wrap_function(body, specs)
    for entry, tensor in zip(outputs, wrapped.outputs, strict=True):
        # Each knows sizes that the other may not: those that were fixed, and those after a loop.
        entry["shape"] = sizes(tensor.shape.merge_with(entry["shape"]))
    stateful = {op.type for op in wrapped.graph.get_operations() if op.op_def.is_stateful}
    # Functions that are left, loops and those that XLA compiles, have no public name for their ops.
    called = {node.op for function in graph.library.function for node in function.node_def}
    stateful |= {op for op in called if op.startswith(("Random", "Print", "Multinomial", "Write"))}

    library = tf.compat.v1.GraphDef(versions=graph.versions)
    library.library.function.append(wrapped.function_def)
    library.library.function[0].signature.name = ENTRY
    library.library.function.extend(graph.library.function)
    return library, bool(stateful - {"Assert", "StatefulPartitionedCall", "While", "If", "Case"})


def _without(graph: Any, names: Sequence[str]) -> Any:
    """A graph without its arguments' Placeholders. Ops that wait for one of them wait for nothing."""
    kept = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
    gone, early = {*names}, {f"^{name}" for name in names}
    for node in graph.node:
        if node.name not in gone:
            added = kept.node.add()
            added.CopyFrom(node)
            added.input[:] = [name for name in node.input if name not in early]
    return kept


class Function:
    """A function of a library, known to TensorFlow under a name of its own.

    Args:
      library: A GraphDef of `make`, which becomes this object's.
      place: The device that it is called on.
      dtypes: Dtypes of its results.
      shapes: Shapes of its results, for graphs.
    """

    def __init__(
        self, library: Any, place: str, dtypes: Sequence[tf.DType], shapes: Sequence[tf.TensorShape]
    ):
        self._name = f"{ENTRY}_{next(_numbers)}"
        for function in library.library.function:
            if function.signature.name == ENTRY:
                function.signature.name = self._name
        self._library, self._place, self._dtypes, self._shapes = library, place, dtypes, shapes
        config = tf.compat.v1.ConfigProto()
        # It is optimized. Without this the first call would begin by doing it again.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self._config = config.SerializeToString()
        self._graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # that know it
        with tf.init_scope():
            self._holder = tf.compat.v1.wrap_function(self._register, [])

    def _register(self) -> tf.Tensor:
        tf.graph_util.import_graph_def(self._library, name="")
        return tf.constant(0)

    def __call__(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        eager = tf.executing_eagerly()
        if not eager:
            graph = tf.compat.v1.get_default_graph()
            if graph not in self._graphs:
                tf.graph_util.import_graph_def(self._library, name="")
                self._graphs.add(graph)
        with tf.device(self._place):
            results: list[tf.Tensor] = tf.raw_ops.StatefulPartitionedCall(
                args=arguments, Tout=self._dtypes, f=self._name, config_proto=self._config
            )
        if not eager:
            for result, shape in zip(results, self._shapes, strict=True):
                result.set_shape(shape)
        return results
