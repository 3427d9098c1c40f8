"""The documentation: every code block of every page runs, every link leads somewhere."""

from __future__ import annotations

import atexit
import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from benchmarks import pages as bench_pages
from tests import forked
from tests.browser import chromium, untried
from tests.processes import ROOT, Process
from tools.reference import __main__ as reference
from tools.reference.site import MARKER

pytestmark = pytest.mark.docs

# Those that git has. Pages that `make docs` left in docs/ may be of another day.
PAGES = [path for path in ROOT.glob("docs/*.md") if path.name not in reference.PAGES]
PAGES += [
    ROOT / f"{name}.md"
    for name in ("examples/README", "README", "CONTRIBUTING", "CHANGELOG", "SECURITY")
]
PAGES.sort()
# Executed in a copy of the checkout, as it adds ops to it.
RUN_ELSEWHERE = {
    "write-a-metal-op.md": "tests/metal_kernels/test_guide.py",
    "torch.md": "tests/torch/test_page.py",  # in PyTorch's environment
    "build.md": "tests/packaging/test_build_page.py",
    "debug-a-shader.md": "tests/hosts/test_debugger.py",  # where gdb is
}
FENCE = re.compile(
    r"(?:^<!-- not run: ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$(?:\n\nIt prints:\n\n```text\n(.*?)^```$)?",
    re.M | re.S,
)
# A block that is nothing but a file taken in from examples/ is run by tests/test_examples.py.
EXAMPLE = re.compile(r'--8<-- "examples/(\w+\.py)"\n')
RUN = {"python": "python", "py": "python", "bash": "bash", "sh": "bash", "shell": "bash"}
MOST_NOT_RUN = 8  # in all pages together


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The generated pages, by the names that `make docs` gives them in docs/."""
    return {name: reference.render(name) for name in reference.PAGES}


# ---- code blocks ----------------------------------------------------------------------------------------------------


def blocks(text: str) -> list[tuple[str, str, str, str]]:
    """(reason why it is not run, language, code, expected output) of each fenced block."""
    return [tuple(part or "" for part in found) for found in FENCE.findall(text)]


@functools.cache
def _environment() -> dict[str, str]:
    drop = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "METAL_OPS_DEVICE")
    forked.Server.of_this_run()
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    forks = forked.python_for_shells(Path(tempfile.mkdtemp(prefix="metal_ops_python_")))
    atexit.register(shutil.rmtree, forks, ignore_errors=True)
    environment["PATH"] = f"{forks}:{Path(sys.executable).parent}:{environment['PATH']}"
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    return environment


def runs(text: str) -> list[tuple[str, str, str]]:
    """(language, code, expected output) of each program that is run; blocks of a language in a row are one program, as
    where they are pasted into one shell, or one Python."""
    found: list[tuple[str, str, str]] = []
    for reason, language, code, prints in blocks(text):
        kind = RUN.get(language)
        if kind is None or reason or EXAMPLE.fullmatch(code):
            continue
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + code, found[-1][2] + prints)
        else:
            found.append((kind, code, prints))
    return found


WITH_CODE = [path for path in PAGES if path.name not in RUN_ELSEWHERE and runs(path.read_text())]


def run_page(page: Path, folder: Path) -> None:
    for language, code, prints in runs(page.read_text()):
        if language == "python":
            status, out, err = Process("-c", code, cwd=folder).finish()
            said = out + err
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=folder,
                env=_environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            status, said = done.returncode, done.stdout
        assert status == 0, f"{code}\n{said}"
        for line in prints.splitlines():
            assert line in said, f"{code}\nprinted\n{said}"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with ThreadPoolExecutor(2) as pool:
        yield Running(pool)


class Running(dict):
    """Pages whose blocks run, each in a folder of its own."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool

    def __missing__(self, page: Path) -> Future:
        folder = Path(tempfile.mkdtemp(prefix=f"metal_ops_{page.stem}_"))
        self[page] = self.pool.submit(run_page, page, folder)
        self[page].add_done_callback(lambda _: shutil.rmtree(folder, ignore_errors=True))
        return self[page]


