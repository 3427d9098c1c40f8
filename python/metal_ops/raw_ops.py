"""The ops exactly as `tf.load_op_library` generates them: no checks, no defaults beyond the op's own.

Scripts written against Apple's published samples keep their calls and only change the line that loads the library:

    module = metal_ops.raw_ops
    y = module.hash_encode(inputs, embeddings, hashmap_offsets,
                           log2_per_level_scale=1.0, resolution_coarsest=16)

The gradients are registered, so a script must not register its own for these ops as well.
"""

from typing import Any

from metal_ops import _library

_generated = _library.load()


def __getattr__(name: str) -> Any:
    try:
        return getattr(_generated, name)
    except AttributeError:
        raise AttributeError(
            f"metal_ops.raw_ops has no op {name!r}; see dir(metal_ops.raw_ops)"
        ) from None


def __dir__() -> list[str]:
    return sorted(name for name in vars(_generated) if f"{name}_eager_fallback" in vars(_generated))
