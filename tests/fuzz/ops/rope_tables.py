"""Right calls of the op of kernels/rope_tables, which the fusion pass makes."""

from tests.fuzz.ops.rope import HEADS

PUBLIC: dict[str, dict] = {}
RAW = {
    "metal_rope_tables": dict(x=HEADS, cosines=HEADS[0], sines=HEADS[:, :1], interleaved=True),
}
