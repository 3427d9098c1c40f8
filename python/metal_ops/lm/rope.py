"""Rotary positions of a model from a file: the frequencies that its configuration means.

The types are those of transformers' `rope_parameters` and of llama.cpp's `rope.scaling.type`: default, linear, dynamic
(NTK), llama3, yarn ([arXiv:2309.00071](https://arxiv.org/abs/2309.00071)) and longrope
([arXiv:2402.13753](https://arxiv.org/abs/2402.13753)). Any other one is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metal_ops.programs.errors import short

from .fields import Fields, WeightsError

_THETA = 10000.0
_LAYERS = ("full_attention", "sliding_attention")
# By type: keys that it reads, and those that change nothing in the newest release of their writer.
_COMMON = frozenset(
    ("rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
)
_YARN = (
    "factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "finetuned"
)  # fmt: skip
_KEYS = {
    "default": _COMMON,
    "linear": _COMMON | {"factor"},
    "dynamic": _COMMON | {"factor"},
    "llama3": _COMMON | {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": _COMMON | set(_YARN),
    "longrope": _COMMON | {"factor", "attention_factor", "short_factor", "long_factor"},
}


@dataclass(frozen=True)
class Rope:
    """How far positions turn the pairs of a head.

    Attributes:
      frequencies: Radians per position of each pair.
      scale: Turned elements are multiplied by it: YaRN's and LongRoPE's attention factor.
      limit: Tokens up to which the frequencies hold; 0: always.
      long: The frequencies of all tokens where more are seen (LongRoPE).
      growth: The factor by which frequencies fall where more are seen (dynamic NTK); 0: they do not.
      reach: Tokens that are seen at once by it, 0 if it does not say.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0
    limit: int = 0
    long: tuple[float, ...] = ()
    growth: float = 0.0
    reach: int = 0


def plain(theta: float, size: int) -> np.ndarray:
    """float64 [size / 2] of RoFormer."""
    return float(theta) ** (-np.arange(0, size, 2) / size)


def _rope(frequencies: np.ndarray, **others: Any) -> Rope:
    return Rope(tuple(frequencies.tolist()), **others)


# ---- config.json ----------------------------------------------------------------------------------------------------


def of_config(fields: Fields, head_size: int) -> Rope:
    """The angles of all layers, by `rope_parameters`, or by the older `rope_theta` and `rope_scaling`."""
    parameters, scaling = fields.inner("rope_parameters"), fields.inner("rope_scaling")
    for name in _LAYERS:
        if name in parameters.values:
            raise WeightsError(
                f"{parameters.where}: '{name}' is there, and this model has one kind of positions in all layers; it "
                "is another model."
            )
    return _of_parameters(fields, _merged(fields, parameters, scaling, _THETA), head_size, _THETA)


def of_layers(fields: Fields, head_size: int, full: float, sliding: float) -> tuple[Rope, Rope]:
    """The angles of full and of sliding layers, as Gemma 3 has them; the thetas are those of files that have none."""
    parameters, scaling = fields.inner("rope_parameters"), fields.inner("rope_scaling")
    parameters.refuse_others(frozenset(_LAYERS), f"expected {_LAYERS[0]!r} and {_LAYERS[1]!r}")
    first, second = (parameters.inner(name) for name in _LAYERS)
    for one in (first, second, scaling):
        if one.values.get("truncate") is False:
            raise WeightsError(
                f"{one.where}: 'truncate' is false, of which transformers takes no notice in layers of two types; "
                "leave it out."
            )
    # The one that stands outside does not count where layers have types.
    fields = Fields(fields.where, {**fields.values, "original_max_position_embeddings": None})
    local = fields.number("rope_local_base_freq", sliding, 1, 1e12)
    found = _of_parameters(fields, _merged(fields, first, scaling, full), head_size, full)
    # The older `rope_theta` and `rope_scaling` are of full layers alone.
    outer = Fields(fields.where, {**fields.values, "rope_theta": local})
    return found, _of_parameters(outer, second, head_size, local)


def _merged(outer: Fields, parameters: Fields, scaling: Fields, theta: float) -> Fields:
    """The one that is there, or both where these say the same: transformers drops one of them, with its theta."""
    if not scaling.values or not parameters.values:
        return scaling if scaling.values else parameters
    old = {"rope_theta": outer.values.get("rope_theta") or theta, **scaling.values}
    old["rope_type"] = old.get("rope_type", old.get("type", "default"))
    new = {"rope_type": parameters.values.get("type", "default"), **parameters.values}
    for name in sorted((old.keys() | new.keys()) - {"type"}):
        if old.get(name) != new.get(name) and (name != "rope_theta" or name in new):
            raise WeightsError(
                f"{parameters.where}: {name!r} is {short(new.get(name))}, and by the older 'rope_scaling' "
                f"{short(old.get(name))}; leave 'rope_scaling' out."
            )
    return parameters


