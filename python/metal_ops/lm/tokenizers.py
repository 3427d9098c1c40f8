"""From text to tokens and back: bytes, pieces by their scores as SentencePiece has them, and merged pairs of bytes."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Protocol

_SPACE = "\u2581"
_GPT2 = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
_LLAMA3 = re.compile(
    r"'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": _GPT2, "llama3": _LLAMA3}


class Tokenizer(Protocol):
    """Text as bytes to tokens and back.

    Attributes:
      start: What stands before everything; may be nothing.
      ends: Tokens that end a text.
    """

    start: list[int]
    ends: frozenset[int]

    def encode(self, text: bytes, first: bool) -> list[int]:
        """Tokens; `first`: whether nothing was told before."""

    def decode(self, token: int) -> bytes: ...


class Bytes:
    """A token is a byte; a text begins at the end of a paragraph."""

    def __init__(self) -> None:
        self.start: list[int] = []
        self.ends: frozenset[int] = frozenset()

    def encode(self, text: bytes, first: bool) -> list[int]:
        return list(text)

    def decode(self, token: int) -> bytes:
        return bytes([token])


def merged(pieces: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Neighbours joined, those of the least rank first and of these the leftmost, until none has a rank.

    Example:
      >>> merged(list("hello"), lambda a, b: {"he": 2, "ll": 1, "hell": 3}.get(a + b))
      ['hell', 'o']
    """
    after = list(range(1, len(pieces) + 1))
    before = list(range(-1, len(pieces) - 1))
    heap: list[tuple[float, int, str, str]] = []

    def offer(left: int) -> None:
        right = after[left]
        if left >= 0 and right < len(pieces):
            found = rank(pieces[left], pieces[right])
            if found is not None:
                heapq.heappush(heap, (found, left, pieces[left], pieces[right]))

    for place in range(len(pieces)):
        offer(place)
    while heap:
        _, left, a, b = heapq.heappop(heap)
        right = after[left]
        if right >= len(pieces) or pieces[left] != a or pieces[right] != b or not a or not b:
            continue  # one of them has become another
        pieces[left], pieces[right] = a + b, ""
        after[left] = after[right]
        if after[left] < len(pieces):
            before[after[left]] = left
        offer(left)
        if before[left] >= 0:
            offer(before[left])
    return [piece for piece in pieces if piece]


class _Vocabulary:
    """What both kinds have: numbers of pieces, tokens that are not made of text, and where texts begin and end."""

    def __init__(
        self, tokens: Sequence[str], special: dict[str, int], start: list[int], ends: frozenset[int]
    ) -> None:
        self.start, self.ends = start, ends
        self.tokens = list(tokens)
        self.numbers = {token: i for i, token in enumerate(self.tokens)}
        self._special = special
        names = sorted((re.escape(name) for name in special if name), key=len, reverse=True)
        self._names = re.compile("|".join(names)) if names else None

    def parts(self, text: str) -> list[str | int]:
        """The text between special tokens, and these."""
        found: list[str | int] = []
        at = 0
        for hit in self._names.finditer(text) if self._names else ():
            found += [text[at : hit.start()], self._special[hit.group()]]
            at = hit.end()
        return [part for part in (*found, text[at:]) if part != ""]


