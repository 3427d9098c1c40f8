"""How weights are quantized: the arguments that say so, checked once for functions, layers and models."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from metal_ops.ops import _arguments

_SCALES = (tf.float32, tf.float16)
_LOOKUP_BITS = (2, 3, 4, 6, 8)
_BLOCK = 32  # the default of `block`


class Format(NamedTuple):
    """The arguments of `quantize` that say how, checked."""

    bits: int
    block: int | None
    symmetric: bool
    per_tensor: bool
    scales: str
    lookup: int | None = None

    @classmethod
    def checked(
        cls,
        op: str,
        bits: Any,
        block: Any,
        symmetric: Any,
        per_tensor: Any,
        scales: Any,
        lookup: Any = None,
    ) -> Format:
        bits = _arguments.integer(op, "bits", bits)
        symmetric = _arguments.flag(op, "symmetric", symmetric)
        per_tensor = _arguments.flag(op, "per_tensor", per_tensor)
        if block is not None:
            block = _arguments.integer(op, "block", block)
            if block <= 0 or block % 32:
                raise ValueError(f"[{op}] block: expected a multiple of 32, or None, got {block}.")
        if lookup is not None:
            lookup = _arguments.integer(op, "lookup", lookup)
            if lookup < 0:
                raise ValueError(
                    f"[{op}] lookup: expected how many outputs share a table, 0 for all of them, or None, got {lookup}."
                )
            if bits not in _LOOKUP_BITS:
                raise ValueError(
                    f"[{op}] bits: expected 2, 3, 4, 6 or 8 with lookup tables, got {bits}."
                )
            for argument, value, usual in (
                ("block", block not in (None, _BLOCK), _BLOCK),
                ("symmetric", symmetric, False),
                ("per_tensor", per_tensor, False),
            ):
                if value:
                    raise ValueError(
                        f"[{op}] {argument}: expected {usual}, which says nothing, as lookup tables have no scales; "
                        "lookup=None for scales."
                    )
            block = None
        elif bits not in (4, 8):
            several = f"{', '.join(map(str, _LOOKUP_BITS[:-1]))} or {_LOOKUP_BITS[-1]}"
            more = f"; a lookup table has {several}, as with lookup=16"
            raise ValueError(f"[{op}] bits: expected 4 or 8, got {bits}{more}.")
        narrow = bits == 4 or lookup is not None
        kind = tf.as_dtype(scales) if scales is not None else _SCALES[narrow]
        if kind not in _SCALES:
            raise TypeError(f"[{op}] scales: expected float32 or float16, got {kind.name}.")
        return cls(bits, block, symmetric, per_tensor, kind.name, lookup)
