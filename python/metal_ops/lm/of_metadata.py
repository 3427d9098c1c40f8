"""Metadata of a GGUF file, as the newest llama.cpp reads it: a key of the model is honoured, harmless or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metal_ops.programs.errors import short

from . import rope
from .architecture import LlamaConfig
from .fields import Fields, WeightsError
from .of_config import MOST_LAYERS, check_heads, context_of

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_KEYS = (
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "rope.freq_base", "rope.dimension_count",
    "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
    "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    # Without effect: notes of converters.
    "rope.scaling.finetuned", "tensor_data_layout", "attention.causal",
)  # fmt: skip
_GEMMA = ("attention.sliding_window_pattern", "rope.freq_base_swa", "final_logit_softcapping")
# A model of that many layers is Gemma 3's of 27 billion, whose scores are scaled by other widths.
_LARGEST_GEMMA = 62


def read(
    where: str,
    values: Mapping[str, Any],
    context: int | None,
    factors: dict[str, np.ndarray],
    biases: frozenset[str],
) -> LlamaConfig:
    """The model that a GGUF's metadata describes.

    Args:
      where: The file's path, for sentences.
      values: Its metadata, as plain values.
      context: Tokens to see at once; None: the model's own, at most `CONTEXT`.
      factors: Factors of rotary frequencies, by the tensors' names.
      biases: Matrices that have one, as the file's tensors say.

    Raises:
      WeightsError: It is another model, or has a key of unknown meaning.
    """
    fields = Fields(where, values)
    kind = fields.values.get("general.type")
    if kind not in (None, "model"):
        raise WeightsError(
            f"{where}: 'general.type' is {short(kind)}, expected 'model'; give the model that it belongs to."
        )
    name = fields.one_of(
        "general.architecture", ARCHITECTURES, "other models, and those with experts, are not read"
    )
    gemma, at = name == "gemma3", f"{name}."
    _check_keys(where, values, at, gemma)
    width, heads = (
        fields.whole(f"{at}embedding_length"),
        _count(fields, f"{at}attention.head_count"),
    )
    head_size = fields.whole(f"{at}attention.key_length", width // heads)
    if fields.whole(f"{at}attention.value_length", head_size) != head_size:
        raise WeightsError(
            f"{where}: '{at}attention.value_length' differs from a key's {head_size}; such heads are not read."
        )
    if fields.values.get(f"{at}attention.causal") not in (None, True):
        raise WeightsError(f"{where}: '{at}attention.causal' is not true; it does not write text.")
    kv_heads = _count(fields, f"{at}attention.head_count_kv", heads)
    layers = fields.whole(f"{at}block_count", most=MOST_LAYERS)
    check_heads(where, heads, kv_heads, head_size)
    own = fields.whole(f"{at}context_length")
    # The reach of the positions does not depend on the context, by which LongRoPE's factors are chosen.
    reach = rope.of_metadata(fields, name, head_size, 0, factors).reach
    seen = context_of(where, max(own, reach), context, own)
    turned = rope.of_metadata(fields, name, head_size, seen, factors)
    window, sliding = _windows(fields, at, gemma, layers, seen)
    local = None
    if gemma and sliding:
        if turned.scale != 1:
            raise WeightsError(
                f"{where}: '{at}rope.scaling.type' is {short(values.get(f'{at}rope.scaling.type'))}, expected none or "
                "linear for Gemma 3; convert the model anew."
            )
        theta = fields.number(f"{at}rope.freq_base_swa", 10000.0, 1, 1e12)
        size = 2 * len(turned.frequencies)
        local = rope.Rope(tuple(rope.plain(theta, size).tolist()))
    largest = gemma and layers == _LARGEST_GEMMA
    return LlamaConfig(
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=_count(fields, f"{at}feed_forward_length"),
        vocabulary=len(fields.texts("tokenizer.ggml.tokens")),
        context=seen,
        epsilon=fields.number(f"{at}attention.layer_norm_rms_epsilon", None, 0, 1),
        rope=turned,
        # Converters put the two of a pair beside each other in Llama's alone.
        interleaved=name == "llama",
        activation="gelu_tanh" if gemma else "silu",
        biases=biases,
        qk_norms=name in ("qwen3", "gemma3"),
        post_norms=gemma,
        embedding_scale=width**0.5 if gemma else 1.0,
        attention_scale=(width // heads) ** -0.5 if largest else None,
        final_cap=fields.optional(f"{at}final_logit_softcapping", 1e-3, 1e6) if gemma else None,
        window=window,
        sliding=sliding,
        sliding_rope=local,
    )


def _check_keys(where: str, values: Mapping[str, Any], at: str, gemma: bool) -> None:
    """Keys with other prefixes are notes about the file, and the tokenizer's keys."""
    known = frozenset(at + key for key in (*_KEYS, *(_GEMMA if gemma else ())))
    own = {key: value for key, value in values.items() if key.startswith((at, "adapter."))}
    Fields(where, own).refuse_others(known, "llama.cpp has no such key, or it changes the result")


def _count(fields: Fields, name: str, default: int | None = None) -> int:
    """A number of all layers, or a list of one for each, which has to be the same in all."""
    value = fields.values.get(name)
    if isinstance(value, list) and value:
        if any(one != value[0] for one in value):
            raise WeightsError(
                f"{fields.where}: '{name}' is {short(value)}, expected the same in all layers; other models are not "
                "read."
            )
        return Fields(fields.where, {name: value[0]}).whole(name)
    return fields.whole(name, default)


def _windows(
    fields: Fields, at: str, gemma: bool, layers: int, context: int
) -> tuple[int | None, tuple[bool, ...]]:
    name = f"{at}attention.sliding_window"
    window = fields.whole(name, 0, 0)
    if not window:
        return None, ()
    if gemma:
        name = f"{at}attention.sliding_window_pattern"
        listed = fields.values.get(name)
        if isinstance(listed, list):
            if len(listed) != layers or not all(isinstance(one, bool) for one in listed):
                raise WeightsError(
                    f"{fields.where}: '{name}' must be a number, or true or false for each of {layers} layers, got "
                    f"{short(listed)}."
                )
            return window, tuple(listed)
        pattern = fields.whole(name, 6, 0)
        return window, tuple(pattern == 0 or (i + 1) % pattern != 0 for i in range(layers))
    if window < context:
        raise WeightsError(
            f"{fields.where}: '{name}' is {window}, of which llama.cpp takes no notice in such a model; give "
            f"--context {window}, or less, or the model's folder."
        )
    return None, ()
