"""Small models of each family, with weights from a seed: transformers' results for them are in data/expected.npz.

`python -m tests.lm.families` makes that file anew, in an environment with torch and transformers, which no test needs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCABULARY = 32, 3, 4, 2, 48, 96
PROMPT, WRITTEN = 48, 100
# Logits of the prompt that are kept, by position.
LOOKED_AT = (0, 1, 15, 16, 17, 31, 47)
EXPECTED = Path(__file__).parent / "data" / "expected.npz"

_OF_ALL: dict[str, Any] = {
    "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "intermediate_size": HIDDEN, "vocab_size": VOCABULARY, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
_SCALED = {"original_max_position_embeddings": 32, "factor": 4.0}
_LONG = {"short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.0, 2.0, 5.0, 9.0]}
_GEMMA = {
    "model_type": "gemma3_text", "head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 16,
    "tie_word_embeddings": True,
}  # fmt: skip


def _llama(**others: Any) -> dict[str, Any]:
    return {"model_type": "llama", "hidden_act": "silu", **others}


def _turned(**parameters: Any) -> dict[str, Any]:
    return _llama(rope_parameters={"rope_theta": 500.0, **parameters})


CASES: dict[str, dict[str, Any]] = {
    name: {**_OF_ALL, **case}
    for name, case in {
        "default": _turned(rope_type="default"),
        "older": _llama(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 3.0}),
        "linear": _turned(rope_type="linear", factor=3.0),
        # From 64 tokens on, which are passed while it writes.
        "dynamic": {**_turned(rope_type="dynamic", factor=3.0), "max_position_embeddings": 64},
        "llama3": _turned(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0, **_SCALED),
        "yarn": _turned(rope_type="yarn", **_SCALED),
        "yarn-other": _turned(
            rope_type="yarn", beta_fast=16.0, beta_slow=2.0, mscale=0.9, mscale_all_dim=0.5, truncate=False, **_SCALED
        ),
        "yarn-attention": _turned(rope_type="yarn", attention_factor=0.8, **_SCALED),
        "longrope": _turned(
            rope_type="longrope", original_max_position_embeddings=64, factor=4.0, **_LONG
        ),
        "longrope-prompt": _turned(
            rope_type="longrope", original_max_position_embeddings=40, factor=6.0, **_LONG
        ),
        "biases": _llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        "gelu": _llama(hidden_act="gelu", rope_parameters=None),
        "gelu_new": _llama(hidden_act="gelu_new", rope_scaling=None),
        "mistral": {"model_type": "mistral", "sliding_window": 16, "head_dim": 12},
        "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": 8},
        "qwen2-windows": {
            "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1,
        },
        "qwen3": {
            "model_type": "qwen3", "head_dim": 16, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
        },
        "gemma3": {
            **_GEMMA,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
            "final_logit_softcapping": 12.0,
        },
        "gemma3-older": {
            **_GEMMA, "query_pre_attn_scalar": 8, "sliding_window_pattern": 2, "rope_theta": 5000.0,
            "rope_local_base_freq": 100.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "hidden_activation": "gelu_pytorch_tanh",
        },
    }.items()
}  # fmt: skip


# Seeds with which these do not write the same few tokens again and again.
SEEDS = {"qwen3": 9, "gemma3_text": 12}


def head_size(config: dict[str, Any]) -> int:
    return config.get("head_dim", WIDTH // HEADS)


def weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """float32 of all tensors by their names in a Hugging Face folder."""
    family, size = config["model_type"], head_size(config)
    random = np.random.default_rng(SEEDS.get(family, 0))

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (scale * random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def norm(n: int) -> np.ndarray:
        gemma = family == "gemma3_text"
        return random.uniform(-0.5 if gemma else 0.5, 0.5 if gemma else 1.5, n).astype(np.float32)

    found = {
        "model.embed_tokens.weight": normal(
            VOCABULARY, WIDTH, scale=0.3 if "gemma" in family else 6.0
        )
    }
    matrices = {
        "self_attn.q_proj": (HEADS * size, WIDTH), "self_attn.k_proj": (KV_HEADS * size, WIDTH),
        "self_attn.v_proj": (KV_HEADS * size, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * size),
        "mlp.gate_proj": (HIDDEN, WIDTH), "mlp.up_proj": (HIDDEN, WIDTH), "mlp.down_proj": (WIDTH, HIDDEN),
    }  # fmt: skip
    biased = [name for name in matrices if _has_bias(config, name)]
    norms = {"input_layernorm": WIDTH, "post_attention_layernorm": WIDTH}
    if family == "gemma3_text":
        norms |= {"pre_feedforward_layernorm": WIDTH, "post_feedforward_layernorm": WIDTH}
    if family in ("qwen3", "gemma3_text"):
        norms |= {"self_attn.q_norm": size, "self_attn.k_norm": size}
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        found |= {
            f"{at}.{name}.weight": normal(*shape, scale=2.0) for name, shape in matrices.items()
        }
        found |= {f"{at}.{name}.bias": normal(matrices[name][0], scale=2.0) for name in biased}
        found |= {f"{at}.{name}.weight": norm(n) for name, n in norms.items()}
    # Gemma's tied embedding is small, or each token would be followed by itself.
    found["model.norm.weight"] = norm(WIDTH) + np.float32(9.0 if "gemma" in family else 0.0)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = normal(VOCABULARY, WIDTH, scale=4.0)
    return found


def _has_bias(config: dict[str, Any], name: str) -> bool:
    if config["model_type"] == "qwen2":
        return name[-6:] in ("q_proj", "k_proj", "v_proj")
    return bool(config.get("mlp_bias" if "mlp" in name else "attention_bias"))


def prompt() -> list[int]:
    return np.random.default_rng(1).integers(3, VOCABULARY, PROMPT).tolist()


# BPE over bytes, of which the vocabulary has those below its size.
TOKENIZER = {
    "added_tokens": [],
    "model": {"type": "BPE", "vocab": {chr(256 + i): i for i in range(VOCABULARY)}, "merges": []},
}


def write(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> Path:
    """The folder of a model."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder


