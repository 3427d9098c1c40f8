"""The suites: every test file has a marker, depths keep the cases they should, and shards are all files, each once."""

from __future__ import annotations

import ast
import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import suites
from tests.processes import ROOT

pytestmark = pytest.mark.house

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
INI = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
MARKERS = [marker.split(":")[0].split("(")[0] for marker in INI["markers"]]
# A file has one of these; the others are for single tests, or say more of a file that has one.
OF_FILES = MARKERS[: MARKERS.index("release")]
WITH_REASON = ("every_case", "full", "slow")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "tests")))
def test_a_file_has_a_marker(path: Path) -> None:
    of_file, of_tests = suites.declared(path)
    assert of_file & {*OF_FILES}, (
        f"give {path.name} a pytestmark, or its folder a marker in tests/suites.py"
    )
    assert of_file.union(*(marks for sets in of_tests.values() for marks in sets)) <= {*MARKERS}


def test_folders_with_markers_exist() -> None:
    assert [name for name in suites.FOLDERS if not (ROOT / name).is_dir()] == []
    assert {*itertools.chain(*suites.FOLDERS.values())} <= {*OF_FILES}


def reasons(path: Path, text: str) -> list[tuple[str, str, str]]:
    """(marker, its reason or "", where) of the markers that leave tests out, or take all of their cases."""
    nodes = [*ast.walk(ast.parse(text))]
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    found = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark":
            if node.attr in WITH_REASON:
                call = calls.get(id(node))
                reason = ast.unparse(call.args[0]).strip("'") if call and call.args else ""
                found.append((node.attr, reason, f"{path.name}:{node.lineno}"))
    return sorted(found, key=lambda each: each[2])


def test_what_is_left_out_says_why() -> None:
    found = [each for path in FILES for each in reasons(path, path.read_text())]
    assert [where for _, reason, where in found if not reason] == []
    assert 0 < sum(marker == "slow" for marker, _, _ in found) <= 20


def test_control_a_missing_reason_is_seen() -> None:
    text = "@pytest.mark.slow\ndef test_a(): ...\n@pytest.mark.full('long')\ndef test_b(): ...\n"
    assert reasons(Path("a.py"), text) == [("slow", "", "a.py:1"), ("full", "long", "a.py:3")]


@pytest.mark.parametrize(
    "expression, marks, taken",
    [
        ("", {"ops"}, True),
        ("ops", {"ops", "any_simd"}, True),
        ("ops and not any_simd", {"ops", "any_simd"}, False),
        ("shaders and not (compiler or slow)", {"shaders"}, True),
        ("release", {"ops"}, False),
    ],
)
def test_expressions(expression: str, marks: set[str], taken: bool) -> None:
    assert suites.takes(expression, marks) == taken


def test_files_of_an_expression() -> None:
    """Also those of which one test alone has the marker; test_symbols.py has it as a whole."""
    found = [path.relative_to(ROOT / "tests").as_posix() for path in suites.files("release")]
    assert {"test_symbols.py", "metal_kernels/test_build.py"} <= set(found)
    assert "test_softshrink.py" not in found
    assert len(suites.files("")) == len(FILES)


# ---- depths ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    rows: int
    columns: int


def items(test: str, marker: str = "", **axes: list[Any]) -> list[Any]:
    """As pytest makes them of one `parametrize` for each axis."""
    made = []
    for values in itertools.product(*axes.values()):
        params = dict(zip(axes, values, strict=True))
        found = SimpleNamespace(
            nodeid=f"tests/test_x.py::{test}[{'-'.join(map(str, params.values()))}]",
            callspec=SimpleNamespace(params=params),
            iter_markers=lambda name: [],
            get_closest_marker=lambda name: name == marker or None,
        )
        if not axes:
            del found.callspec
        made.append(found)
    return made


def taken(found: list[Any], depth: str) -> list[dict[str, Any]]:
    return [found[place].callspec.params for place in sorted(suites.kept(found, depth))]


def test_every_value_of_every_parameter() -> None:
    found = items("test_a", dtype=["f", "h", "b"], shape=[1, 2, 3, 4, 5], flag=[False, True])
    chosen = taken(found, "default")
    assert len(chosen) == 5 and len(taken(found, "all")) == 30 and len(taken(found, "first")) == 1
    for name, count in (("dtype", 3), ("shape", 5), ("flag", 2)):
        assert len({case[name] for case in chosen}) == count


def test_every_op_in_every_dtype() -> None:
    found = items("test_a", op=["Add", "Mul"], dtype=["f", "h", "b"], shape=[1, 2])
    pairs = {(case["op"], case["dtype"]) for case in taken(found, "default")}
    assert len(taken(found, "default")) == len(pairs) == 6


def test_rows_stay_together() -> None:
    found = items("test_a", a=[1, 2], b=[1, 2], flag=[False, True])
    for item in found:
        item.iter_markers = lambda name: [SimpleNamespace(args=("a, b", [(1, 1), (1, 2), (2, 1)]))]
    assert len({(case["a"], case["b"]) for case in taken(found, "default")}) == 4


def test_objects_are_values() -> None:
    found = items("test_a", call=[lambda: 1, lambda: 2, lambda: 3], flag=[False, True])
    assert len(taken(found, "default")) == 3


def test_fields_of_a_case_are_parameters() -> None:
    cases = [Shape(rows, columns) for rows in range(4) for columns in range(4)]
    chosen = [case["case"] for case in taken(items("test_a", case=cases), "default")]
    assert len(chosen) == 4 and {c.rows for c in chosen} == {c.columns for c in chosen} == {
        *range(4)
    }


