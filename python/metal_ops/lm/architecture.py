"""The parts of a model from a file: its sizes, and those that families add to Llama's."""

from __future__ import annotations

from dataclasses import dataclass

from .rope import Rope

MATRICES = ("q", "k", "v", "out", "gate", "up", "down")


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and parts of a model from a file.

    Attributes:
      width: Width of the stream from layer to layer.
      layers: How many.
      heads: Number of query heads.
      kv_heads: Number of heads of keys and values.
      head_size: Size of each.
      hidden: Width of the feed-forward part.
      vocabulary: Tokens.
      context: Tokens that are seen at once.
      epsilon: Epsilon of the RMS norms.
      rope: The rotary positions.
      interleaved: Whether a pair are neighbours, as in Llama's GGUF files, or from both halves of a head.
      activation: Activation of the gate: "silu", "gelu" or "gelu_tanh", its approximation.
      biases: Matrices that have one, by name.
      qk_norms: Whether each head of q and k has a norm (Qwen 3, Gemma 3).
      post_norms: Whether a part's addend of the stream has one, too (Gemma 3).
      embedding_scale: Embeddings are multiplied by it.
      attention_scale: Factor of the scores; None: 1 / sqrt(head_size).
      final_cap: The limit c of logits by c tanh(logit / c); None: no limit.
      window: Tokens that sliding layers see, the own one included; None: all.
      sliding: Whether a layer is a sliding one.
      sliding_rope: Positions of sliding layers; None: those of all.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    context: int
    epsilon: float
    rope: Rope
    interleaved: bool
    activation: str = "silu"
    biases: frozenset[str] = frozenset()
    qk_norms: bool = False
    post_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    final_cap: float | None = None
    window: int | None = None
    sliding: tuple[bool, ...] = ()
    sliding_rope: Rope | None = None

    @property
    def frequencies(self) -> tuple[float, ...]:
        """Radians per position of each pair, of layers that see all."""
        return self.rope.frequencies

    def window_of(self, layer: int) -> int | None:
        """Tokens that a layer sees; None: all."""
        return self.window if self.sliding and self.sliding[layer] else None

    def rope_of(self, layer: int) -> Rope:
        own = self.sliding_rope if self.sliding and self.sliding[layer] else None
        return self.rope if own is None else own

    def matrices(self) -> dict[str, tuple[int, int]]:
        """[inputs, outputs] of a layer's."""
        heads, kv_heads = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "q": (self.width, heads),
            "k": (self.width, kv_heads),
            "v": (self.width, kv_heads),
            "out": (heads, self.width),
            "gate": (self.width, self.hidden),
            "up": (self.width, self.hidden),
            "down": (self.hidden, self.width),
        }

    def norms(self) -> dict[str, int]:
        """Elements of a layer's."""
        found = {"attention": self.width, "feed_forward": self.width}
        if self.post_norms:
            found |= {"attention_after": self.width, "feed_forward_after": self.width}
        if self.qk_norms:
            found |= {"q_norm": self.head_size, "k_norm": self.head_size}
        return found