class Pieces(_Vocabulary):
    """SentencePiece's: spaces are a letter, neighbours are joined by score or by a list of merges.

    Args:
      tokens: By number; a byte that no piece has is "<0x..>".
      rank: Of two neighbours, the least first.
      special: Tokens that are not made of text.
      start: Before every text.
      ends: After it.
      space_first: Whether a text begins with a space that is not there.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        rank: Callable[[str, str], float | None],
        special: dict[str, int],
        start: list[int],
        ends: frozenset[int],
        space_first: bool = True,
    ) -> None:
        super().__init__(tokens, special, start, ends)
        self._rank, self._space_first = rank, space_first

    def encode(self, text: bytes, first: bool) -> list[int]:
        found = []
        for place, part in enumerate(self.parts(text.decode("utf-8", errors="surrogateescape"))):
            if isinstance(part, int):
                found.append(part)
                continue
            if self._space_first and first and place == 0:
                part = " " + part
            for piece in merged(list(part.replace(" ", _SPACE)), self._rank):
                number = self.numbers.get(piece)
                if number is not None:
                    found.append(number)
                    continue
                for byte in piece.encode("utf-8", errors="surrogateescape"):
                    number = self.numbers.get(f"<0x{byte:02X}>")
                    if number is not None:
                        found.append(number)
        return found

    def decode(self, token: int) -> bytes:
        piece = self.tokens[token]
        if token in self._special.values():
            return b""
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", piece)
        if byte:
            return bytes([int(byte.group(1), 16)])
        return piece.replace(_SPACE, " ").encode("utf-8", errors="surrogateescape")


def by_scores(tokens: Sequence[str], scores: Sequence[float]) -> Callable[[str, str], float | None]:
    """The rank of a pair by the score of the token that it makes: the highest first."""
    known = dict(zip(tokens, (-float(score) for score in scores), strict=True))
    return lambda a, b: known.get(a + b)


def by_merges(merges: Sequence[tuple[str, str]]) -> Callable[[str, str], float | None]:
    """The rank of a pair by its place in a list."""
    known = {pair: float(place) for place, pair in enumerate(merges)}
    return lambda a, b: known.get((a, b))


def _letters_of_bytes() -> list[str]:
    """GPT-2's: printable bytes are themselves, the others letters from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


_LETTERS = _letters_of_bytes()
_BYTES = {letter: byte for byte, letter in enumerate(_LETTERS)}


class BytePairs(_Vocabulary):
    """GPT-2's: words by a pattern, their bytes as letters, and neighbours joined by a list of merges.

    Args:
      tokens: By number.
      merges: The first ones first.
      pattern: Of `PATTERNS`.
      special: Tokens that are not made of text.
      start: Before every text.
      ends: After it.
      words_first: Whether a word that is a token is one, whatever the merges make of it.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[tuple[str, str]],
        pattern: str,
        special: dict[str, int],
        start: list[int],
        ends: frozenset[int],
        words_first: bool = False,
    ) -> None:
        super().__init__(tokens, special, start, ends)
        self._rank, self._pattern = by_merges(merges), PATTERNS[pattern]
        self._words_first = words_first

    def encode(self, text: bytes, first: bool) -> list[int]:
        found = []
        for part in self.parts(text.decode("utf-8", errors="surrogateescape")):
            if isinstance(part, int):
                found.append(part)
                continue
            for word in self.words(part):
                letters = [_LETTERS[b] for b in word.encode("utf-8", errors="surrogateescape")]
                joined = "".join(letters)
                known = self._words_first and joined in self.numbers
                pieces = [joined] if known else merged(letters, self._rank)
                found += [self.numbers[piece] for piece in pieces if piece in self.numbers]
        return found

    def words(self, text: str) -> list[str]:
        """The text cut by the pattern, whose letters and digits are those of every script."""
        plain = "".join(_plain(character) for character in text)
        return [text[hit.start() : hit.end()] for hit in self._pattern.finditer(plain)]

    def decode(self, token: int) -> bytes:
        if token in self._special.values():
            return b""
        letters = self.tokens[token]
        if all(letter in _BYTES for letter in letters):
            return bytes(_BYTES[letter] for letter in letters)
        return letters.encode("utf-8", errors="surrogateescape")


def _plain(character: str) -> str:
    """ASCII of the same kind: re has no classes of Unicode's letters and numbers."""
    if character.isascii():
        return character
    kind = unicodedata.category(character)[0]
    return "a" if kind == "L" else "0" if kind == "N" else " " if character.isspace() else "!"
