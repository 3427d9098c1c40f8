"""config.json of a Hugging Face folder, as the newest transformers reads it: a field is honoured, harmless or refused.

A missing field means the default of the family's class in transformers 5.23.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metal_ops.programs.errors import short

from . import rope
from .architecture import LlamaConfig
from .fields import Fields, WeightsError

MOST_LAYERS = 1 << 12
CONTEXT = 2048  # unless more is asked for: caches take memory by it


class Family(NamedTuple):
    """How a family's configuration differs from Llama's.

    Attributes:
      name: Name of the family, for sentences.
      context: Tokens that it is trained on, where the file does not say.
      kv_heads: Heads of keys and values, where it does not say; None: as many as of queries.
      head_size: The same of a head; None: width / heads.
      keys: Its own fields that are honoured.
      biases: Matrices that always have one.
    """

    name: str
    context: int = 32768
    kv_heads: int | None = 32
    head_size: int | None = None
    keys: tuple[str, ...] = ()
    biases: frozenset[str] = frozenset()


_WINDOWS = ("sliding_window", "layer_types")
_QWEN = (*_WINDOWS, "use_sliding_window", "max_window_layers")
FAMILIES = {
    "llama": Family("Llama", 2048, None, keys=("attention_bias", "mlp_bias")),
    "mistral": Family("Mistral", 131072, 8, keys=_WINDOWS),
    "qwen2": Family("Qwen 2", keys=_QWEN, biases=frozenset("qkv")),
    "qwen3": Family("Qwen 3", head_size=128, keys=(*_QWEN, "attention_bias")),
    "gemma3_text": Family(
        "Gemma 3",
        131072,
        4,
        256,
        (
            *_WINDOWS, "attention_bias", "hidden_activation", "query_pre_attn_scalar", "sliding_window_pattern",
            "_sliding_window_pattern", "rope_local_base_freq", "final_logit_softcapping",
        ),
    ),
}  # fmt: skip
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh",
}  # fmt: skip
_OF_ALL = frozenset(
    (
        "model_type", "architectures", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "intermediate_size", "num_hidden_layers", "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act",
        "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
        "original_max_position_embeddings",
    )
)  # fmt: skip
# About training, generating, classes and files: logits are the same whatever these say.
_HARMLESS = frozenset(
    (
        "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_flash_attn_2_enabled",
        "_name_or_path", "_num_labels", "attention_dropout", "attention_probs_dropout_prob", "attn_implementation",
        "auto_map", "bad_words_ids", "begin_suppress_tokens", "boi_token_id", "bos_token", "bos_token_id",
        "cache_implementation", "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty",
        "do_sample", "dtype", "early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size", "eoi_token_id",
        "eos_token", "eos_token_id", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
        "forced_eos_token_id", "gradient_checkpointing", "hidden_dropout", "hidden_dropout_prob", "id2label",
        "initializer_range", "is_llama_config", "keys_to_ignore_at_inference", "label2id", "length_penalty",
        "max_length", "max_sequence_length", "min_length", "model_max_length", "name_or_path", "neftune_noise_alpha",
        "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences",
        "output_attentions", "output_hidden_states", "output_scores", "pad_token", "pad_token_id", "prefix",
        "pretraining_tp", "problem_type", "repetition_penalty", "resid_pdrop", "return_dict",
        "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
        "tf_legacy_loss", "tie_last_hidden_states", "tokenizer_class", "top_k", "top_p", "torch_dtype",
        "torchscript", "transformers.js_config", "transformers_version", "typical_p", "unk_token_id",
        "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache", "use_flash_attention",
    )
)  # fmt: skip
# Fields that are refused, and their remedies; other ones that are not known are refused, too.
_REFUSED = {
    "quantization_config": "its weights are quantized; take the model's folder in BF16 or F16, or a .gguf of it",
    "quantization": "its weights are quantized; take the model's folder in BF16 or F16, or a .gguf of it",
    "compression_config": "its weights are compressed; take the model's folder in BF16 or F16, or a .gguf of it",
    "attn_logit_softcapping": "transformers computes without it, other readers with it; set it to null for the former",
    "use_bidirectional_attention": "such a model makes embeddings, and writes no text; give a model that writes",
    "num_experts": "models with experts are not read; give one without",
    "num_local_experts": "models with experts are not read; give one without",
}
_LAYERS = ("full_attention", "sliding_attention")
# For a model of text and pictures, of which the text's part is read; its file has only the differences from these.
_WITH_PICTURES = frozenset(
    (
        "model_type", "architectures", "text_config", "vision_config", "mm_tokens_per_image", "boi_token_index",
        "eoi_token_index", "image_token_index", "image_token_id", "tie_word_embeddings",
    )
)  # fmt: skip
_GEMMA = {
    "model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8,
}  # fmt: skip


def text_of(where: str, values: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the part that writes text: of Gemma 3 with pictures an object inside, else all."""
    if values.get("model_type") != "gemma3":
        return values
    fields = Fields(where, values)
    _refuse(fields)
    fields.refuse_others(
        _WITH_PICTURES | _HARMLESS, "Gemma 3 has no such field, and it may change the result"
    )
    tied = values.get("tie_word_embeddings")
    outer = {} if tied is None else {"tie_word_embeddings": tied}
    return {**_GEMMA, **outer, **fields.inner("text_config").values}