# ---- GGUF, as convert_hf_to_gguf.py of llama.cpp writes it, by its package -------------------------------------------

_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip
_GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def gguf_name(name: str, gemma: bool) -> str:
    names = _NAMES | (_GEMMA_NAMES if gemma else {})
    where, kind = name.rsplit(".", 1)
    parts = where.split(".", 3)
    if parts[1:2] == ["layers"]:
        return f"blk.{parts[2]}.{names[parts[3]]}.{kind}"
    return f"{names[where]}.{kind}"


def write_gguf(
    path: Path,
    config: dict[str, Any],
    tensors: dict[str, np.ndarray],
    metadata: dict[str, Any] | None = None,
    kinds: dict[str, str] | None = None,
    more: dict[str, np.ndarray] | None = None,
    split: int = 0,
) -> Path:
    """The same model as GGUF; the path of its first part.

    Args:
      path: The file.
      config, tensors: As a Hugging Face folder has them.
      metadata: Keys without the architecture's name; None takes one away.
      kinds: Types of tensors by their names' ends: F32 for others.
      more: Tensors besides, by their names.
      split: Tensors of a part; 0: there are no parts.
    """
    import gguf

    family = config["model_type"]
    name = _ARCHITECTURES.get(family, family)
    writer = gguf.GGUFWriter(path, name, split_max_tensors=split)
    values = {
        "context_length": config["max_position_embeddings"], "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": HIDDEN, "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": head_size(config), "attention.value_length": head_size(config),
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "vocab_size": VOCABULARY, **(metadata or {}),
    }  # fmt: skip
    for key, value in values.items():
        if isinstance(value, str):
            writer.add_string(f"{name}.{key}", value)
        elif isinstance(value, list):
            writer.add_array(f"{name}.{key}", value)
        elif isinstance(value, float):
            writer.add_float32(f"{name}.{key}", value)
        elif value is not None:
            writer.add_uint32(f"{name}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(256 + i) for i in range(VOCABULARY)])
    writer.add_token_merges(["a b"])
    gemma = family == "gemma3_text"
    for key, values in {**tensors, **(more or {})}.items():
        if key in tensors:
            values, key = _converted(key, values, name, config), gguf_name(key, gemma)
        kind = next((kind for end, kind in (kinds or {}).items() if key.endswith(end)), "F32")
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(key, gguf.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if not split:
        return path
    return min(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _converted(
    name: str, values: np.ndarray, architecture: str, config: dict[str, Any]
) -> np.ndarray:
    """Gemma's norms with their 1, and Llama's q and k with the two of a pair beside each other."""
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return values + np.float32(1)
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        halves = values.reshape(-1, 2, head_size(config) // 2, *values.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
    return values


# ---- what transformers makes of them ---------------------------------------------------------------------------------


def _expected(folder: Path) -> dict[str, np.ndarray]:
    """By transformers: logits of the prompt, and the likeliest tokens behind it."""
    import torch
    import transformers

    found: dict[str, Any] = {
        "made by": f"torch {torch.__version__}, transformers {transformers.__version__}"
    }
    for name, config in CASES.items():
        path = write(folder / name, config, weights(config))
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = model(torch.tensor([prompt()])).logits[0].numpy()
            written = model.generate(
                torch.tensor([prompt()]),
                max_new_tokens=WRITTEN,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )[0, PROMPT:].numpy()
        found[f"{name} logits"] = logits[list(LOOKED_AT)].astype(np.float32)
        found[f"{name} written"] = written.astype(np.uint8)
        print(name, np.abs(logits).max(), written[:12], len(set(written.tolist())))
    return found


if __name__ == "__main__":
    EXPECTED.parent.mkdir(exist_ok=True)
    np.savez_compressed(EXPECTED, **_expected(Path(sys.argv[1])))