def test_cases_that_are_all_taken() -> None:
    named = items("test_a", error=["a", "b", "c"])
    assert len(taken(named, "default")) == 3
    every = items("test_a", marker="every_case", dtype=["f", "h"], shape=[1, 2])
    assert len(taken(every, "default")) == 4
    assert suites.kept(items("test_b"), "default") == suites.kept(items("test_b"), "first") == {0}


def test_a_dtype_of_each_kind_where_another_test_has_all() -> None:
    dtypes = ["float32", "bfloat16", "float16", "int8", "uint8", "int64", "bool", "complex64"]
    assert len(taken(items("test_a", dtype=dtypes), "default")) == 8
    found = taken(items("test_a", marker="device", dtype=dtypes, op=["a", "b"]), "default")
    kinds = {(case["op"], suites.KIND_OF.get(case["dtype"], case["dtype"])) for case in found}
    assert len(found) == len(kinds) == 2 * 6
    assert suites.kind_of(["int8"]) == ["int8"]  # a parameter of several, which has no kind
    assert len(taken(items("test_a", marker="device", dtype=dtypes), "all")) == 8
    # Lists of dtypes, which one case loops over, are values of their own.
    assert len(taken(items("test_a", marker="device", dtypes=[["int8"], ["bool"]]), "default")) == 2


def test_tests_are_apart() -> None:
    both = [*items("test_a", dtype=["f", "h"], shape=[1, 2]), *items("test_b", shape=[1, 2, 3])]
    assert len(suites.kept(both, "default")) == 5 and len(suites.kept(both, "first")) == 2


def test_the_same_cases_each_time() -> None:
    found = items("test_a", dtype=["f", "h", "b"], shape=[*range(7)], way=["x", "y"])
    assert len({tuple(sorted(suites.kept(found, "default"))) for _ in range(3)}) == 1


CASES = """
import pytest
@pytest.mark.parametrize("b", "xyz")
@pytest.mark.parametrize("a", "xyz")
def test_grid(a, b): ...
@pytest.mark.full("it is long")
def test_b(): ...
@pytest.mark.slow("it is slow")
def test_c(): ...
@pytest.mark.parametrize("a", "xy")
def test_d(a): ...
"""


@pytest.mark.parametrize(
    "depth, arguments, count",
    [
        ("", [], 5),
        ("default", [], 5),
        ("all", [], 13),
        ("first", [], 2),
        ("default", ["-m", "full"], 1),
        ("default", ["-m", "slow"], 1),
        ("all", ["-m", "not slow"], 12),
        ("default", ["-k", "test_grid"], 9),  # named: whole
        ("default", ["::test_grid"], 9),
    ],
)
def test_a_run(depth, arguments, count, tmp_path, monkeypatch) -> None:
    """The items that pytest itself takes, with the hooks of tests/conftest.py and nothing else
    of it."""
    file = tmp_path / "test_it.py"
    file.write_text(CASES)
    hooks = (ROOT / "tests" / "conftest.py").read_text()
    begin, end = (
        hooks.index(f"def {name}(") for name in ("pytest_configure", "pytest_generate_tests")
    )
    imports = "import pytest\nfrom tests import suites\nfrom tests.forked import Server\n"
    (tmp_path / "conftest.py").write_text(imports + hooks[begin:end])
    monkeypatch.setenv("METAL_OPS_TEST_DEPTH", depth)
    seen: list[str] = []

    class Plugin:
        def pytest_collection_finish(self, session):
            seen.extend(item.nodeid for item in session.items)

    words = [str(file) + argument if argument[:2] == "::" else argument for argument in arguments]
    words += [] if words and str(file) in words[-1] else [str(file)]
    options = ["--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist", "-qq"]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    assert pytest.main([*options, *words], plugins=[Plugin()]) == 0
    assert len(seen) == count, seen


@pytest.mark.parametrize(
    "variable, value", [("DEPTH", "deep"), ("SHARD", "0/4"), ("SHARD", "5/4"), ("SHARD", "a")]
)
def test_no_depth_and_no_shard(variable, value, monkeypatch) -> None:
    monkeypatch.setenv(f"METAL_OPS_TEST_{variable}", value)
    with pytest.raises(ValueError, match=f"METAL_OPS_TEST_{variable} is '{value}'; expected"):
        getattr(suites, variable.lower())()


# ---- shards ----------------------------------------------------------------------------------------------------------


def test_four_parts_are_all_files(monkeypatch) -> None:
    parts = []
    for which in range(1, 5):
        monkeypatch.setenv("METAL_OPS_TEST_SHARD", f"{which}/4")
        parts.append({path for path in FILES if not suites.left_to_others(path)})
    assert sum(map(len, parts)) == len(FILES) and set().union(*parts) == {*FILES}
    assert min(map(len, parts)) > len(FILES) / 8
    monkeypatch.delenv("METAL_OPS_TEST_SHARD")
    assert not any(map(suites.left_to_others, FILES))


def test_other_files_belong_to_every_part(monkeypatch, tmp_path) -> None:
    for which in range(1, 5):
        monkeypatch.setenv("METAL_OPS_TEST_SHARD", f"{which}/4")
        assert not suites.left_to_others(ROOT / "tests" / "conftest.py")
        assert not suites.left_to_others(tmp_path / "test_x.py")
