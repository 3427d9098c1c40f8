"""The documentation: generated pages are up to date, every code block runs, every link leads somewhere."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.browser import chromium, untried
from tests.processes import ROOT, Process
from tools.reference import __main__ as reference
from tools.reference.__main__ import DEVICE_ERRORS, ERRORS, ask_device, pages
from tools.reference.site import MARKER, RESULTS

pytestmark = pytest.mark.docs

PAGES = [*ROOT.glob("docs/*.md"), ROOT / "examples" / "README.md"]
PAGES = sorted([*PAGES, *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))])
# Executed in a copy of the checkout, as it adds ops to it.
RUN_ELSEWHERE = {
    "write-a-metal-op.md": "tests/metal_kernels/test_guide.py",
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


# ---- generated ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    return pages()


@pytest.mark.parametrize(
    "name",
    ["raw_ops.pyi", "api", "ops", "support", "errors", "fusions", "examples", "metal-language"],
)
def test_generated_files_are_up_to_date(generated: dict[Path, str], name: str):
    (path,) = [path for path in generated if name in (path.name, path.stem)]
    assert path.read_text() == generated[path], (
        f"{path} is not up to date; run `make docs-reference`"
    )


def test_errors_are_as_measured():
    """The same ops, dtypes and devices; each figure within a factor of two, as machines differ in their SIMD."""
    committed, measured = (flat(f) for f in (json.loads(ERRORS.read_text()), ask_device("errors")))
    assert set(committed) == set(measured), "run `make docs-reference ARGS=--measure`"
    off = {
        key: (committed[key], measured[key])
        for key in committed
        if not agree(committed[key], measured[key], may_part(*key))
    }
    assert not off, f"committed and measured: {off}"


def test_an_op_is_measured_alone(monkeypatch: pytest.MonkeyPatch, capsys):
    """Its figures and no others change; of a name without a case it is said, and nothing is written."""
    committed = json.loads(ERRORS.read_text())
    assert list(ask_device("errors", "ZeroOut")) == ["ZeroOut"]

    def measured(*arguments: str) -> dict:
        assert arguments == ("errors", "ZeroOut", "NoOp")
        return {"ZeroOut": {}}

    monkeypatch.setattr(reference, "ask_device", measured)
    monkeypatch.setattr(sys, "argv", ["tools.reference", "--measure", "ZeroOut", "NoOp"])
    with pytest.raises(SystemExit):
        reference.main()
    assert "no case in tools/reference/error_cases/ is of NoOp" in capsys.readouterr().err
    assert json.loads(ERRORS.read_text()) == committed


# Where the devices differ by a rounding on one machine, they may not on another.
UNIT = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Atomics add these on the device, in another order from run to run: some roundings (2.4e-7 seen).
IN_ANY_ORDER = {"HashEncodeGrad", "HashEncodeJvpGrad"}
# The state is rounded at every step (1.6 roundings seen on a processor without AVX-512).
OF_STEPS = {"RecurrentSequence"}


def may_part(op: str, dtype: str, column: str) -> float:
    """How far apart the devices may be whatever was measured before."""
    if column != "apart":
        return 0.0
    if op in IN_ANY_ORDER and dtype == "float32":
        return 4 * UNIT[dtype]
    return UNIT[dtype] * (2 if op in OF_STEPS and dtype == "bfloat16" else 1)


def flat(figures: dict) -> dict[tuple[str, str, str], float]:
    return {
        (o, t, d): e for o, ts in figures.items() for t, ds in ts.items() for d, e in ds.items()
    }


def agree(a: float, b: float, floor: float = 0.0) -> bool:
    return a == b or max(a, b) <= floor or (min(a, b) > 0 and max(a, b) <= 2 * min(a, b))


def test_control_agree():
    assert agree(0, 0) and agree(1e-7, 2e-7) and agree(2e-7, 1e-7) and agree(0, 1e-7, 1.2e-7)
    assert not agree(0, 1e-7) and not agree(1e-7, 2.1e-7) and not agree(0, 1e-6, 1.2e-7)


def test_every_op_is_measured(generated: dict[Path, str]):
    """In each float dtype that a device has kernels for; what counts or packs integers has no error."""
    figures = json.loads(ERRORS.read_text())
    rows = re.findall(
        r"^\| \[(\w+)\]\(\S+\) \| (\w*) ?\| (\w*) ?\| (\w*) ?\|",
        generated[ROOT / "docs" / "support.md"],
        re.M,
    )
    assert {op for op, *_ in rows} >= set(figures) and len(figures) > 20
    for op, *cells in rows:
        wanted = {dtype for dtype, cell in zip(UNIT, cells, strict=True) if cell == "both"}
        assert set(figures.get(op, {})) == wanted, (
            f"{op}: tools/reference/error_cases/ has no case of it for some dtype"
        )


def test_control_drift_is_seen(generated: dict[Path, str]):
    """Each page depends on what it is made of."""
    from tools.reference import errors, support

    figures, of_device = (json.loads(path.read_text()) for path in (ERRORS, DEVICE_ERRORS))
    page = generated[ROOT / "docs" / "errors.md"]
    assert errors.render(figures, of_device) == page
    of_device["MatMul"]["float32"]["GPU"] *= 3
    assert errors.render(figures, of_device) != page
    figures["HashEncode"]["float32"]["CPU"] *= 3
    assert errors.render(figures, json.loads(DEVICE_ERRORS.read_text())) != page
    nothing = {"ours": {"ZeroOut": {"CPU": ["float32"], "GPU": []}}, "stock": {}}
    assert "| CPU |" in support.render(nothing) and "| both |" not in support.render(nothing)
    for word in ("HashEncodeJvpPointGrad", "SoftmaxFocalLoss", "MetalFusedConv2D"):
        for page in ("ops.md", "support.md"):
            assert word in generated[ROOT / "docs" / page]
    assert "def hash_encode(" in generated[ROOT / "python" / "metal_ops" / "raw_ops.pyi"]


def test_stub_types(tmp_path: Path):
    """A type checker sees the raw ops: their names, their choices, their outputs."""
    user = tmp_path / "user.py"
    user.write_text(
        "from metal_ops import raw_ops\n"
        "raw_ops.hash_encode(1, 2, 3, log2_per_level_scale=1.0, resolution_coarsest=16)\n"
        "raw_ops.hash_encode(1, 2, 3, log2_per_level_scale='1', resolution_coarsest=16)\n"
        "raw_ops.packed_scan(1, 2, reduction='mean')\n"
        "raw_ops.hash_decode(1)\n"
        "raw_ops.volume_render(1, 2, 3, 4, 5, 6).rgb\n"
        "raw_ops.volume_render(1, 2, 3, 4, 5, 6).colour\n"
    )
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    options.append(f"--cache-dir={tmp_path}")  # that of another run may be of another state
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(user)], capture_output=True, text=True
    )
    lines = [int(number) for number in re.findall(r"user\.py:(\d+): error", done.stdout)]
    assert lines == [3, 4, 5, 7], done.stdout


def test_stub_is_that_of_the_library(tmp_path: Path):
    """By mypy's own comparison of a stub with the module: names, arguments, their order and defaults."""
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nignore_missing_imports = True\ncache_dir = {tmp_path}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy.stubtest",
            "metal_ops.raw_ops",
            f"--mypy-config-file={config}",
        ],
        capture_output=True,
        text=True,
        env=_environment(),
    )
    assert done.returncode == 0, done.stdout


