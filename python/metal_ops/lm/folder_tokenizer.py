"""The tokenizer of a folder: tokenizer.json as the package `tokenizers` reads it, tokenizer_config.json beside it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metal_ops.programs.errors import short
from metal_ops.programs.reading import kind_of, open_file, read_json

from .tokenizers import (
    LETTERS,
    Stream,
    Vocabulary,
    byte_of_name,
    bytes_of_letters,
    guarded,
    library,
)
from .weights import WeightsError

MOST_BYTES = 128 << 20  # Gemma's has 32 MiB
_OTHERS = ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "tiktoken.model")
_NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_MOST_GROWTH, _MOST_ADDED = 1 << 12, 1 << 17
# Tokens of which a stream looks back; a token's text depends on its neighbours alone.
_WINDOW = 64


def load(folder: Path, size: int | None) -> Described:
    """See `tokenizer_of_folder`."""
    path = folder / "tokenizer.json"
    if kind_of(path, WeightsError) != "file":
        beside = [name for name in _OTHERS if (folder / name).exists()]
        if beside:
            raise WeightsError(
                f"{folder}: has {beside[0]} and no tokenizer.json, which alone is read; make it by transformers: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)."
            )
        if not os.path.lexists(path):
            raise WeightsError(
                f"{path}: no such file, which the model's words are read from; get it, too."
            )
    with open_file(path, WeightsError) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise WeightsError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; it is no tokenizer.")
    declared = _declared(str(path), data)
    with guarded(str(path), "is not a tokenizer that the package tokenizers reads"):
        inner = library().Tokenizer.from_buffer(data)
        padding = (inner.padding or {}).get("pad_token")
        # Limits of a training's batches, which transformers lifts, too.
        inner.no_truncation()
        inner.no_padding()
    _check_numbers(str(path), inner, declared)
    for steps, name in ((inner.normalizer, "normalizers"), (inner.decoder, "decoders")):
        _check_growth(str(path), _steps(steps, name))
    if getattr(inner.model, "dropout", None):
        raise WeightsError(
            f"{path}: 'model.dropout' is {short(inner.model.dropout)}, which cuts words at random; set it to null."
        )
    settings = {"pad_token": padding} | _settings(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:  # older folders
        named = _settings(folder / "special_tokens_map.json")
        settings |= {name: named[name] for name in (*_NAMED, *_LISTS) if name in named}
        settings["added_tokens"] = _settings(folder / "added_tokens.json")
    where = f"{folder}: tokenizer_config.json"
    with guarded(where, "its special or added tokens cannot be read"):
        _add_tokens(where, inner, settings)
    return Described(str(path), inner, settings, _ends(folder), size)


def _declared(where: str, data: bytes) -> dict[str, Any]:
    """Numbers of the added tokens, as the file has them."""
    found = re.search(rb'"added_tokens"\s*:\s*(?=\[)', data)
    if found is None:
        return {}
    with guarded(where, "'added_tokens' cannot be read"):
        values, _ = json.JSONDecoder().raw_decode(data[found.end() :].decode())
        if len(values) > _MOST_ADDED:
            raise WeightsError(
                f"{where}: 'added_tokens' has {len(values)} tokens, at most {_MOST_ADDED} are read."
            )
        return {value["content"]: value["id"] for value in values}


def _check_numbers(where: str, inner: Any, declared: dict[str, Any]) -> None:
    """Refuses added tokens that the library numbers otherwise: by their order, whatever a file says."""
    for text, number in declared.items():
        found = inner.token_to_id(text)
        if found != number:
            raise WeightsError(
                f"{where}: numbers the added token {short(text)} {short(number)}, and the package tokenizers gives it "
                f"{found}, as numbers have to follow one another; save the tokenizer anew."
            )


def _check_growth(where: str, steps: list[dict[str, Any]]) -> None:
    """Refuses replacements that follow one another and make a text more than `_MOST_GROWTH` times as long."""
    growth = 1
    for step in steps:
        if step.get("type") in ("Replace", "Prepend"):
            growth *= 1 + len(step.get("content", step.get("prepend", "")))
        if growth > _MOST_GROWTH:
            raise WeightsError(
                f"{where}: 'normalizer' or 'decoder' replaces characters by texts {growth} times as long, at most "
                f"{_MOST_GROWTH} times are made; it is damaged."
            )


def _settings(path: Path) -> dict[str, Any]:
    if kind_of(path, WeightsError) != "file":
        return {}
    values = read_json(path, WeightsError)
    if not isinstance(values, dict):
        raise WeightsError(f"{path}: expected an object, got {short(values)}.")
    return values


def _token(value: Any, special: bool) -> Any:
    """A token as a text, or as an object with the stripping beside it."""
    added = library().AddedToken
    if isinstance(value, str):
        return added(value, special=special, normalized=not special)
    names = ("single_word", "lstrip", "rstrip", "normalized")
    flags = {name: bool(value[name]) for name in names if name in value}
    return added(value["content"], special=special or bool(value.get("special")), **flags)


def _add_tokens(where: str, inner: Any, settings: dict[str, Any]) -> None:
    """Tokens that other files add, by their numbers, and those that they call special."""
    values = [settings.get(name) for name in _NAMED]
    for name in _LISTS:
        more = settings.get(name) or []
        values += more.values() if isinstance(more, dict) else more
    special = [_token(value, True) for value in values if value]
    known = inner.get_added_tokens_decoder()
    if "added_tokens_decoder" in settings:
        declared = {
            int(i): _token(value, False) for i, value in settings["added_tokens_decoder"].items()
        }
    else:
        declared = {
            int(i): _token(text, False) for text, i in settings["added_tokens"].items()
        } | known
    tokens = [token for _, token in sorted(declared.items())]
    names = {token.content for token in special}
    for token in tokens:
        token.special = token.special or token.content in names
    others = {token.content for token in (*known.values(), *tokens)}
    tokens += [token for token in special if token.content not in others]
    if len(tokens) > _MOST_ADDED:
        raise WeightsError(f"{where} adds {len(tokens)} tokens, at most {_MOST_ADDED} are read.")
    inner.add_tokens(tokens)
    _check_numbers(where, inner, {token.content: number for number, token in declared.items()})
    inner.encode_special_tokens = bool(settings.get("split_special_tokens"))


def _ends(folder: Path) -> dict[str, list[int]]:
    """Tokens that end a text, by the file that names them: generation_config.json before config.json."""
    for name in ("generation_config.json", "config.json"):
        values = _settings(folder / name)
        inner = values.get("text_config")
        value = values.get("eos_token_id")
        if value is None and isinstance(inner, dict):
            value = inner.get("eos_token_id")
        if value is not None:
            some = value if isinstance(value, list) else [value]
            if not all(type(i) is int and i >= 0 for i in some):
                raise WeightsError(
                    f"{folder / name}: 'eos_token_id' must be a token's number or a list of them, got {short(value)}."
                )
            return {name: some}
    return {}


class Described(Vocabulary):
    """The vocabulary that tokenizer.json describes."""

    def __init__(
        self,
        where: str,
        inner: Any,
        settings: dict[str, Any],
        ends: dict[str, list[int]],
        size: int | None,
    ) -> None:
        own, every = inner.get_vocab(False), inner.get_vocab(True)
        last = max(own.values(), default=-1)
        size = max(every.values(), default=-1) + 1 if size is None else size
        if last >= size:
            raise WeightsError(
                f"{where}: 'model.vocab' must number texts below {size}, got {last}; it is another model's."
            )
        added = inner.get_added_tokens_decoder()
        # Numbers of added tokens that the model does not have are refused where a text has them.
        most = max(size, len(every)) + len(added)
        tokens = [""] * min(max(every.values(), default=-1) + 1, most)
        for text, number in every.items():
            if number < most:
                tokens[number] = text
        super().__init__(where, tokens, size)
        self.numbers = every
        self._inner, self._added = inner, added
        self._decoders = [step.get("type") for step in _steps(inner.decoder, "decoders")]
        self.start, self.finish = self._around(settings)
        self.ends = frozenset(number for some in ends.values() for number in some)
        for name, some in ends.items():
            if max(some, default=0) >= size:
                raise WeightsError(
                    f"{where}: 'eos_token_id' in {name} is {short(some)}, and the model has {size} tokens."
                )
        self._continuing = self._without_prefix()

    def _around(self, settings: dict[str, Any]) -> tuple[list[int], list[int]]:
        """Tokens before and behind a text, by `post_processor`; add_bos_token overrules it about the first one."""
        tools = library()
        one = tools.Tokenizer(tools.models.WordLevel({"a": 0}, "a")).encode("a")
        with guarded(self.where, "'post_processor' cannot be applied"):
            encoding = self._inner.post_process(one)
        places = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
        if len(places) != 1:
            raise WeightsError(
                f"{self.where}: 'post_processor' has the text {len(places)} times, expected it once."
            )
        start, finish = encoding.ids[: places[0]], encoding.ids[places[0] + 1 :]
        wanted, text = settings.get("add_bos_token"), settings.get("bos_token")
        if wanted is False:
            start = []
        elif wanted and not start and text is not None:
            text = text.get("content") if isinstance(text, dict) else text
            number = self.numbers.get(text) if isinstance(text, str) else None
            if number is None:
                raise WeightsError(
                    f"{self.where}: has no token {short(text)}, which tokenizer_config.json calls 'bos_token'."
                )
            start = [number]
        if max(start + finish, default=0) >= self.size:
            raise WeightsError(
                f"{self.where}: tokens {short(start + finish)} are added to a text, and the model has {self.size}."
            )
        return start, finish

    def _without_prefix(self) -> Any:
        """The same without a space before a text, for a text that goes on; None where none is put there."""
        before = [_state(self._inner.normalizer), _state(self._inner.pre_tokenizer)]
        after = [_no_prefix(step) for step in before]
        if after == before:
            return None
        tools = library()
        with guarded(self.where, "its steps cannot be copied"):
            other = tools.Tokenizer(self._inner.model)
            empty = {"type": "BPE", "vocab": {}, "merges": []}
            parts = {"normalizer": after[0], "pre_tokenizer": after[1], "model": empty}
            copied = tools.Tokenizer.from_str(json.dumps(parts))
            if copied.normalizer is not None:
                other.normalizer = copied.normalizer
            if copied.pre_tokenizer is not None:
                other.pre_tokenizer = copied.pre_tokenizer
        return other

    def _encode(self, text: str, first: bool) -> list[int]:
        with guarded(self.where, "cannot cut that text into tokens"):
            encoding = self._inner.encode(text, add_special_tokens=False)
            if first or self._continuing is None:
                return encoding.ids
            # Up to the first added token the text goes on; behind it the file's own rules hold.
            places = zip(encoding.ids, encoding.offsets, strict=True)
            end = next((begin for token, (begin, _) in places if token in self._added), len(text))
            head = self._continuing.encode(text[:end], add_special_tokens=False).ids
            return head + self._inner.encode(text[end:], add_special_tokens=False).ids

    def _number_of_byte(self, byte: int) -> int | None:
        name = LETTERS[byte] if "ByteLevel" in self._decoders else f"<0x{byte:02X}>"
        return self.numbers.get(name)

    def is_special(self, token: int) -> bool:
        """Whether the token is not printed."""
        return token in self._added and self._added[token].special

    def byte_of(self, token: int) -> bytes | None:
        """The byte that the token is called by, where the decoder knows such."""
        if "ByteFallback" not in self._decoders:
            return None
        return byte_of_name(self._inner.id_to_token(token) or "")

    def decode(self, token: int) -> bytes:
        text = self._inner.id_to_token(token)
        if text is None or self.is_special(token):
            return b""
        if "ByteLevel" in self._decoders:
            return bytes_of_letters(text)
        byte = self.byte_of(token)
        if byte is not None:
            return byte
        if not self._decoders:
            return b" " + text.encode()
        with guarded(self.where, "cannot decode its tokens"):
            # Behind another one: characters that decoders cut at the beginning of a text are not cut here.
            before, both = (self._inner.decoder.decode(some) for some in (["a"], ["a", text]))
        return both[len(before) :].encode()

    def stream(self, before: Sequence[int]) -> Stream:
        return _Whole(self, list(before))

    def text(self, tokens: list[int]) -> str:
        """The library's text of tokens, special ones left out."""
        with guarded(self.where, "cannot decode its tokens"):
            return self._inner.decode(tokens, skip_special_tokens=True)


