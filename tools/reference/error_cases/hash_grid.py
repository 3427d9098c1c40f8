"""The hash grid's ops, over the shapes that the tests sweep."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from metal_ops import raw_ops
from tests import cases as swept
from tests.oracles import hash_encode
from tools.reference.error_cases import Case

# op: function, arrays that come before the offsets, formula
OPS = {
    "HashEncode": ("hash_encode", ("points", "table"), hash_encode.encode),
    "HashEncodeGrad": ("hash_encode_grad", ("g", "points", "table"), hash_encode.grad),
    "HashEncodePointGrad": (
        "hash_encode_point_grad",
        ("g", "points", "table"),
        hash_encode.point_grad,
    ),
    "HashEncodeJvp": ("hash_encode_jvp", ("v", "points", "table"), hash_encode.jvp),
    "HashEncodeJvpGrad": (
        "hash_encode_jvp_grad",
        ("v", "g", "points", "table"),
        hash_encode.jvp_grad,
    ),
    "HashEncodeJvpPointGrad": (
        "hash_encode_jvp_point_grad",
        ("v", "g", "points", "table"),
        hash_encode.jvp_point_grad,
    ),
}


def cases() -> Iterator[Case]:
    for case in swept.HASH_ENCODE_CASES:
        if not 0 < case.n_points <= 1000:  # more of them say the same, later
            continue
        for op, (name, inputs, formula) in OPS.items():

            def call(case=case, name=name, inputs=inputs) -> tf.Tensor:
                return getattr(raw_ops, name)(
                    *(tf.constant(case.arrays[each]) for each in inputs),
                    tf.constant(case.grid.offsets),
                    **case.grid.op_attributes,
                )

            expected, _ = formula(*(case.arrays[each] for each in inputs), case.oracle_grid)
            yield op, case.dtype, call, expected
