"""Declarations that C++ has no grammar for: attributes, instantiations, function constants, threadgroup variables.

[[buffer(3)]]                                  an annotation
template [[host_name("f")]] kernel void f<int>(...)     a constant that points to f<int>, annotated with its name
threadgroup float x[32];                       thread-local storage of the worker
constant bool b [[function_constant(0)]];      a thread-local that the wrapper sets
"""

from __future__ import annotations

import re
from collections import Counter

from .features import ATTRIBUTES
from .flat import FlatText, definitions

POSITIONS = frozenset(
    """thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid threads_per_grid
    threads_per_threadgroup dispatch_threads_per_threadgroup threadgroups_per_grid grid_size grid_origin
    thread_index_in_threadgroup thread_index_in_simdgroup simdgroup_index_in_threadgroup threads_per_simdgroup
    thread_execution_width dispatch_simdgroups_per_threadgroup simdgroups_per_threadgroup thread_index_in_quadgroup
    quadgroup_index_in_threadgroup quadgroup_index_in_simdgroup quadgroups_per_threadgroup
    dispatch_quadgroups_per_threadgroup""".split()
)
ANNOTATED = frozenset(
    "buffer threadgroup texture sampler max_total_threads_per_threadgroup stage_in id".split()
)
# Graphics attributes: no meaning here, taken out.
DROPPED = frozenset(
    """user position attribute color point_size vertex_id instance_id front_facing sample_id flat center_perspective
    center_no_perspective payload render_target_array_index early_fragment_tests
    point_coord raster_order_group depth stencil clip_distance invariant required_threads_per_threadgroup""".split()
)
# The tokens of an initial value that is zero.
ZERO = re.compile(r"[{}(),]|0+[uUlL]*|(?:0+\.0*|\.0+)[fFhH]?|false")
SCALAR_OR_VECTOR = re.compile(
    r"(?:bool|u?(?:char|short|int|long)|b?float|half|u?int(?:8|16|32|64)_t|size_t)[234]?"
)
# A macro that stands for `constant` and words beside it.
CONSTANT_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[ \t]+(?:static|constant|constexpr|const|inline))+)[ \t]*$",
    re.M,
)

# One that stands for `threadgroup`.
THREADGROUP_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+threadgroup[ \t]*$", re.M)


