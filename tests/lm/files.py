"""Writes small models with random weights as GGUF and safetensors files, and computes their logits in float64."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, HIDDEN = 64, 2, 4, 2, 96
SIZE = WIDTH // HEADS
EPSILON, BASE = 1e-5, 5000.0
KINDS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
SHAPES = {
    "q": (WIDTH, WIDTH), "k": (KV_HEADS * SIZE, WIDTH), "v": (KV_HEADS * SIZE, WIDTH), "out": (WIDTH, WIDTH),
    "gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN),
}  # fmt: skip
GGUF = dict(
    q="attn_q", k="attn_k", v="attn_v", out="attn_output", gate="ffn_gate", up="ffn_up", down="ffn_down",
    attention="attn_norm", feed_forward="ffn_norm",
)  # fmt: skip
HUGGING_FACE = dict(
    q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", out="self_attn.o_proj", gate="mlp.gate_proj",
    up="mlp.up_proj", down="mlp.down_proj", attention="input_layernorm", feed_forward="post_attention_layernorm",
)  # fmt: skip

# A piece for each printable byte, some longer ones, and all bytes.
CONTROL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [
    "\u2581",
    *map(chr, range(33, 127)),
    "th",
    "he",
    "the",
    "\u2581the",
    "\u2581t",
    "in",
    "\u00e4",
]
TOKENS = [*CONTROL, *BYTES, *PIECES]
SCORES = [0.0] * 259 + [-100.0] * 95 + [-3.0, -4.0, -1.0, -0.5, -5.0, -2.0, -90.0]
TYPES = [2, 3, 3] + [6] * 256 + [1] * len(PIECES)


def random_model(seed: int = 0, tied: bool = False) -> dict[str, Any]:
    """Weights as Hugging Face has them: [outputs, inputs], pairs of positions from both halves of a head."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    model: dict[str, Any] = {"embedding": 8 * normal(len(TOKENS), WIDTH)}
    for i in range(LAYERS):
        for name, shape in SHAPES.items():
            model[f"{i} {name}"] = normal(*shape)
        for name in ("attention", "feed_forward"):
            model[f"{i} {name}"] = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    model["last_norm"] = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    model["head"] = None if tied else normal(len(TOKENS), WIDTH)
    return model


