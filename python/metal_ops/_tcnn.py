"""Reads tiny-cuda-nn's JSON configuration of a grid encoding: `HashGrid.from_tcnn`, `HashEncoding.from_tcnn`."""

from __future__ import annotations

import json
import math
from typing import Any

# otype: the type that it stands for if "type" is not given
OTYPES = {"grid": "hash", "hashgrid": "hash", "densegrid": "dense", "tiledgrid": "tiled"}
TYPES = {"hash": "hash", "dense": "dense"}
INTERPOLATIONS = {"linear": "linear", "smoothstep": "smoothstep"}
SPELLING = {
    name.lower(): name
    for name in (
        "Grid",
        "HashGrid",
        "DenseGrid",
        "Hash",
        "Dense",
        "Linear",
        "Smoothstep",
        "CoherentPrime",
    )
}
DENSE_FINEST = 256  # the default size of a dense grid
KNOWN = {
    "otype", "type", "n_levels", "n_features", "n_grid_features", "n_features_per_level", "log2_hashmap_size",
    "base_resolution", "per_level_scale", "interpolation", "stochastic_interpolation", "fixed_point_pos", "hash",
    "n_dims_to_encode",
}  # fmt: skip


def grid_arguments(config: dict[str, Any] | str, n_dims: int | None) -> dict[str, Any]:
    """Translates tiny-cuda-nn's configuration into HashGrid's arguments.

    Names are matched without regard to case, and defaults are tiny-cuda-nn's. A whole configuration with an "encoding"
    in it is taken for that.

    Raises:
      TypeError: The configuration is not a dict or the JSON text of one.
      ValueError: It asks for a feature that HashGrid does not have, or has a field that is not known.
    """
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"[from_tcnn] config: expected JSON, got text that is not ({error}). Read a file with "
                "json.load and give what it returns."
            ) from None
    if isinstance(config, dict) and "encoding" in config and "otype" not in config:
        config = config["encoding"]
    if not isinstance(config, dict):
        raise TypeError(
            f"[from_tcnn] config: expected a dict or its JSON text, got {type(config).__name__}."
        )

    otype = _one_of(config, "otype", "Grid", OTYPES, {
        "composite": "Make one encoding for each of its parts and concatenate their features.",
        "frequency": "Use metal_ops.frequency_encode.",
        "sphericalharmonics": "Use metal_ops.sh_encode.",
    })  # fmt: skip
    kind = _one_of(config, "type", OTYPES[otype], TYPES, {
        "tiled": "Use 'Hash' with a log2_hashmap_size that holds the levels, or 'Dense'.",
    })  # fmt: skip
    interpolation = _one_of(config, "interpolation", "Linear", INTERPOLATIONS, {
        "nearest": "It has no gradient with respect to the points; use 'Linear'.",
    })  # fmt: skip
    _one_of(config, "hash", "CoherentPrime", {"coherentprime": ""}, {})
    for switch in ("stochastic_interpolation", "fixed_point_pos"):
        if config.get(switch):
            raise ValueError(f"[from_tcnn] {switch}: expected false, got true. Leave it out.")
    if unknown := set(config) - KNOWN:
        raise ValueError(
            f"[from_tcnn] unknown field{'s' * (len(unknown) > 1)} {', '.join(sorted(unknown))}: expected some of "
            f"{', '.join(sorted(KNOWN))}. Remove what is misspelt or not of a grid encoding."
        )

    features = config.get("n_features_per_level", 2)
    total = config.get("n_features", config.get("n_grid_features"))
    if total is not None and "n_levels" in config:
        raise ValueError(
            "[from_tcnn] n_features and n_levels: expected one of them, got both. n_features is n_levels * "
            "n_features_per_level; leave it out."
        )
    if total is not None and (not isinstance(total, int) or total < features or total % features):
        raise ValueError(
            f"[from_tcnn] n_features: expected a multiple of n_features_per_level ({features}), got {total}."
        )
    levels = config.get("n_levels", 16) if total is None else total // features
    stated = config.get("n_dims_to_encode")
    if n_dims is None:
        n_dims = 3 if stated is None else stated
    elif stated is not None and stated != n_dims:
        raise ValueError(
            f"[from_tcnn] n_dims: expected n_dims_to_encode of the configuration ({stated}), got {n_dims}. "
            "Leave one out."
        )
    base = config.get("base_resolution", 16)
    scale = config.get("per_level_scale")
    if scale is None:
        grows = kind == "dense" and levels > 1
        scale = math.exp(math.log(DENSE_FINEST / base) / (levels - 1)) if grows else 2.0
    return {
        "n_dims": n_dims,
        "n_levels": levels,
        "n_features_per_level": features,
        "log2_hashmap_size": config.get("log2_hashmap_size", 19),
        "base_resolution": base,
        "per_level_scale": scale,
        "interpolation": INTERPOLATIONS[interpolation],
        "kind": TYPES[kind],
    }


def _one_of(
    config: dict[str, Any],
    field: str,
    default: str,
    choices: dict[str, str],
    remedies: dict[str, str],
) -> str:
    """The field's value in lower case, which must be among the choices."""
    value = config.get(field, default)
    text = value.lower() if isinstance(value, str) else ""
    if text in choices:
        return text
    names = ", ".join(SPELLING[name] for name in choices if name in SPELLING)
    remedy = remedies.get(text, "Choose one of them, or leave it out for the default.")
    raise ValueError(f"[from_tcnn] {field}: expected one of {names}, got {value!r}. {remedy}")
