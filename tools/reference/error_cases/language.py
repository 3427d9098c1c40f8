"""The ops beside attention in a transformer: gated units and rotary positions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

import metal_ops
from metal_ops import raw_ops
from tests import test_rope, test_rope_tables, test_swiglu
from tools.reference.error_cases import DTYPES, Case


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        gate, up, into = test_swiglu.make((300, 65), dtype)
        inputs = [tf.constant(v) for v in (gate, up)]
        y, *slopes = test_swiglu.right(gate, up, into)
        yield "Swiglu", dtype, lambda inputs=inputs: metal_ops.swiglu(*inputs), y
        for output, slope in enumerate(slopes):

            def backward(inputs=inputs, into=into, output=output):
                return raw_ops.swiglu_grad(tf.constant(into), *inputs)[output]

            yield "SwigluGrad", dtype, backward, slope
        x, _ = test_rope.make((2, 3, 100, 64), dtype)
        right = test_rope.right(x, test_rope.angles(4000 + np.arange(100), 64), False)
        yield "Rope", dtype, lambda x=x: metal_ops.rope(tf.constant(x), 4000), right
        given = test_rope_tables.make(test_rope_tables.SHAPES[2], dtype)
        for interleaved, backward in itertools.product((False, True), repeat=2):
            way = {"interleaved": interleaved, "backward": backward}

            def by_tables(given=given, way=way):
                return raw_ops.metal_rope_tables(*map(tf.constant, given), **way)

            right = test_rope_tables.right(*given, **way)
            yield "MetalRopeTables", dtype, by_tables, right