@pytest.mark.parametrize("index", range(len(WITH_CODE)), ids=[page.stem for page in WITH_CODE])
def test_code_blocks_run(index: int, running: Running):
    pages = [running[page] for page in WITH_CODE[index : index + 2]]  # the next one beside it
    pages[0].result()


def test_few_blocks_are_not_run():
    reasons = [
        reason
        for page in PAGES
        for reason, language, _, _ in blocks(page.read_text())
        if reason and language in RUN
    ]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) <= MOST_NOT_RUN, reasons


def text_of(page: Path, request: pytest.FixtureRequest) -> str:
    """The text that `make docs` would write now for a generated page."""
    if page.name in reference.PAGES and page.parent.name == "docs":
        return request.getfixturevalue("generated")[page.name]
    return page.read_text()


ALL_PAGES = [*PAGES, *(ROOT / "docs" / name for name in reference.PAGES)]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_every_block_is_seen(page: Path, request: pytest.FixtureRequest):
    """A fence that the expression above does not match would not be run."""
    text = text_of(page, request)
    assert page in PAGES or not runs(text)  # a generated page shows what other tests run
    fences = re.findall(r"^ *```(\w*)", text, re.M)
    seen = sum(2 + 2 * bool(prints) for _, _, _, prints in blocks(text))
    assert len(fences) == seen
    languages = {language for _, language, _, _ in blocks(text)}
    assert languages <= {*RUN, "text", "pycon", "yaml", "json", "diff"}, languages
    if "pycon" in languages:  # from docstrings, which tests/doctests.py runs
        assert page.name == "api.md"
    for example in EXAMPLE.findall(text):
        assert (ROOT / "examples" / example).exists()


def test_control_blocks():
    text = "<!-- not run: because so -->\n```bash\nfalse\n```\n\n```python\na = 1\n```\n\n```py\nprint(a)\n```\n"
    text += "\n```sh\necho b\n```\n\nIt prints:\n\n```text\nb\n```\n"
    text += "\n```bash\ncd /\n```\n\n```bash\npwd\n```\n\nIt prints:\n\n```text\n/\n```\n"
    assert runs(text) == [
        ("python", "a = 1\nprint(a)\n", ""),
        ("bash", "echo b\ncd /\npwd\n", "b\n/\n"),
    ]


def test_the_workflow_runs_what_the_guide_runs():
    commands = re.findall(
        r"run: (.*python -m metal_ops.*)", (ROOT / "docs/linux-ci.yml").read_text()
    )
    guide = "\n".join(code for _, code, _ in runs((ROOT / "docs/test-on-linux-ci.md").read_text()))
    assert len(commands) == 3
    for command in commands:
        assert f"\n{command}\n" in guide


def test_the_short_workflow_installs_what_builds_need():
    """Its packages are those that `metal_ops build` names where they are missing."""
    from metal_ops.build.flags import APT_PACKAGES

    (step,) = re.findall(
        r"--no-install-recommends (.*?)\n +python3 -m venv",
        (ROOT / "docs/test-on-linux-ci.md").read_text(),
        re.S,
    )
    packages = step.replace("\\\n", " ").split()
    assert packages == ["python3", "python3-venv", *APT_PACKAGES.split()]


# ---- links ----------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The ids that GitHub and MkDocs both give to headings."""
    plain = FENCE.sub("", text)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ +(.*)$", plain, re.M)
    }