def read(where: str, values: dict[str, Any], context: int | None) -> LlamaConfig:
    """The model that a config.json describes.

    Args:
      where: Its path, for sentences.
      values: The fields of the part that writes text: `text_of`.
      context: Tokens to see at once; None: the model's own, at most `CONTEXT`.

    Raises:
      WeightsError: It is another model, or has a field of unknown meaning.
    """
    fields = Fields(where, values)
    kind = fields.one_of("model_type", tuple(FAMILIES), "other models, or experts, are not read")
    family, gemma = FAMILIES[kind], kind == "gemma3_text"
    known = _OF_ALL | _HARMLESS | set(family.keys)
    _refuse(fields)
    fields.refuse_others(known, f"{family.name} has no such field, and it may change the result")
    _check_classes(fields)
    width, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    head_size = fields.whole("head_dim", family.head_size or width // heads)
    kv_heads = fields.whole("num_key_value_heads", family.kv_heads or heads)
    layers = fields.whole("num_hidden_layers", most=MOST_LAYERS)
    check_heads(where, heads, kv_heads, head_size)
    own = fields.whole("max_position_embeddings", family.context)
    outer = Fields(where, {**values, "max_position_embeddings": own})
    if gemma:
        turned, local = rope.of_layers(outer, head_size, 1e6, 1e4)
    else:
        turned, local = rope.of_config(outer, head_size), None
    window, sliding = _windows(fields, kind, layers)
    return LlamaConfig(
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        hidden=fields.whole("intermediate_size"),
        vocabulary=fields.whole("vocab_size"),
        context=context_of(where, max(own, turned.reach), context, own),
        epsilon=fields.number("rms_norm_eps", 1e-6, 0, 1),
        rope=turned,
        interleaved=False,
        activation=_activation(fields, gemma),
        biases=family.biases
        | (frozenset(("q", "k", "v", "out")) if fields.flag("attention_bias") else frozenset())
        | (frozenset(("gate", "up", "down")) if fields.flag("mlp_bias") else frozenset()),
        qk_norms=kind in ("qwen3", "gemma3_text"),
        post_norms=gemma,
        embedding_scale=width**0.5 if gemma else 1.0,
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5 if gemma else None,
        final_cap=fields.optional("final_logit_softcapping", 1e-3, 1e6),
        window=window,
        sliding=sliding,
        sliding_rope=local,
    )


def _refuse(fields: Fields) -> None:
    for name, remedy in _REFUSED.items():
        value = fields.values.get(name)
        if value not in (None, False, 0, {}):
            raise WeightsError(
                f"{fields.where}: '{name}' is {short(value)}, which is not supported: {remedy}."
            )


def tied(where: str, values: dict[str, Any]) -> bool | None:
    """Whether the embedding is the last matrix, too; None where the file does not say."""
    said = values.get("tie_word_embeddings") is not None
    return Fields(where, values).flag("tie_word_embeddings") if said else None


def check_heads(where: str, heads: int, kv_heads: int, head_size: int) -> None:
    if heads % kv_heads or head_size % 2 or head_size > 256:
        raise WeightsError(
            f"{where}: {heads} heads of {head_size} and {kv_heads} of keys do not fit together: expected a multiple, "
            "of an even size of at most 256."
        )


def context_of(where: str, most: int, asked: int | None, own: int | None = None) -> int:
    """Tokens that are seen at once; unless they are asked for, no more than the model was trained on."""
    if asked is not None and asked > most:
        raise WeightsError(f"{where}: sees {most} tokens at once, --context {asked} is more.")
    return min(own or most, CONTEXT) if asked is None else asked


def _check_classes(fields: Fields) -> None:
    """Classifiers and embedding models have the same fields, and no logits of tokens."""
    if fields.values.get("architectures") in (None, []):
        return
    for name in fields.texts("architectures"):
        if not name.endswith(("ForCausalLM", "Gemma3ForConditionalGeneration")):
            raise WeightsError(
                f"{fields.where}: 'architectures' is {short(name)}, expected one that ends with ForCausalLM; it does "
                "not write text."
            )


def _activation(fields: Fields, gemma: bool) -> str:
    name = "hidden_activation" if gemma else "hidden_act"
    default = "gelu_pytorch_tanh" if gemma else "silu"
    known = (*_ACTIVATIONS, None)
    value = fields.one_of(name, known, "another activation is not computed") or default
    if gemma and fields.values.get("hidden_act") not in (None, value):
        raise WeightsError(
            f"{fields.where}: 'hidden_act' is {short(fields.values['hidden_act'])}, and 'hidden_activation' "
            f"{short(value)}; leave the first one out."
        )
    return _ACTIVATIONS[value]


def _windows(fields: Fields, kind: str, layers: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, and which layers have it."""
    values = fields.values
    listed = values.get("layer_types")
    if kind == "llama":
        return None, ()
    # A field that is missing is not one that is null.
    window = fields.whole("sliding_window") if values.get("sliding_window") is not None else None
    if "sliding_window" not in values:
        window = 4096
    if kind.startswith("qwen"):
        window = window if fields.flag("use_sliding_window") else None
        first = fields.whole("max_window_layers", 28, 0)
        sliding = tuple(window is not None and i >= first for i in range(layers))
    elif kind == "mistral":
        sliding = (window is not None,) * layers
    else:
        pattern = fields.whole("sliding_window_pattern", 6)
        other = fields.whole("_sliding_window_pattern", pattern)
        if listed is None and other != pattern:
            raise WeightsError(
                f"{fields.where}: '_sliding_window_pattern' is {other}, of which transformers takes no notice; give "
                "'layer_types', or call it 'sliding_window_pattern'."
            )
        sliding = tuple((i + 1) % pattern != 0 for i in range(layers))
    if listed is not None:
        names = fields.texts("layer_types")
        if len(names) != layers or not set(names) <= set(_LAYERS):
            raise WeightsError(
                f"{fields.where}: 'layer_types' must name {layers} layers, each {' or '.join(_LAYERS)}, got "
                f"{short(names)}."
            )
        found = tuple(name == _LAYERS[1] for name in names)
        if kind == "mistral" and found != sliding:
            raise WeightsError(
                f"{fields.where}: 'layer_types' is {short(names)}, and layers of Mistral all have 'sliding_window' "
                f"{short(window)}; it is another model."
            )
        sliding = found
    if any(sliding) and window is None:
        raise WeightsError(
            f"{fields.where}: 'layer_types' has sliding layers, and no 'sliding_window' is in use; give one."
        )
    return (window, sliding) if any(sliding) else (None, ())
