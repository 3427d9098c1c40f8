"""Writing: one token after the other from the caches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from metal_ops.programs.errors import ProgramError

from .model import Transformer
from .passes import Pass
from .tokenizers import Bytes, Tokenizer

# The model's beginning without a prompt, and the text before a prompt: the end of a paragraph.
START = b"\n\n"


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
      temperature: Logits are divided by it; 0 takes the likeliest token.
      top_k: Only that many of the likeliest; 0 for all.
      top_p: Only the likeliest that together have this probability (Holtzman et al. 2020,
        [arXiv:1904.09751](https://arxiv.org/abs/1904.09751)).
      seed: Seed of the draws.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 0.95
    seed: int = 0


def choose(logits: np.ndarray, sampling: Sampling, random: np.random.Generator) -> int:
    """A token, from logits [vocabulary].

    Example:
      >>> choose(np.array([0.0, 3.0, 1.0]), Sampling(temperature=0.0), np.random.default_rng(0))
      1
    """
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")
    scaled = (logits[order] - logits[order[0]]).astype(np.float64) / sampling.temperature
    weights = np.exp(scaled)
    weights /= weights.sum()
    keep = max(int(np.searchsorted(np.cumsum(weights), sampling.top_p)) + 1, 1)
    if sampling.top_k:
        keep = min(keep, sampling.top_k)
    weights = weights[:keep] / weights[:keep].sum()
    return int(order[random.choice(len(weights), p=weights)])


class Writer:
    """Text that goes on, with the keys and values of earlier tokens.

    When the model's context is full, its second half is read anew.

    Args:
      model: Trained.
      sampling: How tokens are chosen.
      tokenizer: From text to tokens; bytes if left out.

    Attributes:
      n_read: Tokens read by `tell`, with those read anew.
      n_written: Tokens made.
      reading, writing: Seconds that these took, the first of each compiled in them.
    """

    def __init__(
        self, model: Transformer, sampling: Sampling, tokenizer: Tokenizer | None = None
    ) -> None:
        self.model, self.sampling = model, sampling
        self.tokenizer = tokenizer or Bytes()
        self.n_read = self.n_written = 0
        self.reading = self.writing = 0.0
        self._random = np.random.default_rng(sampling.seed)
        self._context = model.config.context
        self._caches = model.caches(self._context)
        self._tokens: list[int] = []
        self._logits: np.ndarray | None = None
        self._passes: dict[int, Pass] = {}  # by how many tokens

    def tell(self, text: bytes) -> None:
        """Reads some text that the next tokens follow."""
        first = self._logits is None
        tokens = self.tokenizer.encode(text, first)
        self._read(self.tokenizer.start + tokens + self.tokenizer.finish if first else tokens)

    def _read(self, tokens: list[int]) -> None:
        begin = time.perf_counter()
        self._tokens = (self._tokens + tokens)[-self._context :]
        if len(tokens) + int(self._caches[0].lengths[0]) > self._context:
            self._tokens = self._tokens[-(self._context // 2) :]
            for cache in self._caches:
                cache.reset()
            tokens = self._tokens
        # In pieces of a power of two, of which a dozen are compiled, and not one for each length.
        while tokens:
            n = len(tokens) if self.model.at_once else 1 << (len(tokens).bit_length() - 1)
            self._logits = self._run(tokens[:n])
            self.n_read += n
            tokens = tokens[n:]
        self.reading += time.perf_counter() - begin

    def write(self, n: int) -> Iterator[bytes]:
        """The text of the next n tokens, a piece for each and one for the rest; fewer where the text ends."""
        if self._logits is None:
            self.tell(b"" if self.tokenizer.start else START)
        if self._logits is None:
            raise ProgramError("the model has no tokens for that text; give another prompt.")
        stream = self.tokenizer.stream(self._tokens)
        for _ in range(n):
            begin = time.perf_counter()
            if not np.isfinite(self._logits).all():
                raise ProgramError(
                    "the model's logits are not finite: its weights are damaged, or no text was learnt with them; "
                    "get the file again, or train anew."
                )
            token = choose(self._logits, self.sampling, self._random)
            if token in self.tokenizer.ends:
                break
            if int(self._caches[0].lengths[0]) == self._context:
                self._read([token])
            else:
                self._tokens = (self._tokens + [token])[-self._context :]
                self._logits = self._run([token])
                self.writing += time.perf_counter() - begin
            self.n_written += 1
            yield stream.step(token)
        rest = stream.end()
        if rest:
            yield rest

    def _run(self, tokens: list[int]) -> np.ndarray:
        n = len(tokens)
        if n not in self._passes:
            self._passes[n] = Pass(self.model, self._caches, n)
        return self._passes[n](tf.constant([tokens], tf.int32)).numpy()[0]