class Declarations:
    """Rewrites the declarations of one text."""

    def __init__(self, source: FlatText):
        self._source = source
        self._function_constants: set[str] = set()
        tokens = source.tokens
        self._definitions = Counter(
            tokens[i].text
            for i in range(1, len(tokens) - 1)
            if tokens[i - 1].text == "void"
            and tokens[i + 1].text == "("
            and not tokens[i].directive
        )
        self._constant_macros = {
            name
            for name, words in CONSTANT_MACRO.findall(source.flat)
            if "constant" in words.split()
        }
        self._threadgroup_macros = set(THREADGROUP_MACRO.findall(source.flat))
        if (
            self._threadgroup_macros
        ):  # another branch of an #if may have them stand for something else
            defined = definitions(source.flat)
            self._threadgroup_macros &= set(THREADGROUP_MACRO.findall(defined))

    def attributes(self) -> None:
        """Attributes become annotations."""
        tokens = self._source.tokens
        i = 0
        while i + 1 < len(tokens):
            if tokens[i].text == "template" and tokens[i + 1].text in (
                "[",
                "kernel",
                "__attribute__",
            ):
                i = self._instantiation(i)
            elif (
                tokens[i].text == "["
                and tokens[i + 1].text == "["
                and tokens[i + 1].start == tokens[i].end
            ):
                end = self._attribute_end(i)
                if end:
                    self._attribute(i, end)
                    i = end
            i += 1

    def _attribute_end(self, i: int) -> int:
        """Index of the last ] of the attribute list that starts at i, or 0 if it is none (a[[]{}()])."""
        depth = 0
        for j in range(i, min(i + 400, len(self._source.tokens) - 1)):
            text = self._source.tokens[j].text
            depth += (text in "[(") - (text in "])")
            if depth == 0:
                return j if self._source.tokens[j - 1].text == "]" else 0
        return 0

    def _parse_attributes(self, i: int, end: int) -> list[tuple[str, str]]:
        """(name, text of the arguments) of each attribute between [[ at i and ]] that ends at `end`."""
        out = []
        j = i + 2
        while j < end - 1:
            name = self._source.tokens[j].text
            j += 1
            while self._source.tokens[j].text == "::":
                name += "::" + self._source.tokens[j + 1].text
                j += 2
            arguments = ""
            if self._source.tokens[j].text == "(":
                close = self._source.matching(j)
                arguments = self._source.flat[
                    self._source.tokens[j].end : self._source.tokens[close].start
                ]
                j = close + 1
            out.append((name, re.sub(r"(\\\n|\s)+", " ", arguments).strip()))
            if self._source.tokens[j].text == ",":
                j += 1
        return out

    def _attribute(self, i: int, end: int) -> None:
        tokens = self._source.tokens
        known = []
        found = self._parse_attributes(i, end)
        for name, arguments in found:
            if name == "kernel":
                known.append("kernel")
            elif name == "host_name":
                known.append(f'_MSL_A("host_name=" {arguments})')
            elif name in POSITIONS:
                known.append(f'_MSL_A("at={name}")')
            elif name == "function_constant":
                if tokens[i].parens == 0 and not tokens[i].in_function:
                    known.append(self._function_constant(i, arguments))
                else:
                    known.append(f'_MSL_A("enabled_by=" _MSL_STR({arguments}))')
            elif name in ANNOTATED:
                known.append(f'_MSL_A("{name}=" _MSL_STR({arguments}))')
            elif name in ("visible", "stitchable"):
                known.append('_MSL_A("visible")')
            elif name in ("vertex", "fragment"):
                known.append(name)
            elif name in ATTRIBUTES:
                known.append(f'_MSL_A("refused_{name}")')
            elif name in DROPPED or name.startswith("air."):
                known.append("")
        if not known:
            return
        # Spaces around: `x[[buffer(0)]]` touches its name.
        text, directive = f" {' '.join(known)} ", tokens[i].directive
        bounds = end
        while tokens[bounds + 1].text == "[" and tokens[bounds + 2].text != "[":
            bounds = self._source.matching(bounds + 1)
        if bounds == end:
            self._source.replace(tokens[i].start, tokens[end].end, text, directive)
        else:  # `x [[id(0)]][2]`: an annotation stands behind the bounds
            self._source.replace(tokens[i].start, tokens[end].end, "", directive)
            self._source.insert(tokens[bounds].end, text)

    def _function_constant(self, i: int, arguments: str) -> str:
        tokens = self._source.tokens
        name = tokens[i - 1].text
        self._function_constants.add(name)
        start = self._source.statement_start(i)
        self._no_definition(start, i)
        return f'_MSL_FUNCTION_CONSTANT_LABEL({name}) _MSL_A("function_constant=" _MSL_STR({arguments}))'

    def _no_definition(self, start: int, end: int) -> None:
        """Makes the declaration that tokens start to end - 1 begin one of a variable that the wrapper sets."""
        tokens = self._source.tokens
        for token in tokens[start:end]:
            if token.text in ("static", "constexpr"):
                self._source.replace(token.start, token.end, "")
            elif token.text in self._constant_macros:
                self._source.replace(token.start, token.end, "constant")
        self._source.insert(tokens[start].start, "_MSL_FUNCTION_CONSTANT ")

    def _instantiation(self, i: int) -> int:
        """`template [[host_name("n")]] [[kernel]] void f<int>(...)` at i becomes a named pointer to f<int>."""
        tokens = self._source.tokens
        start, host_name = i, None
        j = i + 1
        while True:
            if tokens[j].text == "[" and tokens[j + 1].text == "[":
                end = self._attribute_end(j)
                for name, arguments in self._parse_attributes(j, end):
                    host_name = arguments if name == "host_name" else host_name
                j = end + 1
            elif tokens[j].text == "kernel":
                j += 1
            elif tokens[j].text == "__attribute__":
                j = self._source.matching(j + 1) + 1
            else:
                break
        if host_name is None:
            self._source.replace(tokens[i + 1].start, tokens[j - 1].end, "", tokens[i].directive)
            return j
        # The declarator: the last name before its (parameters), or before the end, with <arguments>.
        head = j
        declarator, angle = None, 0
        while (
            j < len(tokens)
            and tokens[j].directive == tokens[i].directive
            and tokens[j].text not in (";", "{", "}")
        ):
            text = tokens[j].text
            if text == "<" and re.match(r"\w", tokens[j - 1].text):
                angle += 1
            elif text == ">" and angle:
                angle -= 1
            elif text == "(" and tokens[j - 1].text not in (
                "decltype",
                "__attribute__",
                "__typeof__",
            ):
                if angle == 0:
                    break
                j = self._source.matching(j)
            elif text in ("(", "["):
                j = self._source.matching(j)
            elif (
                angle == 0
                and re.match(r"[A-Za-z_]", text)
                and tokens[j - 1].text not in ("::", "##")
            ):
                declarator = j
            j += 1
        parameters = ""
        last = j - 1
        if j < len(tokens) and tokens[j].text == "(" and tokens[j].directive == tokens[i].directive:
            last = self._source.matching(j)
            parameters = self._source.flat[tokens[j].start : tokens[last].end]
        if declarator is None or declarator >= j:
            self._source.error(
                tokens[head],
                "expected the name of a kernel template in this explicit instantiation",
            )
            return j
        name = self._source.flat[tokens[declarator].start : tokens[j - 1].end]
        target = f"&{name}"
        overloaded = self._definitions[tokens[declarator].text] > 1
        # Parameters choose among overloads, and the template's arguments are deduced from them.
        if parameters and ("<" not in name or overloaded):
            types = re.sub(r"\[\[.*?\]\]", "", parameters, flags=re.S)
            target = f"static_cast<void (*){types}>(&{name})"
        text = re.sub(r"\\\n|\n", " ", f"_MSL_INSTANCE({host_name}, {target})")
        self._source.replace(tokens[start].start, tokens[last].end, text, tokens[i].directive)
        return last

    def threadgroup_variables(self) -> None:
        """Variables in threadgroup memory: only those that kernels declare, without an initial value or with zeros."""
        tokens = self._source.tokens
        for i, token in enumerate(tokens):
            named = token.text in self._threadgroup_macros
            if not (token.text == "threadgroup" or named) or token.parens or i == 0:
                continue
            if token.directive and tokens[i - 1].text in self._threadgroup_macros:
                continue
            if named and not token.in_function and not token.directive:
                continue  # clang's message about it is enough
            if token.class_id and not token.directive:
                continue
            before = tokens[i - 1]
            starts = before.text in (";", "{", "}", ":") or before.directive != token.directive
            if token.directive and not starts:
                starts = self._source.statement_start(i) == i
            if before.text in ("static", "constexpr", "const", "volatile"):
                starts = tokens[i - 2].text in (";", "{", "}")
            if before.text == ")" and not token.directive:  # alignas(16) threadgroup ...
                starts = "alignas" in [t.text for t in tokens[max(0, i - 5) : i]]
            if not starts:
                continue
            j, pointer, initialised, angle = i + 1, False, None, 0
            while j < len(tokens) and tokens[j].text not in (";", "{", "}"):
                text = tokens[j].text
                angle += (text == "<") - (text == ">")
                if text in ("(", "["):
                    if text == "(" and not angle and tokens[j - 1].text != "__attribute__":
                        pointer = True  # a function that returns, or a pointer to an array
                    j = self._source.matching(j)
                elif text in ("*", "&", "&&") and not angle:
                    pointer = True
                elif text == "=":
                    initialised = j
                    break
                j += 1
            if pointer or (
                initialised is None
                and j < len(tokens)
                and tokens[j].text != ";"
                and not token.directive
            ):
                continue
            if named and j < len(tokens) and tokens[j].directive != token.directive:
                continue  # a type, of which a macro's user makes any declaration
            if not token.in_function and not token.directive:
                self._source.error(
                    token,
                    "a variable in the threadgroup address space must be declared in a kernel function",
                )
                continue
            if initialised is not None and not self._zero(i, initialised):
                self._source.error(
                    tokens[initialised],
                    "a variable in the threadgroup address space cannot be initialized",
                )
                continue
            self._source.replace(token.start, token.end, "_MSL_THREADGROUP", token.directive)

    def _zero(self, i: int, equals: int) -> bool:
        """`threadgroup float x[32] = {0}`: every thread writes the zeros, then comes a barrier. False for another
        value."""
        tokens = self._source.tokens
        end = equals + 1
        while tokens[end].text != ";" and tokens[end].directive == tokens[i].directive:
            before, word, after = (t.text for t in tokens[end - 1 : end + 2])
            made = after == "(" and SCALAR_OR_VECTOR.fullmatch(word)
            of = tokens[end + 2].text  # the operand of a cast
            cast = before == "(" and after == ")" and of not in ",)}" and ZERO.fullmatch(of)
            if not (ZERO.fullmatch(word) or made or cast):
                return False
            end += 1
        bounds = next((j for j in range(i, equals) if tokens[j].text == "["), equals)
        name = tokens[bounds - 1].text
        self._source.replace(
            tokens[equals].start,
            tokens[end - 1].end,
            f"; _msl::zero({name}); metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup)",
            tokens[i].directive,
        )
        return True

    def derived_constants(self) -> None:
        """Constants that depend on function constants."""
        tokens = self._source.tokens
        i = 0
        while i < len(tokens):
            token = tokens[i]
            if (
                (token.text != "constant" and token.text not in self._constant_macros)
                or token.directive
                or token.in_function
                or token.parens
                or token.class_id
            ):
                i += 1
                continue
            j, equals = i, None
            while j < len(tokens) and tokens[j].text not in (";", "{", "}"):
                if tokens[j].text == "(" and equals is None:
                    break
                if tokens[j].text == "=" and equals is None:
                    equals = j
                j += 1
            if equals is None or j >= len(tokens) or tokens[j].text != ";":
                i = max(j, i + 1)
                continue
            words = {t.text for t in tokens[equals + 1 : j]}
            if not words & self._function_constants and "is_function_constant_defined" not in words:
                i = j
                continue
            named = equals - 1
            while tokens[named].text == "]":  # [[maybe_unused]]
                named -= 1
                while tokens[named + 1].text != "[" or tokens[named].text == "[":
                    named -= 1
            name = tokens[named].text
            self._function_constants.add(name)
            start = self._source.statement_start(i)
            self._no_definition(start, equals)
            self._source.replace(
                tokens[equals].start,
                tokens[equals].end,
                f'_MSL_FUNCTION_CONSTANT_LABEL({name}) _MSL_A("derived"); '
                f"__attribute__((unused)) static inline auto _msl_derive_{name}() {{ return",
            )
            self._source.replace(tokens[j].start, tokens[j].end, "; }")
            i = j
