"""Graphs for the tests of the HTML view: explanations as the pass would give them, made up without TensorFlow."""

from __future__ import annotations

from metal_ops.fusion.explanation import Explanation, Fusion, Miss, Node

IMAGE = "[8, 56, 56, 64]"


def residual_network(blocks: int) -> Explanation:
    """A residual network of `blocks` blocks, 16 nodes each: two convolutions fused, a third one not."""
    before = [_node("image", "_Arg", shapes=["[8, 56, 56, 64]"])]
    after = list(before)
    fused: list[Fusion] = []
    missed: list[Miss] = []
    trunk = "image"

    def weights(prefix: str) -> list[Node]:
        names = [f"{prefix}/kernel", f"{prefix}/bias"]
        resources = [_node(f"{name}/resource", "_Arg", dtype="resource") for name in names]
        reads = [
            _node(f"{name}/read", "ReadVariableOp", [f"{name}/resource"], shapes=["[3, 3, 64, 64]"])
            for name in names
        ]
        return [*resources, *reads]

    for b in range(blocks):
        block = f"model/stage_{b // 4}/block_{b % 4}"
        x = trunk
        for i, ops in enumerate((["BiasAdd", "Relu"], ["BiasAdd", "Add", "Relu"])):
            conv = f"{block}/conv_{i}"
            nodes = weights(conv)
            chain = [_node(conv, "Conv2D", [x, f"{conv}/kernel/read"], {"padding": "SAME"})]
            for op in ops:
                extra = {"BiasAdd": [f"{conv}/bias/read"], "Add": [trunk]}.get(op, [])
                kind = "AddV2" if op == "Add" else op
                name = f"{conv}/{op}"
                chain.append(_node(name, kind, [chain[-1].name, *extra]))
            last = chain[-1]
            inputs = [x, f"{conv}/kernel/read", f"{conv}/bias/read"] + [trunk] * ("Add" in ops)
            before += nodes + chain
            after += [*nodes, _node(last.name, "MetalFusedConv2D", inputs, {"fused_ops": str(ops)})]
            reason = f"'{last.name}' is the last op that can be fused."
            names = [node.name for node in chain]
            fused.append(
                Fusion("conv2d", conv, names, "MetalFusedConv2D", ops, last.name, reason=reason)
            )
            x = last.name
        shared = f"{block}/shared_conv"
        if b % 4 == 3:  # a convolution read twice: left as it is
            nodes = [
                *weights(shared)[::2],
                _node(shared, "Conv2D", [x, f"{shared}/kernel/read"]),
                _node(f"{shared}/a", "Sigmoid", [shared]),
                _node(f"{shared}/b", "Tanh", [shared]),
                _node(f"{shared}/mul", "Mul", [f"{shared}/a", f"{shared}/b"], control=["^image"]),
            ]
            before += nodes
            after += nodes
            why = f"'{shared}' is read by 2 nodes; both would need its result."
            missed.append(Miss(shared, "Conv2D", "one_consumer", why))
            x = f"{shared}/mul"
        trunk = x
    out = _node("Identity", "_Retval", [trunk])
    return Explanation("serve", [*before, out], [*after, out], fused, missed)


def _node(
    name: str,
    op: str,
    inputs: list[str] | None = None,
    attrs: dict[str, str] | None = None,
    shapes: list[str] | None = None,
    dtype: str = "float32",
    control: list[str] | None = None,
) -> Node:
    attrs = {"T": "float32", **(attrs or {})}
    return Node(
        name, op, (inputs or []) + (control or []), attrs, "GPU:0", shapes or [IMAGE], dtype
    )
