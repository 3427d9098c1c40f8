r"""How llama.cpp cuts a text into words, by the name that a GGUF file has for it under `tokenizer.ggml.pre`.

Expressions are applied one after the other, each to the pieces that the earlier ones left. They do the same as
llama.cpp, which is not always the same as the model's own: it knows letters, but neither upper nor lower case beyond
ASCII.
"""

from __future__ import annotations

from typing import NamedTuple

_ENDINGS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS = r"[0-9][0-9][0-9]"


def _llama3(
    numbers: str, letters: str = r"\p{L}+", signs: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*", rest: str = _REST,
    before: str = rf"{_ENDINGS}|",
) -> str:  # fmt: skip
    """Llama 3's expression and those that follow it."""
    return rf"{before}[^\r\n\p{{L}}\p{{N}}]?{letters}|{numbers}|{signs}|{rest}"


def _cased(numbers: str, endings: str = "", rest: str = _REST) -> str:
    """Words that go from capitals to small letters; both may be of any other script."""
    upper, lower = r"((?=[\p{L}])([^a-z]))", r"((?=[\p{L}])([^A-Z]))"
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{upper}*{lower}+{endings}|{lead}{upper}+{lower}*{endings}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{rest}"


_THREE, _ONE = r"\p{N}{1,3}", r"\p{N}"
_LLAMA3, _QWEN2 = _llama3(_THREE), _llama3(_ONE)
_MARKED = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_ENDINGS}?"
_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK = rf"{_SIGNS}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
_HAN = r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{2F800}-\x{2FA1F}"
_KANJI = r"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
# Letters with two cases, as DeepSeek's first tokenizer lists them.
_TWO_CASES = (
    r"A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
    r"\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    r"\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    r"\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    r"\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
    r"\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
    r"\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    r"\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    r"\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\x{10400}-\x{1044F}\x{104B0}-\x{104D3}"
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}"
)
_ASIAN = (
    r"[\u4E00-\u9FFF\u3400-\u4DBF\u8C48-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF\u0E40-\u0E7F"
    r"\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+"
)
_DEEPSEEK_ASIAN = r"[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
_MARKS = r" ?[^(\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+"
_SPACES = "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))


class Cut(NamedTuple):
    """How words are made.

    Attributes:
      expressions: Oniguruma's.
      whole: Whether a word that is a token is one, whatever the merges make of it.
      start: Whether a text begins with the token for that, unless `add_bos_token` says otherwise.
      names_start: Whether the file must name that token.
    """

    expressions: tuple[str, ...]
    whole: bool = False
    start: bool = False
    names_start: bool = False


_CUTS = {
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", _DIGITS)),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2": Cut((_LLAMA3,), True, True),
    "dbrx smaug-bpe": Cut((_LLAMA3,)),
    "glm4": Cut((_LLAMA3,), True, names_start=True),
    "chatglm-bpe": Cut((_LLAMA3,), names_start=True),
    "minicpm5": Cut((_THREE, _llama3(r"\p{N}+")), True),
    "deepseek-llm": Cut(
        (r"[\r\n]", rf"\s?[{_TWO_CASES}]+", r"\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3001-\u3002]+",
         r"\s+$", _DEEPSEEK_ASIAN, r"\p{N}+")
    ),
    "deepseek-coder": Cut((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN, _ONE)),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": Cut((_THREE, _KANJI, rf"{_DEEPSEEK}[\r\n]*|{_REST}")),
    "spark2_5": Cut((_THREE, _KANJI, rf"{_DEEPSEEK}|[\r\n]|\s+(?!\S)|\s+", _ONE)),
    "afmoe": Cut((rf"\P{{N}}*{_THREE}(?=(?:\p{{N}}{{3}})*(?!\p{{N}}))", _ASIAN, rf"{_DEEPSEEK}[\r\n]*|{_REST}")),
    "youtu": Cut(
        (r"[\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-\u303F"
         rf"\uFE30-\uFE4F]+|[\u3105-\u312F]+|{_KANJI}",
         rf"{_MARKED}|{_ONE}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"), True
    ),
    "falcon": Cut((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, _DIGITS)),
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": Cut((_ONE, _GPT2)),
    "gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo jais trillion granite-docling exaone4": Cut((_GPT2,)),
    "jais-2": Cut((_llama3(_THREE, rest=rf"\s*[\r\n]+|{_SPACES}\s{{1,2}}(?!\S)|\s"),)),
    "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2": Cut((_QWEN2,)),
    "qwen35": Cut((_llama3(_ONE, r"[\p{L}\p{M}]+", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),)),
    "ufakzeka": Cut((_llama3(_ONE, before=""),)),
    "laguna": Cut((r"[^\n]+|[\n]+", _QWEN2)),
    "seed-coder": Cut((_llama3(_ONE, signs=r" ?[^\s\p{L}\p{N}\r\n]+"),)),
    "bailingmoe bailingmoe2 llada-moe": Cut((_llama3(_ONE, rest=r"\s*[\r\n]|\s+(?!\S)|\s+"),)),
    "exaone-moe": Cut(
        (_llama3(_ONE, r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
                 r"\s*[\r\n]|\s+(?!\S)|\s+"),)
    ),
    "poro-chat bloom gpt3-finnish": Cut((_MARKS,)),
    "viking": Cut((_MARKS, _ONE)),
    "tekken": Cut((_cased(_ONE),), True, True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": Cut((_cased(_THREE, f"{_ENDINGS}?"),)),
    "kimi-k2": Cut(
        (rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_ENDINGS}?|{_THREE}"
         rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",)
    ),
    "chameleon": Cut(
        ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", _ONE,
         r"[\p{P}!-/:-@\[-`{-~]", _GPT2), False, True
    ),
    "superbpe": Cut((r"\p{N}+", r"(?=([0-9]{3})+(?![0-9]))")),
}  # fmt: skip
CUTS = {name: cut for names, cut in _CUTS.items() for name in names.split()}