def _of_parameters(outer: Fields, fields: Fields, head_size: int, theta: float) -> Rope:
    values = fields.values
    kind = values.get("rope_type", values.get("type"))
    kind = "default" if kind is None else kind
    if not isinstance(kind, str) or kind not in _KEYS:
        name = "rope_type" if "rope_type" in values else "type"
        raise WeightsError(
            f"{fields.where}: '{name}' is {short(kind)}, expected one of {', '.join(_KEYS)}; such positions are not "
            "computed."
        )
    if values.get("type") not in (None, kind):
        raise WeightsError(
            f"{fields.where}: 'type' is {short(values['type'])}, and 'rope_type' {short(kind)}; leave one of them out."
        )
    _refuse_others(fields, kind)
    in_it = values.get("rope_theta") is not None
    theta = (fields if in_it else outer).number("rope_theta", theta, 1, 1e12)
    _refuse_partial(outer)
    _refuse_partial(fields)
    trained = outer.number("max_position_embeddings", 2048)
    # Where it stands outside, that one counts, as in transformers.
    outside = outer.values.get("original_max_position_embeddings") is not None
    original = (outer if outside else fields).whole("original_max_position_embeddings", trained)
    frequencies = plain(theta, head_size)
    if kind == "default":
        return _rope(frequencies)
    if kind == "yarn":
        if "factor" not in values:
            fields.number("factor")
        factor = fields.optional("factor", 1e-3, 1e6) or trained / original
        mscale, everywhere = (fields.optional(n, 0, 1e3) for n in ("mscale", "mscale_all_dim"))
        scale = fields.optional("attention_factor", 0, 1e3)
        if scale is None:
            both = mscale and everywhere
            scale = _mscale(factor, mscale if both else 1)
            scale /= _mscale(factor, everywhere) if both else 1
        bounds = _yarn_bounds(
            fields.where, theta, head_size, original,
            (fields.optional("beta_fast", 1e-3, 1e6) or 32, fields.optional("beta_slow", 1e-3, 1e6) or 1),
            fields.flag("truncate", True),
        )  # fmt: skip
        found = _yarn(frequencies, factor, bounds)
        return _rope(found, scale=float(scale), reach=int(factor * original))
    if kind == "longrope":
        factor = fields.optional("factor", 1e-3, 1e6) or trained / original
        scale = fields.optional("attention_factor", 0, 1e3)
        if scale is None:
            if original < 2:  # its logarithm divides
                raise WeightsError(
                    f"{fields.where}: 'original_max_position_embeddings' is {original}, expected 2 or more for "
                    "'longrope'; give the length that the model was trained on, or 'attention_factor'."
                )
            scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        near, far = (
            np.array(fields.numbers(n, head_size // 2)) for n in ("short_factor", "long_factor")
        )
        long = tuple((frequencies / far).tolist())
        reach = int(factor * original)
        return _rope(frequencies / near, scale=float(scale), limit=original, long=long, reach=reach)
    factor = fields.number("factor", None, 1e-3, 1e6)
    if kind == "linear":
        return _rope(frequencies / factor)
    if kind == "dynamic":
        return _rope(frequencies, limit=int(trained), growth=factor, reach=int(factor * trained))
    found = _llama3(fields, frequencies, factor, original)
    return _rope(found, reach=int(factor * original))


def _refuse_others(fields: Fields, kind: str) -> None:
    for name, value in fields.values.items():
        # Older writers of YaRN have these two, which are of no effect at 1.
        neutral = name in ("extrapolation_factor", "attn_factor", "factor") and value == 1
        if name not in _KEYS[kind] and value is not None and not neutral:
            raise WeightsError(
                f"{fields.where}: '{name}' is {short(value)}, which positions of type {kind!r} do not have; give the "
                "'rope_type' that is meant, or leave it out."
            )


def _refuse_partial(fields: Fields) -> None:
    """transformers 5 turns whole heads of these models whatever the field says, and other readers a part of them."""
    part = fields.values.get("partial_rotary_factor")
    if part not in (None, 1):
        raise WeightsError(
            f"{fields.where}: 'partial_rotary_factor' is {short(part)}, and readers disagree about it in this model: "
            "expected 1; leave it out if all of a head is turned."
        )


def _mscale(factor: float, mscale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _yarn_bounds(
    where: str, theta: float, size: int, original: float, betas: tuple[float, float], whole: bool
) -> tuple[float, float]:
    """The pairs that turn `betas` times over the original length: the ramp from one to the other lies between them."""
    if theta <= 1:
        raise WeightsError(f"{where}: YaRN needs a theta above 1, got {theta:g}.")
    low, high = (
        size * math.log(original / (beta * 2 * math.pi)) / (2 * math.log(theta)) for beta in betas
    )
    if whole:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, size - 1)


def _yarn(
    frequencies: np.ndarray, factor: float, bounds: tuple[float, float], mix: float = 1.0
) -> np.ndarray:
    """Slow pairs are slowed down by the factor, of fast ones only the part 1 - `mix`, and a ramp lies between them."""
    low, high = bounds
    ramp = np.clip((np.arange(len(frequencies)) - low) / max(high - low, 1e-3), 0, 1)
    kept = (1 - ramp) * mix
    return frequencies * ((1 - kept) / factor + kept)


def _llama3(fields: Fields, frequencies: np.ndarray, factor: float, original: float) -> np.ndarray:
    """Slow pairs are slowed down by a factor, fast ones not, and between them the one becomes the other."""
    low, high = (fields.number(f"{n}_freq_factor", None, 1e-3, 1e6) for n in ("low", "high"))
    if high <= low:
        raise WeightsError(
            f"{fields.where}: 'high_freq_factor' must be above 'low_freq_factor' {low:g}, got {high:g}."
        )
    turns = original * frequencies / (2 * np.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return frequencies * ((1 - share) / factor + share)


# ---- GGUF -----------------------------------------------------------------------------------------------------------


def of_metadata(
    fields: Fields,
    architecture: str,
    head_size: int,
    context: int,
    factors: dict[str, np.ndarray],
) -> Rope:
    """By the keys `<architecture>.rope...`, as llama.cpp reads them.

    Args:
      fields: The metadata.
      architecture: The beginning of its keys.
      head_size: Elements of a head.
      context: Tokens that will be seen at once, by which LongRoPE's factors are chosen.
      factors: Factors of the frequencies, by the tensors' names: "rope_freqs", "rope_factors_short",
          "rope_factors_long".
    """
    at = f"{architecture}.rope."
    theta = fields.number(f"{at}freq_base", _THETA, 1, 1e12)
    size = fields.whole(f"{at}dimension_count", head_size)
    if size % 2 or size > head_size:
        raise WeightsError(
            f"{fields.where}: '{at}dimension_count' is {size}, expected an even number of at most {head_size}, a "
            "head's size."
        )
    kind, factor = _kind_and_factor(fields, at)
    trained = fields.number(f"{architecture}.context_length", 2048)
    original = fields.number(f"{at}scaling.original_context_length", trained)
    scale = fields.number(f"{at}scaling.attn_factor", 1.0, 1e-3, 1e3)
    frequencies = plain(theta, size)
    name = "rope_freqs"
    if kind == "longrope":
        name = "rope_factors_long" if context > original else "rope_factors_short"
    if name in factors:
        found = factors[name]
        if found.shape != frequencies.shape or not (np.isfinite(found) & (found > 0)).all():
            raise WeightsError(
                f"{fields.where}: tensor '{name}.weight' must have {len(frequencies)} factors above 0; it is damaged."
            )
        frequencies = frequencies / found
    elif kind == "longrope":
        raise WeightsError(
            f"{fields.where}: tensor '{name}.weight' is missing; get the file again."
        )
    reach = int(factor * original) if kind in ("yarn", "longrope") else 0
    # Less than 0 means llama.cpp's "not set".
    mix = fields.number(f"{at}scaling.yarn_ext_factor", -1.0, -1e6, 1e6)
    mix = (1.0 if kind == "yarn" else 0.0) if mix < 0 else mix
    scale *= _attention_factor(fields, at, factor, mix)
    if not mix:
        return _rope(frequencies / factor, scale=scale, reach=reach)
    betas = (
        fields.number(f"{at}scaling.yarn_beta_fast", 32.0, 1e-3, 1e6),
        fields.number(f"{at}scaling.yarn_beta_slow", 1.0, 1e-3, 1e6),
    )
    bounds = _yarn_bounds(fields.where, theta, size, original, betas, True)
    return _rope(_yarn(frequencies, factor, bounds, mix), scale=scale, reach=reach)


def _kind_and_factor(fields: Fields, at: str) -> tuple[str, float]:
    """A file without the type is scaled linearly, and those of 2023 call the factor `scale_linear`."""
    kind = fields.values.get(f"{at}scaling.type")
    kind = "linear" if kind is None else kind
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise WeightsError(
            f"{fields.where}: '{at}scaling.type' is {short(kind)}, expected none, linear, yarn or longrope; such "
            "positions are not computed."
        )
    name = f"{at}scaling.factor"
    if fields.values.get(name) is None:
        name = f"{at}scale_linear"
    factor = fields.number(name, 0.0, 0, 1e6)
    return kind, 1.0 if kind == "none" or not factor else factor


def _attention_factor(fields: Fields, at: str, factor: float, mix: float) -> float:
    """For YaRN it follows from the factor, whatever the file says; so the file's value has to be the same."""
    name = f"{at}scaling.yarn_attn_factor"
    said = fields.optional(name, 1e-3, 1e3)
    if not mix:
        return 1.0 if said is None else said
    right = _mscale(factor)
    if said is not None and not any(math.isclose(said, one, rel_tol=1e-4) for one in (1.0, right)):
        raise WeightsError(
            f"{fields.where}: '{name}' is {said:g}, and llama.cpp takes {right:.6g}, which follows from the factor; "
            "convert the model anew, or leave it out."
        )
    return right
