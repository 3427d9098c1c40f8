"""`make release`: its steps go on where they ended; the page and the checksums are those of the files.

Only the last test makes wheels and runs them; the others have small files in their place.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools" / "packaging"))
import libraries  # noqa: E402
import page  # noqa: E402
import release as releases  # noqa: E402

VERSION = releases.VERSION
FIRST, SECOND = list(releases.RELEASES)[:2]


class Small(releases.Release):
    """Wheels that hold their metadata alone, and a machine that ends in a step."""

    ends_at = ""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "out", folder / "state")
        self.commit = "1234567"
        self.done: list[str] = []

    def _did(self, step: str) -> None:
        if step == self.ends_at:
            raise releases.StepError(f"{step} failed")
        self.done.append(step)

    def build(self, release: str) -> None:
        self._did(f"build {release}")
        for name in ("tensorflow_metal_ops", "tensorflow_metal_ops_hostmetal"):
            write_wheel(self.output, name, f"{VERSION}+tf{release}", "linux_x86_64")
        if release == FIRST:
            write_wheel(self.output / "pypi", "tensorflow_metal_ops", VERSION, libraries.MANYLINUX)

    def attempt(self, release: str) -> None:
        self._did(f"try {release}")


def write_wheel(folder: Path, name: str, version: str, tag: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
    if "hostmetal" not in name:
        other = f"tensorflow-metal-ops-hostmetal=={version}; extra == 'metal'"
        metadata += f"Provides-Extra: metal\nRequires-Dist: {other}\n"
    wheel = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-{tag}.whl", "w") as file:
        for member, text in {"METADATA": metadata, "WHEEL": wheel, "RECORD": ""}.items():
            # Their time is 1980: the same content makes the same file.
            file.writestr(zipfile.ZipInfo(f"{info}/{member}"), text)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(releases, "said", lambda *command: "1234567")
    return tmp_path


def test_a_second_call_goes_on_behind_the_last_step(small: Path, capsys):
    first = Small(small)
    first.ends_at = f"try {SECOND}"
    with pytest.raises(releases.StepError):
        first.run([FIRST, SECOND])
    assert first.done == [f"build {FIRST}", f"try {FIRST}", f"build {SECOND}"]
    assert not (first.output / "SHA256SUMS").exists()
    second = Small(small)
    second.run([FIRST, SECOND])
    assert second.done == [f"try {SECOND}"]
    said = capsys.readouterr().out
    assert re.search(rf"^release: +\d+ s  wheels {FIRST}: done before$", said, re.M)
    assert f"TensorFlow {SECOND}, 2 of 2" in said and "5 wheels, SHA256SUMS" in said


@pytest.mark.parametrize("change", ["a wheel", "a wheel is gone", "the commit"])
def test_changes_are_made_and_tried_anew(change: str, small: Path, monkeypatch):
    Small(small).run([FIRST])
    wheel = small / "out" / f"tensorflow_metal_ops-{VERSION}+tf{FIRST}-py3-none-linux_x86_64.whl"
    if change == "a wheel":
        wheel.write_bytes(wheel.read_bytes() + b"x")
    elif change == "a wheel is gone":
        wheel.unlink()
    else:
        monkeypatch.setattr(releases, "said", lambda *command: "7654321")
    again = Small(small)
    again.run([FIRST])
    # The same wheels as before need no second trial.
    assert again.done == [f"build {FIRST}", *[f"try {FIRST}"] * (change == "the commit")]
    same = Small(small)
    same.run([FIRST])
    assert same.done == []


def test_wheels_of_another_release_are_refused(small: Path):
    Small(small).run([FIRST])
    write_wheel(small / "out", "tensorflow_metal_ops", "0.0.1", "linux_x86_64")
    with pytest.raises(
        releases.StepError, match=r"wheels of another call, such as .*0\.0\.1.*; remove"
    ):
        Small(small).run([FIRST])


def test_checksums_and_page_are_the_files(small: Path):
    Small(small).run([FIRST, SECOND])
    out = small / "out"
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=out, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.count(": OK") == 4 == len([*out.glob("*.whl")])
    text = (out / "index.html").read_text()
    assert text.count("<a href") == 4
    for path in out.glob("*.whl"):
        link = path.name.replace("+", "%2B")
        assert f'href="{link}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}"' in text
    assert f"tensorflow-metal-ops[metal]=={VERSION}+tf{FIRST}" in text and "trial" not in text
    rows = [page.Row("a+b.whl", 1 << 20, "0" * 64, FIRST, ["3.11"])]
    text = page.render(VERSION, "1234567", rows, "https://example.org/v1/", True)
    assert 'href="https://example.org/v1/a%2Bb.whl#sha256=' in text and "trial" in text


@pytest.mark.parametrize("release", [FIRST, SECOND])
def test_pip_takes_from_the_page(release: str, small: Path):
    """The command of the page, without TensorFlow; the extra's other wheel comes from there, too."""
    Small(small).run([FIRST, SECOND])
    target = small / "target"
    wanted = f"tensorflow-metal-ops[metal]=={VERSION}+tf{release}"
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-index"]
    done = subprocess.run(
        [*pip, "--target", target, "--find-links", small / "out/index.html", wanted],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {path.name for path in target.glob("*.dist-info")}
    assert found == {
        f"tensorflow_metal_ops-{VERSION}+tf{release}.dist-info",
        f"tensorflow_metal_ops_hostmetal-{VERSION}+tf{release}.dist-info",
    }


def test_a_failed_command_names_its_log(small: Path, monkeypatch, capsys):
    monkeypatch.setattr(releases, "MINUTE", 0.2)
    small_one = Small(small)
    with pytest.raises(releases.StepError, match=r"exit code 3\): begins \| ends; .*/state/a\.log"):
        small_one.call("a", "sh", "-c", "echo begins; sleep 0.7; echo ends; exit 3")
    assert re.search(r"^release: +0 s    begins$", capsys.readouterr().out, re.M)


def test_changes_that_are_not_committed_are_refused(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(releases, "said", lambda *command: "1234567-dirty")
    arguments = ["release.py", "--output", str(tmp_path / "o"), "--state", str(tmp_path / "s")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as ended:
        releases.main()
    assert ended.value.code == 2 and "not committed" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="these are the Linux wheels")
@pytest.mark.full("installs the wheels as test_wheels.py does, and imports TensorFlow six times")
def test_a_trial_of_this_build(tmp_path: Path):
    """The whole of it, with the libraries that are here."""
    script = ROOT / "tools/packaging/release.py"
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, script, "--trial", "--output", out, "--state", tmp_path / "state"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((tmp_path / "state/state.json").read_text())
    (release,) = state["wheels"]
    assert state["wheels"] == state["tried"] and len(state["tried"][release]) >= 2
    said = (tmp_path / f"state/try-{release}.log").read_text()
    assert said.count("metal_ops works") == len(state["tried"][release]) and "GPU:0" in said
    for wheel in out.glob("pypi/*.whl"):
        assert wheel.name == f"tensorflow_metal_ops-{VERSION}-py3-none-{libraries.MANYLINUX}.whl"
        show = [sys.executable, "-m", "auditwheel", "show", "--json", wheel]
        seen = json.loads(subprocess.run(show, capture_output=True, text=True, check=True).stdout)
        # PyPI's tag names a glibc that is as new as the libraries need.
        numbers = [
            [int(n) for n in re.findall(r"_(\d+)_(\d+)_", tag)[0]]
            for tag in (seen["sym_tag"], libraries.MANYLINUX)
        ]
        assert numbers[0] <= numbers[1], seen["sym_tag"]
