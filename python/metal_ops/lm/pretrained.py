"""A Llama-like model and its tokenizer from a GGUF file, or from safetensors with config.json and tokenizer.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.reading import check_memory, is_number, kind_of, read_json

from .gguf import Gguf
from .llama import MATRICES, Llama, LlamaConfig
from .tokenizers import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf
from .weights import SafeTensors, WeightsError

CONTEXT = 2048  # unless more is asked for: caches take memory by it

_GGUF = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down", "attention": "attn_norm", "feed_forward": "ffn_norm",
}  # fmt: skip
_HUGGING_FACE = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "attention": "input_layernorm",
    "feed_forward": "post_attention_layernorm",
}  # fmt: skip
# Follows from the sizes; older files have it.
_IGNORED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def load(path: Path, context: int | None) -> tuple[Llama, Tokenizer]:
    """The model in a file or folder.

    Args:
      path: A .gguf file, a .safetensors file, or a folder with such and config.json and tokenizer.json.
      context: Tokens that are seen at once; None: the model's own, at most `CONTEXT`.

    Raises:
      WeightsError: It cannot be read, or is another kind of model.
    """
    kind = kind_of(path, WeightsError)
    if not kind:
        raise WeightsError(f"{path}: no such model; give a .gguf, a .safetensors or a folder.")
    if kind == "folder":
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise WeightsError(f"{path}: holds no .safetensors; give the folder of a model.")
        return _safetensors(files, path, context)
    if path.suffix.lower() == ".gguf":
        return _gguf(Gguf(path), context)
    if path.suffix.lower() == ".safetensors":
        return _safetensors([path], path.parent, context)
    raise WeightsError(f"{path}: expected a .gguf, a .safetensors or a folder.")


class _Fields:
    """Values by name, of the type that is wanted."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self._where, self._values = where, values

    def number(
        self, name: str, default: Any = None, least: float = 1, most: float = 1 << 24
    ) -> Any:
        value = self._values.get(name)
        value = default if value is None else value
        if not (is_number(value) and least <= value <= most):
            raise WeightsError(
                f"{self._where}: '{name}' must be a number from {least:g} to {most:g}, got {short(value)}."
            )
        return value

    def whole(self, name: str, default: Any = None) -> int:
        value = self.number(name, default)
        if int(value) != value:
            raise WeightsError(
                f"{self._where}: '{name}' must be a whole number, got {short(value)}."
            )
        return int(value)

    def texts(self, name: str) -> list[str]:
        value = self._values.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise WeightsError(
                f"{self._where}: '{name}' must be a list of texts, got {short(value)}."
            )
        return value

    def one_of(self, name: str, known: tuple[Any, ...], remedy: str) -> Any:
        value = self._values.get(name)
        if value not in known:
            wanted = " or ".join(repr(x) for x in known if x is not None)
            raise WeightsError(
                f"{self._where}: '{name}' is {short(value)}, expected {wanted}; {remedy}."
            )
        return value


def _check_sizes(where: str, heads: int, kv_heads: int, head_size: int, pairs: int) -> None:
    if heads % kv_heads or head_size % 2 or head_size > 256 or 2 * pairs > head_size:
        raise WeightsError(
            f"{where}: {heads} heads of {head_size}, {2 * pairs} of them turned, and {kv_heads} of keys do not fit "
            "together: expected a multiple, of an even size of at most 256."
        )


def _frequencies(base: float, size: int) -> np.ndarray:
    return float(base) ** (-np.arange(0, size, 2) / size)


