"""A model and its tokenizer from a GGUF file, or from safetensors with config.json and tokenizer.json."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.reading import check_memory, kind_of, read_json

from . import of_config, of_metadata
from .architecture import MATRICES, LlamaConfig
from .fields import WeightsError
from .gguf import Gguf
from .llama import Llama
from .of_config import CONTEXT as CONTEXT
from .tokenizers import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf
from .weights import Packed, SafeTensors, files_of, other_format

_GGUF = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "down": "ffn_down", "attention": "attn_norm", "feed_forward": "ffn_norm", "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm", "attention_after": "post_attention_norm", "feed_forward_after": "post_ffw_norm",
}  # fmt: skip
_HUGGING_FACE = {
    "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "out": "self_attn.o_proj",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "attention": "input_layernorm",
    "feed_forward": "post_attention_layernorm", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
}  # fmt: skip
# With norms of the addends, the name of the one between the parts is another one's.
_WITH_POST_NORMS = {
    "attention_after": "post_attention_layernorm", "feed_forward": "pre_feedforward_layernorm",
    "feed_forward_after": "post_feedforward_layernorm",
}  # fmt: skip
# Fields that follow from the sizes, in older files, and for llama.cpp's NVFP4 the scale by which it rounds the inputs
# of products.
_IGNORED = re.compile(
    r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq|blk\.\d+\.\w+\.input_scale"
)
# The beginning of the text's names beside pictures, and its last matrix: as transformers 4 and 5 have them.
_BESIDE_PICTURES = {
    "language_model.model.": "language_model.lm_head.weight",
    "model.language_model.": "lm_head.weight",
}
_PICTURES = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\.")
_FACTORS = ("rope_freqs", "rope_factors_short", "rope_factors_long")


def load(path: Path, context: int | None) -> tuple[Llama, Tokenizer]:
    """The model in a file or folder.

    Args:
      path: A .gguf file, or any part of a split one, a .safetensors file, or a folder with such and config.json and
        tokenizer.json.
      context: Tokens that are seen at once; None: the model's own, at most `CONTEXT`.

    Raises:
      WeightsError: It cannot be read, or is another kind of model.
    """
    kind = kind_of(path, WeightsError)
    if not kind:
        raise WeightsError(f"{path}: no such model; give a .gguf, a .safetensors or a folder.")
    if kind == "folder":
        return _safetensors(files_of(path), path, context)
    if path.suffix.lower() == ".gguf":
        return _gguf(Gguf(path), context)
    if path.suffix.lower() == ".safetensors":
        return _safetensors(files_of(path.parent, path), path.parent, context)
    raise WeightsError(f"{path}: expected a .gguf, a .safetensors or a folder{other_format(path)}.")


class _Names:
    """A format's names of the tensors.

    Args:
      parts: Names of a layer's parts.
      layer: The beginning of a layer's, by its number.
      embedding, last_norm, head: The others.
    """

    def __init__(
        self, parts: dict[str, str], layer: str, embedding: str, last_norm: str, head: str
    ) -> None:
        self._parts, self._layer = parts, layer
        self.embedding, self.last_norm, self.head = embedding, last_norm, head

    def of(self, i: int, part: str, kind: str = "weight") -> str:
        return f"{self._layer.format(i)}.{self._parts[part]}.{kind}"


def _build(
    source: Gguf | SafeTensors,
    config: LlamaConfig,
    names: _Names,
    tied: bool | None = None,
    norm_offset: float = 0.0,
    others: frozenset[str] = frozenset(),
) -> Llama:
    """The model, after all tensors were found to be there, of the right shape, and to be all.

    Args:
      source: The tensors.
      config: The model.
      names: Names of the tensors.
      tied: Whether the last matrix is the embedding, as far as the file says.
      norm_offset: The addend of the norms' scales.
      others: Tensors that were read already.
    """
    wanted: dict[str, tuple[int, ...]] = {}
    for i in range(config.layers):
        for part, (inputs, outputs) in config.matrices().items():
            wanted[names.of(i, part)] = (outputs, inputs)
            if part in config.biases:
                wanted[names.of(i, part, "bias")] = (outputs,)
        for part, size in config.norms().items():
            wanted[names.of(i, part)] = (size,)
    embedding, head = names.embedding, names.head
    # A head in the file counts whatever the configuration says, and one of both is enough where they are tied.
    if tied and embedding not in source.shapes and head in source.shapes:
        embedding = head
    wanted |= {embedding: (config.vocabulary, config.width), names.last_norm: (config.width,)}
    alone = embedding != head and (head in source.shapes or tied is False)
    if alone:
        wanted[head] = (config.vocabulary, config.width)
    for name, shape in wanted.items():
        if name not in source.shapes:
            raise WeightsError(f"{source.path}: tensor '{name}' is missing; it is another model.")
        if source.shapes[name] != shape:
            raise WeightsError(
                f"{source.path}: tensor '{name}' has shape {list(source.shapes[name])}, expected {list(shape)} by the "
                "model's sizes."
            )
    # llama.cpp's number by which a matrix is multiplied, beside blocks of NVFP4.
    scales = {
        names.of(i, part, "scale")
        for i in range(config.layers)
        for part in MATRICES
        if isinstance(source, Gguf) and source.shapes.get(names.of(i, part, "scale")) == (1,)
    }
    known = wanted.keys() | scales | others
    strange = sorted(n for n in source.shapes if n not in known and not _IGNORED.fullmatch(n))
    if strange:
        raise WeightsError(
            f"{source.path}: tensor {short(strange[0])} is none that such a model has; models with other biases, norms "
            "or experts are not read."
        )
    needed = sum(map(source.n_bytes, wanted))
    check_memory(needed, str(source.path), "give a smaller model", WeightsError)

    def matrix(i: int, part: str) -> np.ndarray | Packed:
        found, scale = source.packed(names.of(i, part)), names.of(i, part, "scale")
        if scale not in scales:
            return found
        factor = float(source.floats(scale)[0])
        return found.times(factor) if isinstance(found, Packed) else found * np.float32(factor)

    def norm(name: str) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # of damaged files
            return source.floats(name) + np.float32(norm_offset)

    def of_layer(i: int) -> dict[str, Any]:
        return {
            **{part: matrix(i, part) for part in MATRICES},
            **{part: norm(names.of(i, part)) for part in config.norms()},
            **{f"{part}_bias": source.floats(names.of(i, part, "bias")) for part in config.biases},
        }

    return Llama(
        config,
        source.packed(embedding),
        source.packed(head) if alone else None,
        [of_layer(i) for i in range(config.layers)],
        norm(names.last_norm),
    )


# ---- GGUF -----------------------------------------------------------------------------------------------------------


def _gguf(file: Gguf, context: int | None) -> tuple[Llama, Tokenizer]:
    where, data = str(file.path), file.metadata
    # No other model of llama.cpp's has such.
    read = _FACTORS if data.get("general.architecture") == "llama" else ()
    factors = {name: f"{name}.weight" for name in read if f"{name}.weight" in file.shapes}
    names = _Names(_GGUF, "blk.{}", "token_embd.weight", "output_norm.weight", "output.weight")
    biases = frozenset(part for part in MATRICES if names.of(0, part, "bias") in file.shapes)
    config = of_metadata.read(
        where,
        data,
        context,
        {name: file.floats(tensor).ravel() for name, tensor in factors.items()},
        biases,
    )
    tokenizer = tokenizer_of_gguf(data, where)
    return _build(file, config, names, others=frozenset(factors.values())), tokenizer


# ---- safetensors ----------------------------------------------------------------------------------------------------


def _safetensors(
    files: dict[Path, list[str] | None], folder: Path, context: int | None
) -> tuple[Llama, Tokenizer]:
    where = str(folder / "config.json")
    if not os.path.lexists(where):
        raise WeightsError(f"{where}: no such file, which describes the model; get it, too.")
    values = read_json(folder / "config.json", WeightsError)
    if not isinstance(values, dict):
        raise WeightsError(f"{where}: expected an object, got {short(values)}.")
    text = of_config.text_of(where, values)
    config = of_config.read(where, text, context)
    tokenizer = tokenizer_of_folder(folder, config.vocabulary)
    parts = _HUGGING_FACE | (_WITH_POST_NORMS if config.post_norms else {})
    source = SafeTensors(files)
    at = next((at for at in _BESIDE_PICTURES if f"{at}norm.weight" in source.shapes), "model.")
    names = _Names(
        parts,
        f"{at}layers.{{}}",
        f"{at}embed_tokens.weight",
        f"{at}norm.weight",
        _BESIDE_PICTURES.get(at, "lm_head.weight"),
    )
    pictures = frozenset(n for n in source.shapes if at != "model." and _PICTURES.match(n))
    # Gemma's scales are differences from 1; converters to GGUF have added it.
    offset = 1.0 if config.post_norms else 0.0
    return _build(source, config, names, of_config.tied(where, text), offset, pictures), tokenizer
