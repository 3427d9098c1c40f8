"""The tests that a run takes: depths, shards, and the markers of test files. Imports no TensorFlow and no library of
ours.

Depths are a property of the cases and never of the clock. METAL_OPS_TEST_DEPTH says which, in every process of a run:

    default  each test, with cases that together have every value of every parameter, and every op in every dtype; tests
             of TensorFlow's own ops on the device have a dtype of each kind, as test_every_kernel.py there has them all
    all      every case
    first    the first case of each test: for a second run under other conditions, after one that took more

METAL_OPS_TEST_SHARD=2/4 takes the files of that part: a file's part follows from its path.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import itertools
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEPTHS = ("default", "all", "first")

# ---- markers of files ------------------------------------------------------------------------------------------------

# The marker of all test files of a folder; the longest that fits. Files in tests/ itself say theirs: `pytestmark`.
FOLDERS = {
    "tests/adapter": ("builds",),
    "tests/device": ("device",),
    "tests/device/on_device": ("device", "shaders"),
    "tests/distributed": ("programs",),
    "tests/fusion": ("fusion",),
    "tests/fuzz": ("fuzz",),
    "tests/hostmetal": ("hostmetal",),
    "tests/hosts": ("hosts",),
    "tests/image": ("programs",),
    "tests/lm": ("programs",),
    "tests/metal_kernels": ("builds",),
    "tests/metal_kernels/on_device": ("kernels", "shaders"),
    "tests/msl": ("language", "shaders"),
    "tests/nerf": ("programs",),
    "tests/packaging": ("packaging",),
    "tests/sanitize": ("sanitize",),
    "tests/saved": ("ops",),
    "tests/sdf": ("programs",),
    "tests/torch": ("torch",),
}


def of_folder(path: Path) -> tuple[str, ...]:
    """The markers that a test file has by where it lies."""
    name = path.resolve().relative_to(ROOT).parent.as_posix()
    return FOLDERS.get(name, ())


# pytest's own, which say nothing of a suite.
OF_PYTEST = {"filterwarnings", "parametrize", "skip", "skipif", "usefixtures", "xfail"}


def _marks(node: ast.expr) -> set[str]:
    """`pytest.mark.a`, `pytest.mark.a(...)`, and lists of these."""
    found = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "pytest.mark"
    }
    return found - OF_PYTEST


def _name(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


@functools.cache
def declared(path: Path) -> tuple[frozenset[str], dict[str, set[frozenset[str]]]]:
    """The markers that a test file gives all of its tests, and those of each test's cases, without importing it."""
    of_file, of_tests = set(of_folder(path)), {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            of_file |= _marks(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[:4].lower() == "test":
            # The marks of all cases, and those of some cases, which stand within a decorator.
            own = set().union(*(_marks(_name(each)) for each in node.decorator_list))
            every = set().union(*map(_marks, node.decorator_list))
            of_tests[node.name] = {frozenset(own), frozenset(every)}
    return frozenset(of_file), of_tests


def sets_of_marks(path: Path) -> set[frozenset[str]]:
    """The sets of markers that the tests of a file have."""
    of_file, of_tests = declared(path)
    return {of_file | marks for sets in of_tests.values() for marks in sets} or {of_file}


def takes(expression: str, marks: Iterable[str]) -> bool:
    """Whether `-m expression` takes a test with these markers."""
    has = set(marks)
    words = ast.parse(expression.strip() or "True", mode="eval")
    names = {node.id: node.id in has for node in ast.walk(words) if isinstance(node, ast.Name)}
    return bool(eval(compile(words, "-m", "eval"), {"__builtins__": {}}, names))


def files(expression: str, root: Path = ROOT) -> list[Path]:
    """The test files with tests that `-m expression` takes: so that no other is imported."""
    found = sorted((root / "tests").rglob("test_*.py"))
    return [path for path in found if any(takes(expression, m) for m in sets_of_marks(path))]


# ---- depths ----------------------------------------------------------------------------------------------------------

# Markers of tests that only `all` takes, or a run that asks for them by -m.
LEFT_OUT = ("full", "slow")
# dtypes of one kind: kernels are instances of one template, which differ in the size of an element.
KINDS = {
    "a float": ("float32", "float64"),
    "a half": ("float16", "bfloat16"),
    "signed": ("int8", "int16", "int32", "int64"),
    "unsigned": ("uint8", "uint16", "uint32", "uint64"),
    "complex": ("complex64", "complex128"),
}
KIND_OF = {dtype: kind for kind, dtypes in KINDS.items() for dtype in dtypes}
# Parameters whose pairs with a dtype are all kept.
OPS = {"op", "name", "kind", "layer", "function", "raw", "family"}
DTYPES = {"dtype", "type", "type_", "T", "dtypes"}


def depth() -> str:
    """The depth of this run."""
    asked = os.environ.get("METAL_OPS_TEST_DEPTH") or DEPTHS[0]
    if asked not in DEPTHS:
        raise ValueError(f"METAL_OPS_TEST_DEPTH is {asked!r}; expected one of {', '.join(DEPTHS)}")
    return asked


def at_depth(default: Any, whole: Any) -> Any:
    """`whole` where every case is asked for: a number of repetitions, or another measure of a test's
    size."""
    return whole if depth() == "all" else default


def covering(
    cases: Sequence[Mapping[str, Hashable]], pairs: Callable[[str, str], bool]
) -> list[int]:
    """Indices of cases that together have every value of each parameter, and all that occur of the pairs: greedily.

    Ties go to the earlier case.
    """

    def has(case: Mapping[str, Hashable]) -> set[Hashable]:
        single = set(case.items())
        return single | {
            (a, b) for a, b in itertools.combinations(case.items(), 2) if pairs(a[0], b[0])
        }

    left = [(index, has(case)) for index, case in enumerate(cases)]
    missing = set().union(*(found for _, found in left))
    chosen: list[int] = []
    while missing or not chosen:
        best = max(left, key=lambda one: len(one[1] & missing))
        chosen.append(best[0])
        missing -= best[1]
    return sorted(chosen)


def op_and_dtype(a: str, b: str) -> bool:
    return (a in OPS and b in DTYPES) or (b in OPS and a in DTYPES)


def rows(item: Any) -> list[list[str]]:
    """The names of parameters that a test lists together: their rows are values of one parameter."""
    given = (mark.args[0] for mark in item.iter_markers("parametrize") if mark.args)
    lists = (names.split(",") if isinstance(names, str) else names for names in given)
    return [[name.strip() for name in names] for names in lists]


def kind_of(dtype: Any) -> Any:
    """The kind of a dtype or of its name; a value that is neither, such as a list of dtypes, as it is."""
    name = getattr(dtype, "name", dtype)
    return KIND_OF.get(name, dtype) if isinstance(name, str) else dtype


class Values:
    """Hashable names of the values that cases have: equal for equal simple ones and for the same object."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def name(self, value: Any) -> Hashable:
        if isinstance(value, SIMPLE):
            return repr(value)
        for place, known in enumerate(self._objects):
            if known is value:
                return place
        self._objects.append(value)
        return len(self._objects) - 1

    def of_case(
        self, params: Mapping[str, Any], rows: Iterable[list[str]], kinds: bool = False
    ) -> dict[str, Hashable]:
        """The parameters of a case, in place of a dataclass its fields; with `kinds`, in place of a dtype its kind."""
        if kinds:
            params = {
                name: kind_of(value) if name in DTYPES else value for name, value in params.items()
            }
        found: dict[str, Hashable] = {}
        together = [names for names in rows if len(names) > 1 and {*names} <= {*params}]
        for names in together:
            found[",".join(names)] = tuple(self.name(params[name]) for name in names)
        for name in {*params}.difference(*together):
            fields = _fields(params[name])
            found |= {f"{name}.{key}": repr(field) for key, field in fields} or {
                name: self.name(params[name])
            }
        return dict(sorted(found.items()))


SIMPLE = (str, int, float, bool, bytes, type(None), tuple, type)


def _fields(value: Any) -> list[tuple[str, Any]]:
    """Those of a case that is a dataclass of simple values; one with others, such as functions, is a value itself."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        pairs = list(value._asdict().items())
    else:
        return []
    return pairs if all(isinstance(field, SIMPLE) for _, field in pairs) else []


def kept(items: Sequence[Any], depth: str) -> set[int]:
    """The indices of pytest's items that a run of this depth takes."""
    if depth == "all":
        return set(range(len(items)))
    tests: dict[str, list[int]] = collections.defaultdict(list)
    for place, item in enumerate(items):
        tests[item.nodeid.split("[")[0]].append(place)
    found: set[int] = set()
    for places in tests.values():
        first = items[places[0]]
        if depth == "first":
            found.add(places[0])
        elif not hasattr(first, "callspec") or first.get_closest_marker("every_case"):
            found.update(places)
        else:
            values, listed = Values(), rows(first)
            kinds = first.get_closest_marker("device") is not None
            cases = [
                values.of_case(items[place].callspec.params, listed, kinds) for place in places
            ]
            found.update(places[index] for index in covering(cases, op_and_dtype))
    return found


# ---- shards ----------------------------------------------------------------------------------------------------------


def shard() -> tuple[int, int] | None:
    """(which, of how many), from METAL_OPS_TEST_SHARD."""
    asked = os.environ.get("METAL_OPS_TEST_SHARD")
    if not asked:
        return None
    which, _, of = asked.partition("/")
    if not (which.isdecimal() and of.isdecimal() and 1 <= int(which) <= int(of)):
        raise ValueError(f"METAL_OPS_TEST_SHARD is {asked!r}; expected a part such as 2/4")
    return int(which), int(of)


def shard_of(path: str, of: int) -> int:
    """The part, from 1 on, that a test file belongs to; `path` is from the checkout's root."""
    return zlib.crc32(path.encode()) % of + 1


# ---- hooks of pytest -------------------------------------------------------------------------------------------------


def left_to_others(path: Path) -> bool:
    """Whether a test file is another shard's."""
    asked = shard()
    if asked is None or not path.name.startswith("test_") or path.suffix != ".py":
        return False
    if not path.is_relative_to(ROOT):
        return False
    return shard_of(path.relative_to(ROOT).as_posix(), asked[1]) != asked[0]


def mark(items: Iterable[Any]) -> None:
    """Gives tests the markers of their folders."""
    for item in items:
        if item.path.is_relative_to(ROOT):
            for name in of_folder(item.path):
                item.add_marker(name)


def select(config: Any, items: list[Any]) -> None:
    """Leaves the cases of this run's depth. Tests that are named, by `::` or -k, are run with all of their cases."""
    if config.option.keyword or any("::" in argument for argument in config.args):
        return
    depth_asked = depth()
    left_out = (
        [] if depth_asked == "all" else [n for n in LEFT_OUT if n not in config.option.markexpr]
    )
    whole = [item for item in items if not any(map(item.get_closest_marker, left_out))]
    places = kept(whole, depth_asked)
    taken = [item for place, item in enumerate(whole) if place in places]
    if len(taken) < len(items):
        chosen = set(map(id, taken))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = taken