def broken(page: Path, text: str, others: Callable[[Path], str]) -> list[str]:
    """Relative links of a page that lead nowhere. `others` are the texts of pages that links lead to."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() and path not in ALL_PAGES:
            found.append(link)
        elif anchor and path.suffix == ".md":
            named = anchors(text if path == page else others(path))
            # MkDocs drops dots, GitHub too.
            if anchor not in named and anchor.replace(".", "") not in named:
                found.append(link)
    return found


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path, request: pytest.FixtureRequest):
    assert broken(page, text_of(page, request), lambda path: text_of(path, request)) == []


def test_control_broken_links(request: pytest.FixtureRequest):
    page = ROOT / "docs" / "index.md"
    text = "[a](nerf.md) [b](none.md) [c](nerf.md#commands) [d](nerf.md#none) [e](https://x.y)"
    text += "[f](api.md#lstm) [g](api.md#none) [h](../api.md)"
    found = broken(page, text, lambda path: text_of(path, request))
    assert found == ["none.md", "nerf.md#none", "api.md#none", "../api.md"]


def test_a_reader_of_the_repository_is_told_how_to_make_pages():
    """Where pages that people write link to generated ones, the two first pages say how these are made."""
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        (told,) = [
            line for line in page.read_text().splitlines() if "repository does not hold" in line
        ]
        assert "`make docs`" in told


def test_diffs_apply():
    """A reader's change of the present sources by a diff of a page."""
    diffs = [
        (page.name, text)
        for page in PAGES
        for _, language, text, _ in blocks(page.read_text())
        if language == "diff"
    ]
    assert diffs
    for page, text in diffs:
        command = ["git", "apply", "--check", "-"]
        done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)
        assert done.returncode == 0, (page, done.stderr)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in ALL_PAGES:
        if page.parent.name == "docs":
            assert f": {page.name}\n" in navigation, page.name


# ---- the site -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, generated: dict[str, str]) -> Path:
    """The site, built as `make docs` does, of a copy of docs/ with the generated pages. --strict: a link or an anchor
    that leads nowhere ends the build."""
    scratch = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs", scratch / "docs")
    for name, text in generated.items():
        (scratch / "docs" / name).write_text(text)
    hook = ROOT / "tools" / "reference" / "site.py"
    (scratch / "mkdocs.yml").write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: [{hook}]\n")
    folder = tmp_path_factory.mktemp("site")
    program = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if not program.exists():
        untried("MkDocs is missing, which `make test` installs into .venv-docs")
    # A proxy that is not there stands for no network.
    environment = _environment() | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://[::1]:9"}
    command = [str(program), "build", "-q", "--strict", "-f", str(scratch / "mkdocs.yml")]
    command += ["-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("environment", [".venv", ".venv-docs"])
def test_what_is_pinned_installs_on_debian_12(environment: str):
    """Its Python is 3.11.2; a release that wants 3.11.5 installs on newer machines and nowhere else."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name: d.metadata['Requires-Python'] for d in m.distributions()}))"
    )
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        untried(f"{environment} is missing, which `make test` creates")
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    wanted = json.loads(done.stdout)
    assert len(wanted) > 10
    too_new = {name: w for name, w in wanted.items() if w and "3.11.2" not in SpecifierSet(w)}
    assert too_new == {}


def test_site_has_every_page(site: Path):
    for page in (page for page in ALL_PAGES if page.parent.name == "docs"):
        text = (site / f"{page.stem}.html").read_text()
        assert MARKER not in text and "--8<--" not in text
    workflow = (site / "test-on-linux-ci.html").read_text()
    assert "runs-on" in workflow and (site / "linux-ci.yml").exists()
    assert len(re.findall("<img ", (site / "index.html").read_text())) >= 2


def test_site_shows_every_benchmark(site: Path):
    text = html.unescape(re.sub("<[^>]+>", "", (site / "benchmarks.html").read_text()))
    results = bench_pages.groups()
    assert len(results) > 10
    for group, cases in results.items():
        for case in cases:
            assert case.title in text and case.run.heading in text, (group, case.title)
    for heading in (
        "TensorFlow's ops on the device, AVX2",
        "What each part of the NeRF recipe gives",
    ):
        assert heading in text


def test_site_is_read_without_a_network(site: Path):
    """In a browser, from the folder: nothing is asked of the network, and the search finds an op."""
    asked: list[str] = []
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.get_by_placeholder("Search").fill("distortion")
        page.locator(".md-search-result__link", has_text="distortion").first.wait_for(timeout=20000)
    assert asked and not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
