"""docs/public.txt and the code have the same public names, and both are noticed when they differ."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tools.reference import public

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def listed() -> dict[str, dict[str, str]]:
    return public.read(public.FILE.read_text())


def test_the_list_is_the_code(listed):
    """A name that goes, or a parameter, is a change that docs/releases.md has a rule for."""
    found = public.collect()
    assert list(listed) == list(found)
    for section, names in found.items():
        missing, gone = set(names) - set(listed[section]), set(listed[section]) - set(names)
        assert (missing, gone) == (set(), set()), (
            f"{section}: docs/public.txt lacks {sorted(missing)}, and the code {sorted(gone)}; if that is meant, run "
            "`make docs-reference ARGS=--public` and add a line to CHANGELOG.md (docs/releases.md has the rule)"
        )
        assert len(names) == len(set(names)) >= 4


def test_formats_and_variables_say_what_they_are(listed):
    for section in public.BY_HAND:
        assert [name for name, meaning in listed[section].items() if not meaning] == []


def test_constants_and_variables_that_are_not_public_have_a_reason():
    """A new format, or a new variable, is public or is named with its reason."""
    assert public.versions() == {*public.KEPT.values(), *public.OTHERS}
    assert public.PRIVATE.keys() <= public.variables()


def test_control_parameters_members_and_options_are_seen():
    class Thing:
        def __init__(self, size: int, *, deep: bool = False) -> None: ...

        def turn(self, *angles: float, **more: float) -> None: ...

        @classmethod
        def of(cls, text: str = "") -> None: ...

        @property
        def wide(self) -> bool: ...

        def _own(self) -> None: ...

    Thing.__module__ = "metal_ops.test"
    module = SimpleNamespace(Thing=Thing, twice=lambda x, y=2, *, name=None: x)
    assert list(public._python(module, ["Thing", "twice"])) == [
        "Thing(size, *, deep=)",
        "Thing.of(text=)",
        "Thing.turn(*angles, **more)",
        "Thing.wide",
        "twice(x, y=, *, name=)",
    ]
    text = 'def f(item):\n    a = {"-D": 1}\n    return item == "-c" or item.startswith("--gpu=") or g("-no")'
    assert public.dashes(text) == {"-D", "-c", "--gpu="}


def test_control_variables_and_versions_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(public, "ROOT", tmp_path)
    monkeypatch.setattr(public, "SOURCES", ("src",))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(
        'VERSION = 3\n"""METAL_OPS_NOT is in prose."""\nx = "METAL_OPS_NEW"\n'
    )
    (tmp_path / "src" / "b.cc").write_text(
        '#include "METAL_OPS_H_"\nconstexpr int kVersion = 2;\nauto* x = getenv("HOSTMETAL_NEW");\n'
    )
    assert public.variables() == {"METAL_OPS_NEW", "HOSTMETAL_NEW"}
    assert public.versions() == {("src/a.py", "VERSION"), ("src/b.cc", "kVersion")}


def test_meanings_survive_a_new_list(tmp_path, monkeypatch):
    path = tmp_path / "public.txt"
    monkeypatch.setattr(public, "collect", lambda: {public.ENVIRONMENT: ["A_NEW", "B_OLD"]})
    path.write_text(f"## {public.ENVIRONMENT}\nB_OLD: kept: all of it\nC_GONE: gone\n")
    public.write(path)
    assert public.read(path.read_text()) == {
        public.ENVIRONMENT: {"A_NEW": "", "B_OLD": "kept: all of it"}
    }
