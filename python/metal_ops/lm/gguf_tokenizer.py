"""The tokenizer in a GGUF file's metadata, as llama.cpp reads it: SentencePiece's scores, or merged pairs of bytes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metal_ops.programs.errors import short

from .pre_tokenizers import CUTS, Cut
from .tokenizers import (
    LETTERS,
    Vocabulary,
    byte_of_name,
    bytes_of_letters,
    guarded,
    library,
)
from .weights import WeightsError

_SPACE = "\u2581"
# Types of tokens; of the others, unused ones, nothing is printed.
_NORMAL, _UNKNOWN, _CONTROL, _OWN, _BYTE = 1, 2, 3, 4, 6
# Tokens that end a text by their names, whatever the file says of them.
_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
})  # fmt: skip
# And those of files of code: tokens that the file numbers by such a key, or else calls so.
_CODE_ENDS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_CODE = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
                "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
                "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
                "<|code_middle|>", "<|middle|>"),
}  # fmt: skip
_PRINTED = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})


def load(metadata: Mapping[str, Any], where: str) -> FromGguf:
    """See `tokenizer_of_gguf`."""
    keys = _Keys(where, metadata)
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "llama":
        return Pieces(keys)
    if kind == "gpt2":
        name = metadata.get("tokenizer.ggml.pre") or "default"
        cut = CUTS.get(name) if isinstance(name, str) else None
        if cut is None:
            raise WeightsError(
                f"{where}: 'tokenizer.ggml.pre' is {short(name)}, and words of that model are not cut; take its folder "
                "with tokenizer.json."
            )
        return BytePairs(keys, cut)
    raise WeightsError(
        f"{where}: 'tokenizer.ggml.model' is {short(kind)}, expected 'llama' or 'gpt2'; other tokenizers are not read."
    )


class _Keys:
    """Values under tokenizer.ggml, of the type that is wanted."""

    def __init__(self, where: str, metadata: Mapping[str, Any]) -> None:
        self.where, self.metadata = where, metadata
        self.tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(self.texts("tokens"))]
        if len(set(self.tokens)) < len(self.tokens):
            seen: set[str] = set()
            twice = next(t for t in self.tokens if t in seen or seen.add(t))  # type: ignore[func-returns-value]
            raise WeightsError(
                f"{where}: 'tokenizer.ggml.tokens' has {short(twice)} twice; convert the model anew."
            )

    def texts(self, name: str) -> list[str]:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            raise WeightsError(
                f"{self.where}: 'tokenizer.ggml.{name}' must be a list of texts, got {short(value)}."
            )
        return list(value)

    def numbers(self, name: str, needed: bool) -> np.ndarray | None:
        value = self.metadata.get(f"tokenizer.ggml.{name}")
        if value is None and not needed:
            return None
        try:
            found = np.asarray(value, np.float64)
        except (TypeError, ValueError, OverflowError):
            found = np.empty(0)
        if found.shape != (len(self.tokens),):
            raise WeightsError(f"{self.where}: 'tokenizer.ggml.{name}' must be a number a token.")
        return found

    def token(self, name: str, default: int | None = None) -> int | None:
        value = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is None:
            return default if default is None or default < len(self.tokens) else None
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 0 <= value < len(self.tokens)
        ):
            raise WeightsError(
                f"{self.where}: 'tokenizer.ggml.{name}_token_id' is {short(value)}, and there are {len(self.tokens)} "
                "tokens."
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(f"tokenizer.ggml.{name}", default)
        if not isinstance(value, bool):
            raise WeightsError(
                f"{self.where}: 'tokenizer.ggml.{name}' must be true or false, got {short(value)}."
            )
        return value


class FromGguf(Vocabulary):
    """Shared by both kinds: types of tokens, those that are known by name, and where texts begin and end."""

    def __init__(self, keys: _Keys, bos: int | None, eos: int | None, start: bool) -> None:
        super().__init__(keys.where, keys.tokens, len(keys.tokens))
        given = keys.numbers("token_type", False)
        if given is None:
            self.types = [_NORMAL] * self.size
        else:
            self.types = np.where(np.isin(given, range(7)), given, 0).astype(int).tolist()
        eos = keys.token("eos", eos)
        self.ends = self._find_ends(keys, eos)
        known = (_UNKNOWN, _CONTROL, _OWN)
        parsed = [(self.tokens[i], i) for i, kind in enumerate(self.types) if kind in known]
        # The longest are found first, as llama.cpp does.
        self._parsed = sorted(parsed, key=lambda one: -len(one[0].encode()))
        bos = keys.token("bos", bos)
        for name, number, wanted, into in (
            ("bos", bos, keys.flag("add_bos_token", start), self.start),
            ("eos", eos, keys.flag("add_eos_token", False), self.finish),
        ):
            if wanted and number is None:
                raise WeightsError(
                    f"{self.where}: a text gets the token that 'tokenizer.ggml.{name}_token_id' names, and it is "
                    f"missing; set 'tokenizer.ggml.add_{name}_token' to false."
                )
            if wanted and number is not None:
                into.append(number)
        name = str(keys.metadata.get("general.name", "")).lower()
        self._strips = "phi-3" in name or "phi3" in name

    def _find_ends(self, keys: _Keys, eos: int | None) -> frozenset[int]:
        """Tokens that end a text. Those that are known by name are control tokens from here on."""
        numbered = (eos, keys.token("eot"), keys.token("eom"))
        ends = {number for number in numbered if number is not None}
        control = {self.numbers[name] for name in _ENDS if name in self.numbers}
        ends |= control
        for names, ending in ((_CODE_ENDS, True), (_CODE, False)):
            for key, known in names.items():
                number = keys.token(key)
                named = [self.numbers[name] for name in known if name in self.numbers]
                if number is None:
                    control |= set(named)
                if ending:
                    ends |= set(named) if number is None else {number}
        for number in control:
            self.types[number] = _CONTROL
        for name in _PRINTED & self.numbers.keys():
            self.types[self.numbers[name]] = _OWN
        has = {self.tokens[number] for number in ends}
        calls = has & {"<|call|>", "<|calls|>"}
        if "<|end|>" in has and calls and ({"<|return|>", "<|flush|>"} & has):
            ends.discard(self.numbers["<|end|>"])  # ends a part of an answer
            self.types[self.numbers["<|end|>"]] = _OWN
        if {"<|tool_response>", "</s>"} <= has:
            ends.discard(self.numbers["</s>"])
            self.types[self.numbers["</s>"]] = _NORMAL
        return frozenset(ends)

    def _encode(self, text: str, first: bool) -> list[int]:
        found: list[int] = []
        for part in self.parts(text):
            found += [part] if isinstance(part, int) else self._fragment(part, first)
            first = isinstance(part, int)
        return found

    def parts(self, text: str) -> list[str | int]:
        """The text between tokens that are known by name, and these."""
        found: list[str | int] = [text]
        for name, number in self._parsed:
            if name in text:
                before, found = found, []
                for part in before:
                    found += [part] if isinstance(part, int) else self._between(part, name, number)
        return [part for part in found if part != ""]

    def _between(self, text: str, name: str, number: int) -> list[str | int]:
        found: list[str | int] = []
        begin, strips = 0, self._strips and name not in ("<unk>", "<s>", "<|endoftext|>")
        while (at := text.find(name, begin)) >= 0:
            found += [text[begin:at], number]
            begin = at + len(name)
            while strips and text[begin : begin + 1] in tuple(" \t\n\v\f\r"):
                begin += 1
        return [*found, text[begin:]]

    def _fragment(self, text: str, spaced: bool) -> list[int]:
        """Tokens between two that are known by name; `spaced`: whether one is before it, or nothing."""
        raise NotImplementedError

    def _normal(self, text: str) -> bytes:
        raise NotImplementedError

    def decode(self, token: int) -> bytes:
        kind, text = self.types[token], self.tokens[token]
        if kind == _OWN:
            return text.encode()
        if kind == _BYTE:
            return byte_of_name(text) or b""
        return self._normal(text) if kind == _NORMAL else b""


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


class Pieces(FromGguf):
    """SentencePiece's: spaces are a letter, and neighbours that make a token are joined, the best score first.

    The package `tokenizers` merges by a list, where equal scores would be in its order and not in the text's.
    """

    def __init__(self, keys: _Keys) -> None:
        super().__init__(keys, 1, 2, True)
        scores = keys.numbers("scores", True)
        assert scores is not None
        self._ranks = dict(zip(self.tokens, (-scores.astype(np.float32)).tolist(), strict=True))
        self._space_first = keys.flag("add_space_prefix", True)

    def _fragment(self, text: str, spaced: bool) -> list[int]:
        text = (" " if self._space_first and spaced else "") + text
        found = []
        for piece in merged(list(text.replace(" ", _SPACE)), lambda a, b: self._ranks.get(a + b)):
            number = self.numbers.get(piece)
            if number is not None:
                found.append(number)
                continue
            for byte in piece.encode():
                number = self._number_of_byte(byte)
                if number is None:
                    raise WeightsError(
                        f"{self.where}: has no token for {short(piece)} of the text, and none for its byte {byte}."
                    )
                found.append(number)
        return found

    def _number_of_byte(self, byte: int) -> int | None:
        number = self.numbers.get(f"<0x{byte:02X}>")
        return self.numbers.get(chr(byte)) if number is None and byte < 128 else number

    def _normal(self, text: str) -> bytes:
        return text.replace(_SPACE, " ").encode()


class BytePairs(FromGguf):
    """GPT-2's: words by expressions, their bytes as letters, and neighbours joined by a list of merges."""

    def __init__(self, keys: _Keys, cut: Cut) -> None:
        super().__init__(keys, None if cut.names_start else 11, 11, cut.start)
        vocabulary = dict(self.numbers)
        merges: dict[tuple[str, ...], None] = {}
        for text in keys.texts("merges"):
            pair = tuple(text.split(" "))
            if len(pair) != 2 or not all(pair):
                raise WeightsError(f"{self.where}: a merge must be two pieces, got {short(text)}.")
            merges.setdefault(pair)
        # The library wants a token for each letter and pair. For missing ones, the letters' tokens are taken.
        for text in (*LETTERS, *(piece for pair in merges for piece in (*pair, "".join(pair)))):
            vocabulary.setdefault(text, len(vocabulary))
        letters = {letter: i for letter, i in self.numbers.items() if letter.isascii()}
        self._others = {
            number: [letters[letter] for letter in text if letter in letters]
            for text, number in vocabulary.items()
            if number >= self.size
        }
        tools = library()
        words, cuts = tools.pre_tokenizers, cut.expressions
        with guarded(self.where, "'tokenizer.ggml.merges' cannot be applied"):
            model = tools.models.BPE(vocab=vocabulary, merges=list(merges), ignore_merges=cut.whole)
            self._inner = tools.Tokenizer(model)
            self._inner.pre_tokenizer = words.Sequence(
                [words.Split(tools.Regex(expression), "isolated") for expression in cuts]
                + [words.ByteLevel(add_prefix_space=False, use_regex=False)]
            )

    def _fragment(self, text: str, spaced: bool) -> list[int]:
        with guarded(self.where, "cannot cut that text into tokens"):
            found: Sequence[int] = self._inner.encode(text, add_special_tokens=False).ids
        if not self._others:
            return list(found)
        return [token for i in found for token in self._others.get(i, (i,))]

    def _number_of_byte(self, byte: int) -> int | None:
        return self.numbers.get(LETTERS[byte])

    def _normal(self, text: str) -> bytes:
        return bytes_of_letters(text)