# ---- code blocks ----------------------------------------------------------------------------------------------------


def blocks(text: str) -> list[tuple[str, str, str, str]]:
    """(reason why it is not run, language, code, what it prints) of each fenced block."""
    return [tuple(part or "" for part in found) for found in FENCE.findall(text)]


@functools.cache
def _environment() -> dict[str, str]:
    drop = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "METAL_OPS_DEVICE")
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    return environment


def runs(text: str) -> list[tuple[str, str, str]]:
    """(language, code, what it prints) of what is run; Python blocks in a row are one program."""
    found: list[tuple[str, str, str]] = []
    for reason, language, code, prints in blocks(text):
        kind = RUN.get(language)
        if kind is None or reason or EXAMPLE.fullmatch(code):
            continue
        if kind == "python" and found and found[-1][0] == "python":
            found[-1] = ("python", found[-1][1] + code, found[-1][2] + prints)
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
                timeout=120,
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_seen(page: Path):
    """A fence that the expression above does not match would not be run."""
    text = page.read_text()
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
    assert runs(text) == [("python", "a = 1\nprint(a)\n", ""), ("bash", "echo b\n", "b\n")]


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


def broken(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            found.append(link)
        elif anchor and path.suffix == ".md":
            named = anchors(path.read_text())
            # MkDocs drops dots, GitHub too.
            if anchor not in named and anchor.replace(".", "") not in named:
                found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path):
    assert broken(page, page.read_text()) == []


def test_control_broken_links():
    page = ROOT / "docs" / "index.md"
    text = "[a](nerf.md) [b](none.md) [c](nerf.md#commands) [d](nerf.md#none) [e](https://x.y)"
    assert broken(page, text) == ["none.md", "nerf.md#none"]


def test_diffs_apply():
    """A diff of a page is what a reader would do to the present sources."""
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
    for page in ROOT.glob("docs/*.md"):
        assert f": {page.name}\n" in navigation, page.name


# ---- the site -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. --strict: a link or an anchor that leads nowhere ends the build."""
    folder = tmp_path_factory.mktemp("site")
    program = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if not program.exists():
        untried("MkDocs is missing, which `make test` installs into .venv-docs")
    # A proxy that is not there stands for no network.
    environment = _environment() | {"NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://[::1]:9"}
    command = [str(program), "build", "-q", "--strict", "-f", "mkdocs.yml", "-d", str(folder)]
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
    for page in ROOT.glob("docs/*.md"):
        text = (site / f"{page.stem}.html").read_text()
        assert MARKER not in text and "--8<--" not in text
    workflow = (site / "test-on-linux-ci.html").read_text()
    assert "runs-on" in workflow and (site / "linux-ci.yml").exists()
    assert len(re.findall("<img ", (site / "index.html").read_text())) >= 2


def test_site_shows_every_benchmark(site: Path):
    text = html.unescape(re.sub("<[^>]+>", "", (site / "benchmarks.html").read_text()))
    results = sorted(RESULTS.glob("*.md"))
    assert results
    for path in results:
        headings = re.findall(r"^## (.*)$", path.read_text(), re.M)
        assert headings and all(heading in text for heading in headings), path


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
