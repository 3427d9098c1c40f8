"""Reads tiny-cuda-nn's JSON configurations: of a grid encoding for `HashGrid.from_tcnn` and `HashEncoding.from_tcnn`,
and of a network for `FusedMLP.from_tcnn`.
"""

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
        "FullyFusedMLP",
        "CutlassMLP",
        "None",
        "ReLU",
        "LeakyReLU",
        "Exponential",
        "Sine",
        "Sigmoid",
        "Squareplus",
        "Softplus",
        "Tanh",
    )
}
NETWORKS = {"fullyfusedmlp": "", "megakernelmlp": "", "cutlassmlp": ""}
# Names in lower case, and the layer's.
ACTIVATIONS = {
    "none": "none",
    "relu": "relu",
    "leakyrelu": "leaky_relu",
    "exponential": "exponential",
    "sine": "sine",
    "sigmoid": "sigmoid",
    "squareplus": "squareplus",
    "softplus": "softplus",
    "tanh": "tanh",
}
KNOWN_OF_NETWORKS = {
    "otype",
    "activation",
    "output_activation",
    "n_neurons",
    "n_hidden_layers",
    "feedback_alignment",
}
ACTIVATION_STEEPNESS = 10  # K_ACT there: squareplus and softplus are those of 10 x, divided by 10
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
    config = _section(config, "encoding")
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
    _check_known(config, KNOWN, "a grid encoding")

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


def network_arguments(config: dict[str, Any] | str) -> dict[str, Any]:
    """Translates tiny-cuda-nn's configuration of a network into FusedMLP's arguments; defaults are tiny-cuda-nn's.

    Raises:
      TypeError: The configuration is not a dict or the JSON text of one.
      ValueError: It asks for a feature that FusedMLP does not have, or has a field that is not known.
    """
    config = _section(config, "network")
    _one_of(config, "otype", "MLP", {**NETWORKS, "mlp": ""}, {
        "cutlassresnet": "It has residual blocks: build it of Dense layers.",
    })  # fmt: skip
    names = [
        ACTIVATIONS[_one_of(config, field, default, ACTIVATIONS, {})]
        for field, default in (("activation", "ReLU"), ("output_activation", "None"))
    ]
    if config.get("feedback_alignment"):
        raise ValueError("[from_tcnn] feedback_alignment: expected false, got true. Leave it out.")
    _check_known(config, KNOWN_OF_NETWORKS, "a network")
    return {
        "activation": names[0],
        "output_activation": names[1],
        "n_neurons": config.get("n_neurons", 128),
        "n_hidden_layers": config.get("n_hidden_layers", 5),
        "squareplus_b": 4.0 / ACTIVATION_STEEPNESS**2,
        "softplus_beta": float(ACTIVATION_STEEPNESS),
        "negative_slope": 0.01,
    }


def _section(config: Any, name: str) -> dict[str, Any]:
    """The configuration, or the named part of a whole one."""
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"[from_tcnn] config: expected JSON, got text that is not ({error}). Read a file with "
                "json.load and give what it returns."
            ) from None
    if isinstance(config, dict) and name in config and "otype" not in config:
        config = config[name]
    if not isinstance(config, dict):
        raise TypeError(
            f"[from_tcnn] config: expected a dict or its JSON text, got {type(config).__name__}."
        )
    return config


def _check_known(config: dict[str, Any], known: set[str], kind: str) -> None:
    if unknown := set(config) - known:
        raise ValueError(
            f"[from_tcnn] unknown field{'s' * (len(unknown) > 1)} {', '.join(sorted(unknown))}: expected some of "
            f"{', '.join(sorted(known))}. Remove what is misspelt or not of {kind}."
        )


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