def _build(
    source: Gguf | SafeTensors,
    config: LlamaConfig,
    names: dict[str, str],
    layer: str,
    outer: tuple[str, str, str],
) -> Llama:
    """The model, after all tensors were found to be there, of the right shape, and to be all."""
    wanted: dict[str, tuple[int, ...]] = {
        f"{layer.format(i)}.{names[part]}.weight": shape[::-1]
        for i in range(config.layers)
        for part, shape in config.matrices().items()
    }
    for i in range(config.layers):
        for part in ("attention", "feed_forward"):
            wanted[f"{layer.format(i)}.{names[part]}.weight"] = (config.width,)
    embedding, last_norm, head = outer
    wanted |= {embedding: (config.vocabulary, config.width), last_norm: (config.width,)}
    tied = head not in source.shapes
    if not tied:
        wanted[head] = (config.vocabulary, config.width)
    for name, shape in wanted.items():
        if name not in source.shapes:
            raise WeightsError(f"{source.path}: tensor '{name}' is missing; it is another model.")
        if source.shapes[name] != shape:
            raise WeightsError(
                f"{source.path}: tensor '{name}' has shape {list(source.shapes[name])}, expected {list(shape)} by the "
                "model's sizes."
            )
    others = sorted(n for n in source.shapes if n not in wanted and not _IGNORED.fullmatch(n))
    if others and others != ["rope_freqs.weight"]:
        raise WeightsError(
            f"{source.path}: tensor {short(others[0])} is none that a Llama has; models with biases, experts or other "
            "norms are not read."
        )
    n_values = sum(int(np.prod(shape)) for shape in wanted.values())
    check_memory(4 * n_values, str(source.path), "give a smaller model", WeightsError)

    def of_layer(i: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part, called in names.items():
            name = f"{layer.format(i)}.{called}.weight"
            found[part] = source.packed(name) if part in MATRICES else source.floats(name)
        return found

    return Llama(
        config,
        source.packed(embedding),
        None if tied else source.packed(head),
        [of_layer(i) for i in range(config.layers)],
        source.floats(last_norm),
    )


# ---- GGUF -----------------------------------------------------------------------------------------------------------


def _gguf(file: Gguf, context: int | None) -> tuple[Llama, Tokenizer]:
    where, data = str(file.path), file.metadata
    fields = _Fields(where, data)
    fields.one_of("general.architecture", ("llama",), "only Llama's and those alike are read")
    fields.one_of("llama.rope.scaling.type", (None, "none"), "positions cannot be scaled so")
    width, heads = (
        fields.whole("llama.embedding_length"),
        fields.whole("llama.attention.head_count"),
    )
    head_size = fields.whole("llama.attention.key_length", width // heads)
    size = fields.whole("llama.rope.dimension_count", head_size)
    kv_heads = fields.whole("llama.attention.head_count_kv", heads)
    _check_sizes(where, heads, kv_heads, head_size, size // 2)
    frequencies = _frequencies(fields.number("llama.rope.freq_base", 10000.0, 1, 1e12), size)
    if "rope_freqs.weight" in file.shapes:  # Llama 3's
        factors = file.floats("rope_freqs.weight").ravel()
        if len(factors) != len(frequencies) or not (factors > 0).all():
            raise WeightsError(f"{where}: tensor 'rope_freqs.weight' does not fit; it is damaged.")
        frequencies = frequencies / factors
    tokens = fields.texts("tokenizer.ggml.tokens")
    own = fields.whole("llama.context_length", CONTEXT)
    config = LlamaConfig(
        width=width,
        layers=fields.whole("llama.block_count"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=fields.whole("llama.feed_forward_length"),
        vocabulary=len(tokens),
        context=_context(where, own, context),
        epsilon=fields.number("llama.attention.layer_norm_rms_epsilon", 1e-5, 0, 1),
        frequencies=tuple(frequencies.tolist()),
        interleaved=True,
    )
    tokenizer = tokenizer_of_gguf(data, where)
    outer = ("token_embd.weight", "output_norm.weight", "output.weight")
    return _build(file, config, _GGUF, "blk.{}", outer), tokenizer


def _context(where: str, own: int, asked: int | None) -> int:
    if asked is not None and asked > own:
        raise WeightsError(f"{where}: sees {own} tokens at once, --context {asked} is more.")
    return min(own, CONTEXT) if asked is None else asked


# ---- safetensors ----------------------------------------------------------------------------------------------------


def _safetensors(files: list[Path], folder: Path, context: int | None) -> tuple[Llama, Tokenizer]:
    where = str(folder / "config.json")
    values = read_json(folder / "config.json", WeightsError)
    if not isinstance(values, dict):
        raise WeightsError(f"{where}: expected an object, got {short(values)}.")
    fields = _Fields(where, values)
    fields.one_of("model_type", ("llama", "mistral"), "only Llama's and those alike are read")
    fields.one_of("hidden_act", ("silu", None), "another activation is not computed")
    fields.one_of("sliding_window", (None,), "windows are not read")
    width, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    head_size = fields.whole("head_dim", width // heads)
    kv_heads = fields.whole("num_key_value_heads", heads)
    _check_sizes(where, heads, kv_heads, head_size, head_size // 2)
    base = fields.number("rope_theta", 10000.0, 1, 1e12)
    frequencies = _scaled(where, _frequencies(base, head_size), values.get("rope_scaling"))
    config = LlamaConfig(
        width=width,
        layers=fields.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        context=_context(where, fields.whole("max_position_embeddings", CONTEXT), context),
        epsilon=fields.number("rms_norm_eps", 1e-6, 0, 1),
        frequencies=tuple(frequencies.tolist()),
        interleaved=False,
    )
    tokenizer = tokenizer_of_folder(folder, config.vocabulary)
    outer = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    return _build(SafeTensors(files), config, _HUGGING_FACE, "model.layers.{}", outer), tokenizer


def _scaled(where: str, frequencies: np.ndarray, scaling: Any) -> np.ndarray:
    """Llama 3's: slow pairs are slowed down by a factor, fast ones not, and between them the one becomes the other."""
    if scaling is None:
        return frequencies
    fields = _Fields(f"{where}: rope_scaling", scaling if isinstance(scaling, dict) else {})
    name = "rope_type" if isinstance(scaling, dict) and "rope_type" in scaling else "type"
    kind = fields.one_of(name, ("llama3", "linear", "default"), "positions cannot be scaled so")
    if kind == "default":
        return frequencies
    factor = fields.number("factor", None, 1, 1e6)
    if kind == "linear":
        return frequencies / factor
    low, high = (fields.number(f"{n}_freq_factor", None, 1e-3, 1e6) for n in ("low", "high"))
    turns = fields.number("original_max_position_embeddings") * frequencies / (2 * np.pi)
    share = np.clip((turns - low) / max(high - low, 1e-9), 0, 1)
    return frequencies * ((1 - share) / factor + share)