class _Whole:
    """The differences of the whole text from one token to the next."""

    def __init__(self, tokenizer: Described, tokens: list[int]) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens[-_WINDOW:]
        self._shown = len(tokenizer.text(self._tokens))

    def step(self, token: int) -> bytes:
        if self._tokenizer.is_special(token):
            return b""
        self._tokens.append(token)
        if self._tokenizer.byte_of(token) is not None:
            return b""  # bytes in a row are characters together, or none of them is
        text = self._tokenizer.text(self._tokens)
        if text.endswith("\ufffd"):
            return b""  # so the library writes a character of which bytes are missing
        new = text[self._shown :]
        if len(self._tokens) > 2 * _WINDOW:
            self._tokens = self._tokens[-_WINDOW:]
            text = self._tokenizer.text(self._tokens)
        self._shown = len(text)
        return new.encode()

    def end(self) -> bytes:
        text = self._tokenizer.text(self._tokens)
        new, self._shown = text[self._shown :], len(text)
        return new.encode()


def _state(part: Any) -> Any:
    """A step of the pipeline as tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def _steps(part: Any, name: str) -> list[dict[str, Any]]:
    """The steps of a sequence, or the one that it is."""

    def flat(state: Any) -> list[dict[str, Any]]:
        if state is None:
            return []
        inner = state.get(name)
        return [state] if inner is None else [step for one in inner for step in flat(one)]

    return flat(_state(part))


def _no_prefix(state: Any) -> Any:
    """The step without a space that it puts before a text."""
    if not isinstance(state, dict):
        return state
    kind = state.get("type")
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return state | {"prepend_scheme": "never"}
    if kind == "ByteLevel":
        return state | {"add_prefix_space": False}
    for name in ("normalizers", "pretokenizers"):
        if name in state:
            steps = [_no_prefix(step) for step in state[name]]
            return state | {name: [step for step in steps if step is not None]}
    return state
