"""The workflows for GitHub: their shape, and their scripts, with docker, make, brew and gh played by small programs.

The report of a Mac is made of outputs written down after public logs of such machines; no Mac was there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "ci"))
import mac_report  # noqa: E402

pytestmark = pytest.mark.house

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = sorted((ROOT / "tools" / "ci").glob("*.sh"))


# ---- their shape ----------------------------------------------------------------------------------------------------
def mistakes(text: str) -> list[str]:
    """Steps with shell of their own, actions that are not pinned, and rights beyond reading."""
    found = [
        f"not pinned: {line.strip()}"
        for line in re.findall(r"uses:.*", text)
        if not re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line.strip())
    ]
    workflow: dict[Any, Any] = yaml.safe_load(text)
    if workflow.get("permissions") not in ({}, {"contents": "read"}):
        found.append(f"permissions: {workflow.get('permissions')}")
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            words = step.get("run", "").split()
            scripts = [word for word in words if "/" in word]
            if words and not (words[0] in scripts and all((ROOT / s).exists() for s in scripts)):
                found.append(f"{name}: shell of its own: {step['run']}")
            if "${{" in step.get("run", ""):
                found.append(f"{name}: an expression in shell: {step['run']}")
            if "checkout" in step.get("uses", "") and step["with"]["persist-credentials"]:
                found.append(f"{name}: keeps the token")
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_shape(path: Path):
    assert mistakes(path.read_text()) == []


def test_there_are_three():
    assert [path.stem for path in WORKFLOWS] == ["build", "mac", "release"]
    mac, release = (yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS[1:])
    assert mac["report"]["runs-on"] == "macos-15"
    # PyPI gives a token to this job alone, and nothing but GitHub's release is written to.
    rights = {name: job["permissions"] for name, job in release.items()}
    assert (
        rights["pypi"] == {"id-token": "write"} and release["pypi"]["environment"]["name"] == "pypi"
    )
    assert [
        name
        for name, right in rights.items()
        if "contents" in right and right["contents"] == "write"
    ] == ["github"]


@pytest.mark.parametrize(
    "before, after",
    [
        ("@08c6903cd8c0fde910a37f88322edcfb5dd907a8", "@v5"),
        ("contents: read", "contents: write"),
        ("tools/ci/debian.sh .ci/run", "make test"),
        ("tools/ci/debian.sh .ci/run", "tools/ci/none.sh"),
        ("tools/ci/debian.sh .ci/run", "tools/ci/debian.sh ${{ github.head_ref }}"),
        ("persist-credentials: false", "persist-credentials: true"),
    ],
)
def test_control_other_shapes_are_seen(before: str, after: str):
    text = WORKFLOWS[0].read_text()
    assert before in text and len(mistakes(text.replace(before, after))) == 1


# ---- their scripts --------------------------------------------------------------------------------------------------
class World:
    """A checkout with the scripts, and programs that note their calls."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkout = path, path / "checkout"
        (path / "bin").mkdir()
        for name in ("tools/ci", "tools/setup.sh", "python/metal_ops/_version.py", "CHANGELOG.md"):
            target = self.checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)

    def program(self, name: str, text: str = "") -> None:
        file = self.path / "bin" / name
        file.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.path}/calls"\n{text}\n')
        file.chmod(0o755)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "tools/ci" / script, *arguments],
            cwd=self.checkout,
            env={**os.environ, "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )

    @property
    def calls(self) -> list[str]:
        file = self.path / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def version() -> str:
    return re.findall(
        r'^__version__ = "(.*)"', (ROOT / "python/metal_ops/_version.py").read_text(), re.M
    )[0]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_can_be_called(script: Path):
    assert os.access(script, os.X_OK)
    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_debian(world: World):
    """The command runs behind the installation, with its arguments as they are."""
    world.program("docker", 'while [ "$1" != bash ]; do shift; done; exec "$@"')
    world.program("apt-get")
    done = world.run("debian.sh", "printf", "<%s>", "a b", "$c")
    assert (done.returncode, done.stdout) == (0, "<a b><$c>"), done.stderr
    assert world.calls[0].startswith("docker run --rm -v ") and " debian:12 " in world.calls[0]
    assert world.calls[1:] == ["apt-get update -qq", "apt-get install -y -qq git make"]
    assert world.run("debian.sh").returncode == 2
    world.program("apt-get", "exit 100")
    assert world.run("debian.sh", "true").returncode == 100


MAKES_WHEELS = (
    "mkdir -p dist/release && cd dist/release && echo x >a.whl && sha256sum a.whl >SHA256SUMS && "
    "echo p >index.html"
)


def test_release(world: World, version: str):
    world.program("make", MAKES_WHEELS)
    done = world.run("release.sh", f"v{version}", "https://example.org/d/")
    assert done.returncode == 0, done.stderr
    assert world.calls == ["make release ARGS=--url https://example.org/d/"]
    dist = world.checkout / "dist"
    assert sorted(path.name for path in (dist / "page").iterdir()) == ["SHA256SUMS", "index.html"]
    notes = (dist / "notes.md").read_text()
    assert notes.startswith("Install: ") and f"{version}+tf2." in notes
    assert "### hostmetal" in notes and "Unreleased" not in notes and f"[{version}]" not in notes


@pytest.mark.parametrize(
    "tag, change, says",
    [
        ("v9.9.9", "", r"the tag is v9\.9\.9, and .*_version\.py says"),
        ("", "", "usage"),
        (None, "heading", r"CHANGELOG\.md has no heading"),
        (None, "make", ""),
    ],
)
def test_release_refuses(world: World, version: str, tag: str | None, change: str, says: str):
    world.program("make", "exit 3" if change == "make" else "")
    if change == "heading":
        (world.checkout / "CHANGELOG.md").write_text("## [Unreleased]\n- a\n")
    done = world.run("release.sh", f"v{version}" if tag is None else tag, "https://example.org/")
    assert done.returncode != 0 and re.search(says, done.stderr)
    assert not (world.checkout / "dist/notes.md").exists()
    assert bool(world.calls) == (change == "make")


@pytest.mark.parametrize("there", [[], ["a.whl"]])
def test_publish(world: World, there: list[str]):
    """Files that a release on GitHub has already are not sent again."""
    subprocess.run(["bash", "-c", MAKES_WHEELS], cwd=world.checkout, check=True)
    (world.checkout / "dist/notes.md").write_text("notes")
    listed = "".join(f"echo {name};" for name in there)
    world.program(
        "gh",
        f'case "$*" in *--json*) {listed} true ;; "release view "*) exit {0 if there else 1} ;; esac',
    )
    done = world.run("publish.sh", "v1", "dist")
    assert done.returncode == 0, done.stderr
    sent = [call.split("/")[-1] for call in world.calls if " upload " in call]
    assert sent == [name for name in ("a.whl", "SHA256SUMS") if name not in there]
    assert sum(" create v1 " in call for call in world.calls) == (not there)


def test_publish_refuses_damaged_files(world: World):
    subprocess.run(["bash", "-c", MAKES_WHEELS], cwd=world.checkout, check=True)
    (world.checkout / "dist/release/a.whl").write_text("y")
    world.program("gh")
    assert world.run("publish.sh", "v1", "dist").returncode != 0 and world.calls == []


@pytest.mark.parametrize("code, where", [(0, "build/tf-2.21/build"), (2, "build"), (2, "")])
def test_mac(world: World, code: int, where: str):
    """make's exit code is kept, and the report comes out, wherever make has put it."""
    world.program("brew")
    writes = f"mkdir -p {where} && echo report >{where}/mac-report.md;" if where else ""
    world.program("make", f"{writes} exit {code}")
    (world.checkout / "build").mkdir()
    done = world.run("mac.sh", "--no-figures")
    assert done.returncode == code
    assert world.calls == [
        "brew install highway python@3.13",
        "make TF=2.21 PYTHON=3.13 mac-report ARGS=--no-figures",
    ]
    assert (world.checkout / "build/mac-report.md").exists() == bool(where)
    assert ("no report was written" in done.stderr) == (not where)


# ---- the report of a Mac --------------------------------------------------------------------------------------------
# The forms of these are those of public logs of hosted and of other Macs.
ANSWERS = {
    "model": "VirtualMac2,1\n",
    "processor": "Apple M1 (Virtual)\n",
    "cores": "3\n",
    "memory": "7516192768\n",
    "GPU": json.dumps(
        {
            "SPDisplaysDataType": [
                {
                    "_name": "kHW_AppleParavirtDeviceItem",
                    "sppci_model": "Apple Paravirtual device",
                    "spdisplays_mtlgpufamilysupport": "spdisplays_metal3",
                }
            ]
        }
    ),
    "macOS": "ProductName:\t\tmacOS\nProductVersion:\t\t15.5\nBuildVersion:\t\t24F74\n",
    "Xcode": "Xcode 16.4\nBuild version 16F6\n",
    "Metal compiler": "Apple metal version 32023.620 (metalfe-32023.620)\nTarget: air64-apple-darwin24.5.0\n",
    "commit": "",
    "METAL device": "a remark\nGPU:0 Apple Paravirtual device\n",
}
JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" tests="5">
<testcase classname="tests.test_a" name="test_one" time="0.1" />
<testcase classname="tests.test_a" name="test_two[x]" time="0.1">
<failure message="assert 1 == 2&#10;more">text</failure></testcase>
<testcase classname="tests.test_a" name="test_three" time="0.1"><error message="gone">text</error></testcase>
<testcase classname="tests.test_a" name="test_four" time="0.0">
<skipped type="pytest.skip" message="no">x</skipped></testcase>
<testcase classname="tests.test_a" name="test_five" time="0.1" /></testsuite></testsuites>"""


def test_the_machine():
    assert mac_report.machine(ANSWERS) == {
        "model": "VirtualMac2,1",
        "processor": "Apple M1 (Virtual)",
        "cores": "3",
        "memory": "7 GiB",
        "GPU": "Apple Paravirtual device, metal3",
        "macOS": "15.5 (24F74)",
        "Xcode": "Xcode 16.4",
        "Metal compiler": "Apple metal version 32023.620 (metalfe-32023.620)",
        "commit": "unknown",
        "METAL device": "GPU:0 Apple Paravirtual device",
    }
    assert set(ANSWERS) == set(mac_report.QUESTIONS)
    two = {"SPDisplaysDataType": [{"_name": "A", "sppci_cores": "38"}, {"sppci_model": "B"}]}
    assert mac_report.gpu(json.dumps(two)) == "A, 38 cores; B"


@pytest.mark.parametrize(
    "text", ["", "no such thing", "{}", '{"SPDisplaysDataType": [{}]}', "[1]", "a: b: c"]
)
def test_answers_of_another_form_are_unknown(text: str):
    found = mac_report.machine(dict.fromkeys(("GPU", "macOS", "memory"), text))
    assert found == dict.fromkeys(("GPU", "macOS", "memory"), "unknown")


def test_results():
    assert mac_report.read_results(JUNIT) == {
        "passed": 2,
        "failed": 1,
        "error": 1,
        "skipped": 1,
        "failures": [
            ["tests.test_a::test_two[x]", "assert 1 == 2"],
            ["tests.test_a::test_three", "gone"],
        ],
    }


def row(passed: int, note: str = "", failures: int = 0) -> dict[str, Any]:
    named = [[f"t::test_{i}", "wrong"] for i in range(failures)]
    counts = {"passed": passed, "failed": failures, "error": 0, "skipped": 0}
    return counts | {"failures": named, "note": note, "seconds": 1.5}


def test_the_page():
    report = {
        "machine": mac_report.machine(ANSWERS),
        "versions": {"python": "3.13.0 arm64"},
        "suites": {
            "ops": {"tests/a.py": row(3), "tests/b.py": row(4)},
            "device": {
                "tests/c.py": row(0, "did not end within 600 s"),
                "tests/d.py": row(1, "", 60),
            },
        },
        "figures": "a table",
    }
    page = mac_report.render(report)
    assert "its figures are no Mac's" in page
    assert "| ops | 2 | 7 | 0 | 0 | 0 | 3 | all passed |" in page
    assert "| device | 2 | 1 | 60 | 0 | 0 | 3 | **not all passed** |" in page
    assert "- tests/c.py: did not end within 600 s\n- `t::test_0`: wrong\n" in page
    assert "- and 21 more, which mac-report.json has\n" in page and "```text\na table\n```" in page
    assert len(page.splitlines()) < 85
    report["machine"] = {"GPU": "Apple M2 Max"}
    assert "virtual machine" not in mac_report.render(report)


def test_a_suite_is_fine_only_with_tests():
    assert mac_report.fine({"a": row(1), "b": row(0)})
    assert not mac_report.fine({}) and not mac_report.fine({"a": row(0)})
    assert not mac_report.fine({"a": row(2, "ended with exit code -11")})
    assert not mac_report.fine({"a": row(2, "", 1)})


@pytest.mark.parametrize(
    "body, expected",
    [
        ('echo \'<testsuites><testcase name="a"/></testsuites>\' >"$out"', (1, "")),
        ("kill -SEGV $$", (0, "ended with exit code -11")),
        ("sleep 60", (0, "did not end within 1 s")),
        ("exit 4", (0, "ended with exit code 4")),
    ],
)
def test_a_file_that_crashes_or_hangs_is_told(
    body: str, expected: tuple[int, str], tmp_path, monkeypatch
):
    """The page has a row for it, and the other files are run."""
    monkeypatch.setattr(mac_report, "ROOT", tmp_path)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/bash\nfor word; do out=${{word#--junitxml=}}; done\n{body}\n")
    python.chmod(0o755)
    found = mac_report.run_file("tests/a.py", "ops", 1, str(python))
    assert (found["passed"], found["note"]) == expected
    assert found["seconds"] < 30


def test_the_report_is_refused_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr(mac_report.platform, "system", lambda: "Linux")
    monkeypatch.setattr(sys, "argv", ["mac_report.py"])
    with pytest.raises(SystemExit) as ended:
        mac_report.main()
    assert ended.value.code == 2 and "this is Linux" in capsys.readouterr().err


def test_a_report_from_begin_to_end(tmp_path, monkeypatch):
    """Both files, of a Mac that is played: the answers are those above, and one suite has no failure."""
    monkeypatch.setattr(mac_report.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(mac_report, "ask", lambda questions: ANSWERS)
    monkeypatch.setattr(mac_report, "run_suite", lambda name, limit: {"tests/a.py": row(2)})
    words = ["mac_report.py", "--output", str(tmp_path), "--suites", "ops", "--no-figures"]
    monkeypatch.setattr(sys, "argv", words)
    assert mac_report.main() == 0
    written = json.loads((tmp_path / "mac-report.json").read_text())
    assert mac_report.render(written) == (tmp_path / "mac-report.md").read_text()
    assert set(written) == {"machine", "versions", "suites", "figures"}


def test_suites_are_markers():
    text = (ROOT / "pyproject.toml").read_text()
    for marker in mac_report.SUITES.values():
        assert all(f'\n  "{name}' in text for name in marker.split(" and not "))


def test_pins_are_the_same_everywhere():
    """One commit for each action and version."""
    found = {line for path in WORKFLOWS for line in re.findall(r"uses: (.*)", path.read_text())}
    assert len({line.split("@")[0] for line in found}) == len(found) == 6