def neighbours(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k as converters to GGUF put them: the two of a pair beside each other."""
    halves = matrix.reshape(heads, 2, SIZE // 2, -1)
    return halves.swapaxes(1, 2).reshape(matrix.shape)


def oracle(
    model: dict[str, Any], tokens: list[int], frequencies: np.ndarray | None = None
) -> np.ndarray:
    """Logits [length, tokens] in float64, by loops over heads."""
    model = {name: None if v is None else v.astype(np.float64) for name, v in model.items()}
    if frequencies is None:
        frequencies = BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    n = len(tokens)
    angle = np.arange(n)[:, None] * frequencies

    def norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * scale

    def turn(x: np.ndarray) -> np.ndarray:
        a, b = x[:, : SIZE // 2], x[:, SIZE // 2 :]
        c, s = np.cos(angle), np.sin(angle)
        return np.concatenate([a * c - b * s, a * s + b * c], 1)

    x = model["embedding"][tokens]
    for i in range(LAYERS):
        y = norm(x, model[f"{i} attention"])
        q, k, v = (y @ model[f"{i} {name}"].T for name in "qkv")
        joined = []
        for head in range(HEADS):
            own, shared = (
                slice(h * SIZE, (h + 1) * SIZE) for h in (head, head * KV_HEADS // HEADS)
            )
            scores = turn(q[:, own]) @ turn(k[:, shared]).T / np.sqrt(SIZE)
            scores[np.triu_indices(n, 1)] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            joined.append(weights / weights.sum(1, keepdims=True) @ v[:, shared])
        x = x + np.concatenate(joined, 1) @ model[f"{i} out"].T
        y = norm(x, model[f"{i} feed_forward"])
        gate = y @ model[f"{i} gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ model[f"{i} up"].T)) @ model[f"{i} down"].T
    head = model["embedding"] if model["head"] is None else model["head"]
    return norm(x, model["last_norm"]) @ head.T


# ---- quantized blocks, by the format's definition, one at a time ----------------------------------------------------


def packed(values: np.ndarray, kind: str) -> tuple[bytes, np.ndarray]:
    """A tensor's bytes, and their values."""
    flat = values.astype(np.float32).ravel()
    if kind == "F32":
        return flat.tobytes(), values
    if kind == "F16":
        return flat.astype(np.float16).tobytes(), values.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        bits = flat.view(np.uint32) >> 16
        return bits.astype(np.uint16).tobytes(), (bits << 16).view(np.float32).reshape(values.shape)
    content, meant = b"", []
    for block in flat.reshape(-1, 32):
        if kind == "Q8_0":
            scale = np.float16(np.abs(block).max() / 127)
            codes = np.clip(np.round(block / np.float32(scale)), -127, 127).astype(np.int8)
            content += scale.tobytes() + codes.tobytes()
            meant.append(np.float32(scale) * codes)
            continue
        low = np.float16(block.min()) if kind == "Q4_1" else None
        step = np.float16(
            (block.max() - block.min()) / 15 if low is not None else np.abs(block).max() / 7
        )
        zero = np.float32(low) if low is not None else -8 * np.float32(step)
        codes = np.clip(np.round((block - zero) / np.float32(step)), 0, 15).astype(np.uint8)
        content += step.tobytes() + (low.tobytes() if low is not None else b"")
        content += (codes[:16] | codes[16:] << 4).tobytes()
        meant.append(codes * np.float32(step) + zero)
    return content, np.concatenate(meant).reshape(values.shape)


# ---- GGUF -----------------------------------------------------------------------------------------------------------


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
    kind, form = (5, "i") if isinstance(value[0], int) else (6, "f")
    return struct.pack(f"<IIQ{len(value)}{form}", 9, kind, len(value), *value)


METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": WIDTH,
    "llama.block_count": LAYERS,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": EPSILON,
    "llama.feed_forward_length": HIDDEN,
    "llama.context_length": 64,
    "llama.rope.freq_base": BASE,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.scores": SCORES,
    "tokenizer.ggml.token_type": TYPES,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def write_gguf(
    path: Path,
    model: dict[str, Any],
    kind: str = "F32",
    metadata: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes the model, matrices as `kind`; returns the file's values, in the order of `random_model`."""
    meant, tensors = dict(model), {}

    def add(name: str, key: str, values: np.ndarray, how: str, heads: int = 0) -> None:
        data, stands = packed(neighbours(values, heads) if heads else values, how)
        if heads:  # back
            stands = stands.reshape(heads, SIZE // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        meant[key], tensors[name] = stands, (values.shape, KINDS[how], data)

    add("token_embd.weight", "embedding", model["embedding"], kind)
    add("output_norm.weight", "last_norm", model["last_norm"], "F32")
    if model["head"] is not None:
        add("output.weight", "head", model["head"], kind)
    for i in range(LAYERS):
        for part, called in GGUF.items():
            key = f"{i} {part}"
            how = kind if part in SHAPES else "F32"
            heads = {"q": HEADS, "k": KV_HEADS}.get(part, 0)
            add(f"blk.{i}.{called}.weight", key, model[key], how, heads)
    for name, values in (more or {}).items():
        # An array, or shape, kind and bytes.
        tensors[name] = (
            values
            if isinstance(values, tuple)
            else (values.shape, 0, values.astype(np.float32).tobytes())
        )
    fields = METADATA if metadata is None else metadata
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    head += b"".join(_string(name) + _value(value) for name, value in fields.items())
    body = b""
    for name, (shape, number, data) in tensors.items():
        sizes = shape[::-1]
        head += _string(name) + struct.pack(
            f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, len(body)
        )
        body += data + bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return meant


# ---- safetensors ----------------------------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": HIDDEN,
    "vocab_size": len(TOKENS),
    "max_position_embeddings": 64,
    "rms_norm_eps": EPSILON,
    "rope_theta": BASE,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": [2],
}
MERGES = [["\u2581", "t"], ["h", "e"], ["\u2581t", "he"], ["i", "n"]]
# As Llama 2's: a space before each part of a text.
TOKENIZER: dict[str, Any] = {
    "added_tokens": [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, text in enumerate(CONTROL)
    ],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    },
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    },
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    },
    "model": {
        "type": "BPE",
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {text: i for i, text in enumerate(TOKENS)},
        "merges": MERGES,
    },
}  # fmt: skip


def write_safetensors(
    folder: Path,
    model: dict[str, Any],
    kind: str = "F32",
    config: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    parts: int = 1,
) -> dict[str, Any]:
    """Writes a folder as Hugging Face has it; returns its files' values."""
    folder.mkdir(exist_ok=True)
    names = {"embedding": "model.embed_tokens", "last_norm": "model.norm", "head": "lm_head"}
    for i in range(LAYERS):
        names |= {
            f"{i} {part}": f"model.layers.{i}.{called}" for part, called in HUGGING_FACE.items()
        }
    meant, every = dict(model), [name for name in names if model[name] is not None]
    for part in range(parts):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        body = b""
        for name in every[part::parts]:
            data, meant[name] = packed(model[name], kind)
            header[names[name] + ".weight"] = {
                "dtype": kind,
                "shape": list(model[name].shape),
                "data_offsets": [len(body), len(body) + len(data)],
            }
            body += data
        text = json.dumps(header).encode()
        (folder / f"model-{part}.safetensors").write_bytes(
            struct.pack("<Q", len(text)) + text + body
        )
    (folder / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    (folder / "tokenizer.json").write_text(
        json.dumps(TOKENIZER if tokenizer is None else tokenizer)
    )
    return meant
