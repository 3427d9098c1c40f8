"""From text to tokens and back: the interface, bytes as tokens, and the tokenizers of folders and of GGUF files."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from metal_ops.programs.errors import printable, short

from .weights import WeightsError

INSTALL = "`pip install tokenizers==0.23.3`"
_INVALID = re.compile("([\udc80-\udcff]+)")


class Stream(Protocol):
    """Text as tokens come."""

    def step(self, token: int) -> bytes:
        """The bytes that the token adds; those of a character that is not complete come with a later token."""

    def end(self) -> bytes:
        """The bytes that were still held back."""


class Tokenizer(Protocol):
    """Text as bytes to tokens and back.

    Attributes:
      start: Tokens before the first text; may be nothing.
      finish: Tokens behind the first text; mostly nothing.
      ends: Tokens that end a text.
    """

    start: list[int]
    finish: list[int]
    ends: frozenset[int]

    def encode(self, text: bytes, first: bool) -> list[int]:
        """Tokens of the text, without `start` and `finish`; `first`: whether nothing was told before."""

    def decode(self, token: int) -> bytes:
        """The bytes that a token stands for inside of a text; none for those that are not printed."""

    def stream(self, before: Sequence[int]) -> Stream:
        """Text that goes on from the tokens `before`."""


class _Plain:
    """Each token's bytes at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def step(self, token: int) -> bytes:
        return self._tokenizer.decode(token)

    def end(self) -> bytes:
        return b""


class Bytes:
    """A token is a byte; a text begins at the end of a paragraph."""

    def __init__(self) -> None:
        self.start: list[int] = []
        self.finish: list[int] = []
        self.ends: frozenset[int] = frozenset()

    def encode(self, text: bytes, first: bool) -> list[int]:
        return list(text)

    def decode(self, token: int) -> bytes:
        return bytes([token])

    def stream(self, before: Sequence[int]) -> Stream:
        return _Plain(self)


class Vocabulary(ABC):
    """Tokens by number, and the bytes of a text that are not UTF-8: each is the token of its byte, if there is one.

    Args:
      where: The file, for sentences.
      tokens: By number.
      size: The model's tokens; a text with a later one is refused.
    """

    def __init__(self, where: str, tokens: list[str], size: int) -> None:
        self.where, self.tokens, self.size = where, tokens, size
        self.numbers = {token: i for i, token in enumerate(tokens)}
        self.start: list[int] = []
        self.finish: list[int] = []
        self.ends: frozenset[int] = frozenset()

    def encode(self, text: bytes, first: bool) -> list[int]:
        found: list[int] = []
        for part in _INVALID.split(text.decode("utf-8", errors="surrogateescape")):
            if not _INVALID.fullmatch(part):
                found += self._encode(part, first) if part else []
            else:
                for byte in part.encode("utf-8", errors="surrogateescape"):
                    number = self._number_of_byte(byte)
                    found += self._encode("\ufffd", False) if number is None else [number]
            first = first and not part
        late = max(found, default=0)
        if late >= self.size:
            name = short(self.tokens[late]) if late < len(self.tokens) else "a part"
            raise WeightsError(
                f"{self.where}: {name} of the text is token {late}, and the model has {self.size}; leave it out."
            )
        return found

    def stream(self, before: Sequence[int]) -> Stream:
        return _Plain(self)

    @abstractmethod
    def decode(self, token: int) -> bytes: ...

    @abstractmethod
    def _encode(self, text: str, first: bool) -> list[int]: ...

    @abstractmethod
    def _number_of_byte(self, byte: int) -> int | None: ...


def tokenizer_of_folder(folder: Path, size: int | None = None) -> Tokenizer:
    """The tokenizer that a folder's tokenizer.json describes, with tokenizer_config.json and generation_config.json.

    Args:
      folder: With these files.
      size: The model's tokens; None: as many as the tokenizer has.

    Raises:
      WeightsError: It cannot be read, or numbers texts at or above `size`.
    """
    from .folder_tokenizer import load

    return load(folder, size)


def tokenizer_of_gguf(metadata: Mapping[str, Any], where: str = "the GGUF file") -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Args:
      metadata: Python's values, lists or arrays, by key.
      where: The file, for sentences.

    Raises:
      WeightsError: A key is missing or damaged, or names a tokenizer that is not read.
    """
    from .gguf_tokenizer import load

    return load(metadata, where)


def library() -> ModuleType:
    """The package `tokenizers`.

    Raises:
      WeightsError: It is not installed.
    """
    try:
        import tokenizers
    except ImportError:
        raise WeightsError(
            f"models from files are tokenized by the package tokenizers, which is missing; {INSTALL}."
        ) from None
    return tokenizers


@contextmanager
def guarded(where: str, doing: str) -> Iterator[None]:
    """The library's errors as sentences; its panics are no `Exception`."""
    try:
        yield
    except (WeightsError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as why:
        words = printable(str(why)).strip().rstrip(".")[:200] or type(why).__name__
        raise WeightsError(f"{where}: {doing}: {words}.") from None


def _letters_of_bytes() -> list[str]:
    """GPT-2's: printable bytes are themselves, the others letters from 256 on."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


LETTERS = _letters_of_bytes()
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


def bytes_of_letters(token: str) -> bytes:
    """The bytes that GPT-2's letters stand for; of a token with other letters its UTF-8."""
    if all(letter in _BYTES for letter in token):
        return bytes(_BYTES[letter] for letter in token)
    return token.encode("utf-8", errors="surrogateescape")


def byte_of_name(token: str) -> bytes | None:
    """The byte that is called "<0x..>"."""
    found = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
    return bytes([int(found.group(1), 16)]) if found else None
