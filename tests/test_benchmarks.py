"""Recorded pages say when and on what they were measured, the overview who is who, and only --record writes them."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import (
    device_layers,
    device_ops,
    machine,
    op_calls,
    op_worker,
    pages,
    peers,
    provenance,
    registry,
)
from benchmarks.cases import quantized, rows
from metal_ops import raw_ops
from tests.processes import ROOT
from tools.reference import records

pytestmark = pytest.mark.house

MACHINE = {"cpu": "a processor", "cores": "2"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pages are written into."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def site() -> ModuleType:
    """The module that MkDocs runs, a copy of its own."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools/reference/site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def case(**times: float) -> registry.Case:
    """Contenders that take the milliseconds they say."""
    rows = [registry.Contender(name, lambda ms=ms: ms) for name, ms in times.items()]
    return registry.Case("softshrink", "softshrink-test", "A title", lambda _: rows, units=1e6)


def measure(
    monkeypatch: pytest.MonkeyPatch, chosen: registry.Case, *arguments: str, failed: int = 0
) -> None:
    monkeypatch.setattr(program, "all_cases", lambda: [chosen])
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    assert program.main() == failed


def test_processor_time_is_that_of_the_work_alone():
    """Sleep is none, and the title says so."""
    assert registry.timed(lambda: time.sleep(0.05), time.process_time)() < 25
    assert registry.timed(lambda: time.sleep(0.05))() > 45
    titles = [case.title for case in registry.all_cases() if case.group == "attention"]
    assert len(titles) == 4 and all(title.endswith(", processor time") for title in titles)


def recorded(results: Path) -> list[pages.Recorded]:
    return pages.read(results / "softshrink.md")


def test_a_page_names_commit_date_machine_and_load(results, monkeypatch):
    measure(monkeypatch, case(metal_ops=2.0), "--record")
    (found,) = recorded(results)
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    assert head and found.run.commit.startswith(head)
    assert len(found.run.date.split("-")) == 3 and float(found.load) >= 0
    assert dict(found.run.machine) == machine.describe()
    assert (
        f"## At {found.run.commit}, {found.run.date}\n" in (results / "softshrink.md").read_text()
    )


def test_only_record_writes(results, monkeypatch, capsys):
    measure(monkeypatch, case(metal_ops=2.0), "--record")
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    assert set(before) == {"softshrink.md", "README.md"}
    for arguments in ([], ["--quick"]):
        measure(monkeypatch, case(metal_ops=1.0), *arguments)
    with pytest.raises(SystemExit):
        measure(monkeypatch, case(metal_ops=1.0), "--record", "--quick")
    assert "--record wants all rounds" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in results.iterdir()} == before


def test_a_case_is_put_among_the_others_of_its_group(results, monkeypatch):
    """Those of other runs stay as they are, in the order of registration; what is registered no more goes."""
    cases = [dataclasses.replace(case(metal_ops=2.0), name=n, title=n) for n in ("b", "a", "gone")]
    now = {"commit": "abc", "date": "2026-01-02", "load": 0.5}
    monkeypatch.setattr(program.provenance, "now", lambda group: now)

    def run(chosen: str, known: list[registry.Case]) -> None:
        monkeypatch.setattr(program, "all_cases", lambda: known)
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--record", "--filter", chosen])
        assert program.main() == 0

    run("", cases)
    now |= {"commit": "def"}
    run("a", cases[:2])
    assert [(one.title, one.run.commit) for one in recorded(results)] == [
        ("b", "abc"),
        ("a", "def"),
    ]


def test_what_takes_minutes_is_measured_once(results, monkeypatch):
    calls: dict[str, int] = {"metal_ops": 0, "slow": 0}

    def contender(name: str, **more: Any) -> registry.Contender:
        def time_ms() -> float:
            calls[name] += 1
            return 1.0

        return registry.Contender(name, time_ms, **more)

    rows = [contender("metal_ops"), contender("slow", once=True)]
    chosen = dataclasses.replace(case(), contenders=lambda _: rows)
    measure(monkeypatch, chosen, "--record")
    assert [row.runs for row in recorded(results)[0].rows] == ["15", "1"]
    assert calls == {"metal_ops": 17, "slow": 1}


def test_rows_have_a_kernel_and_a_formula_by_hand(monkeypatch):
    """A table may be looked up without its arrays: weights of 14336 rows take a second."""
    monkeypatch.setattr(rows, "blocks", lambda _, rows, width: np.zeros((rows, 18), np.uint8))
    monkeypatch.setattr(rows, "normal", lambda *shape: np.zeros(shape, np.float32))
    kernels = set(re.findall(r'^INSTANCE\("(\w+)"', rows.SHADER.read_text(), re.M))
    loops = (ROOT / "benchmarks/by_hand/rows.cc").read_text()
    named = set()
    for name, _, limit, make in rows.CASES:
        work = make()
        assert re.search(rf"^void {work.loop}\(", loops, re.M) and limit in (2, 3), name
        assert work.output not in work.buffers and set(work.inputs) < set(work.buffers), name
        named.add(work.kernel)
    assert named == kernels


def test_rows_of_a_library_that_is_missing_say_so(results, monkeypatch):
    def start(*arguments: Any, **environment: str) -> Any:
        raise RuntimeError("the worker | ended")

    monkeypatch.setattr(peers, "start", start)
    chosen = dataclasses.replace(
        case(),
        contenders=lambda context: [
            registry.Contender("metal_ops", lambda: 2.0),
            *quantized.of_peers(context, ("int4",)),
        ],
    )
    measure(monkeypatch, chosen, "--peers", "--record", failed=1)
    ours, torch = recorded(results)[0].rows
    assert torch.contender == f"PyTorch, {quantized.KERNELS['int4']}"
    assert (torch.median, torch.note) == (pages.FAILED, "RuntimeError: the worker | ended")
    assert (ours.median, ours.ratio, ours.quartiles) == ("2.00", "1.00", "2.00 - 2.00")
    measure(monkeypatch, chosen, "--record")
    assert len(recorded(results)[0].rows) == 1


def test_every_op_has_a_case():
    named = {found.name for found in registry.all_cases() if found.group == "ops"}
    # These two have the cases of metal_kernel.
    others = {"metal_kernel", "metal_kernel_by_handle"}
    assert named == {f"ops-{name}" for name in set(dir(raw_ops)) - others}
    assert len(named) > 30


@pytest.mark.parametrize("name", op_calls.names())
def test_an_ops_call_is_right_and_grows(name):
    """TensorFlow and the op take it, and twice the rows are about twice the bytes."""
    read = {}
    for n in (1 << 12, 1 << 13):
        call = op_worker.Call(name, op_calls.make(name, n), "CPU:0")
        read[n] = sum(call.traffic())
        assert call.said()
    # The hash encoding's table, of 2 MB, is as large as before.
    least = 1.1 if name.startswith("hash_encode") else 1.6
    assert least < read[1 << 13] / read[1 << 12] <= 2.1


def test_grown_calls_go_together():
    """Times ascend along rays, and intervals that end after the start still do."""
    values = op_calls.make("volume_render", 1000)
    rays = values["packed_info"]
    assert rays.tolist()[-1] == [960, 40] and rays[:, 1].sum() == 1000
    starts, ends = values["t_starts"], values["t_ends"]
    np.testing.assert_allclose(ends - starts, 1, atol=1e-5)
    for begin, count in rays:
        assert np.all(np.diff(starts[begin : begin + count]) >= 0)
    assert len(np.unique(values["rgbs"])) > 2500
    assert op_calls.make("volume_render_grad", 1000)["rgb_gradient"].shape == (len(rays), 3)


def test_a_call_that_does_not_grow_says_where_to_state_one(monkeypatch):
    monkeypatch.setattr(op_calls.calls, "tables_of", lambda _: ({}, {"my_op": {"x": np.ones(3)}}))
    with pytest.raises(ValueError, match=r"my_op: .* State a call of n rows .* benchmarks/ops"):
        op_calls.make("my_op", 100)


def test_recorded_pages_are_what_is_read_of_them():
    """Each row: nothing in a page is there that the program does not know, so that the next record loses nothing."""
    groups = pages.groups()
    assert len(groups) >= 15
    titles: dict[str, list[str]] = {}
    for found in registry.all_cases():
        titles.setdefault(found.group, []).append(found.title)
    for group, cases in groups.items():
        text = (pages.RESULTS / f"{group}.md").read_text()
        assert pages.render(group, cases) == text, group
        assert {one.title for one in cases} <= set(titles[group]), group
        for one in cases:
            assert {"cpu", "cores", "simd", "system"} <= set(dict(one.run.machine)), one.title
            assert one.rows[0].ratio == "1.00" and float(one.rows[0].median) > 0, one.title
            assert all(row.runs and row.quartiles for row in one.rows if row.median != pages.FAILED)
    assert (pages.RESULTS / pages.OVERVIEW).read_text() == pages.overview()
    assert "llama.cpp" not in "".join(path.read_text() for path in pages.RESULTS.glob("*.md"))


NUMBER = r"(?<![\w.^])\d+(?:\.\d+)?(?![\w^]|\.\d)"
WITH_UNIT = re.compile(
    rf"{NUMBER}(?:,? (?:to|and|or) {NUMBER}|, {NUMBER})* (?=(?:ms|µs|TFLOP/s|dB)\b)"
)
RECORDED_PAGE = re.compile(r"benchmarks/results/([\w/]+\.\w+)")


def unrecorded(text: str, results: Path) -> tuple[int, list[str]]:
    """For the paragraphs of a page that name a recorded one: how many figures they and their tables have, and which
    are not there, rounded as they are shown. Milliseconds may be microseconds there."""
    parts = re.split(r"\n\n+", text)
    count, missing = 0, []
    for part, behind in zip(parts, [*parts[1:], ""], strict=True):
        named = RECORDED_PAGE.findall(part)
        if not named:
            continue
        shown = " ".join(found[0] for found in WITH_UNIT.finditer(part))
        if behind.startswith("|"):
            shown += re.sub(r"^\|[^|]*\|", "", behind, flags=re.M)  # less what names the rows
        texts = " ".join((results / name).read_text() for name in named)
        there = [float(number) for number in re.findall(NUMBER, texts)]
        for figure in re.findall(NUMBER, shown):
            digits = len(figure.partition(".")[2])
            count += 1
            if not any(f"{n / k:.{digits}f}" == figure for n in there for k in (1, 1000)):
                missing.append(figure)
    return count, missing


def test_figures_of_pages_are_recorded_ones():
    count = 0
    for page in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]:
        found, missing = unrecorded(page.read_text(), pages.RESULTS)
        assert missing == [], f"{page}: the recorded pages that it names have no {missing}"
        count += found
    assert count > 40
    # Where the device loses, in words.
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name, sentence in (
        ("device_ops", "{1} of {0} ops"),
        ("device_ops_avx2", "it is {1} of {0}"),
    ):
        page = (pages.RESULTS / f"{name}.md").read_text()
        counts = re.findall(r"^(\d+) ops, (\d+) of them slower", page, re.M)[0]
        assert sentence.format(*counts) in text, name


def test_control_other_figures_are_seen(tmp_path):
    (tmp_path / "x.md").write_text("| a | 21.46 | 2048 |\n")
    text = "It takes 21.5 and 0.021 ms or 22 ms: `benchmarks/results/x.md`.\n\n| 4 rows | 2.05 | 3.1 |\n"
    assert unrecorded(text, tmp_path) == (5, ["22", "3.1"])
    assert unrecorded("It takes 3 ms.\n\n| 4 rows | 3.1 |\n", tmp_path) == (0, [])


def test_a_line_that_is_no_row_is_named(tmp_path):
    page = tmp_path / "x.md"
    page.write_text("# Benchmark: x\n\n## At abc, 2026-01-02\n\n| a | b |\n")
    with pytest.raises(ValueError, match=r"x\.md:5: expected a row of 9 cells"):
        pages.read(page)


def test_every_group_names_the_sources_of_its_figures():
    groups = {found.group for found in registry.all_cases()}
    groups.add("device_ops")  # has a program of its own
    assert set(provenance.SOURCES) < groups
    for group in groups:
        missing = [folder for folder in provenance.sources(group) if not (ROOT / folder).is_dir()]
        assert missing == [], group


def test_every_op_of_the_device_has_arguments_to_be_measured_with():
    """TensorFlow's CPU takes them; a small square stands for the one that is measured."""
    rows = records.read(records.DTYPES)
    ops = {op for op in rows if "CPU" not in rows[op] and op in dir(device_ops.tf.raw_ops)}
    assert len(ops) > 200
    without = device_ops.without_cpu_kernel(ops)
    assert without <= {"CTCLossV2", "CudnnRNNBackpropV3", "CudnnRNNV3", "MaxPoolGradGradWithArgmax"}
    for op in sorted(op for op in ops - without if not device_ops.only_in_graphs(op)):
        given = device_ops.arguments(op, device_ops.chosen_types(op, []), side=16)
        keep: list[Any] = []
        getattr(device_ops.tf.raw_ops, op)(**device_ops.placed(given, "CPU:0", set(), keep))


def test_every_layer_has_arguments_of_its_size():
    """TensorFlow's CPU takes them, and the result is as large as the layer's."""
    found = {}
    for layer, op, sizes in device_layers.layers(batch=1, cell_batch=2):
        types = device_ops.chosen_types(op, [])
        given = device_ops.arguments(op, types, given=sizes())
        results = getattr(device_ops.tf.raw_ops, op)(**device_ops.placed(given, "CPU:0", set(), []))
        found[layer, op] = results[0] if isinstance(results, tuple) else results
    assert len(found) == len(list(device_layers.layers()))  # no row has the name of another
    shapes = {row: tuple(result.shape) for row, result in found.items()}
    assert shapes["ResNet-50, 7 x 7 / 2 of 3", "Conv2D"] == (1, 112, 112, 64)
    assert shapes["ResNet-50, 3 x 3 / 2", "MaxPool"] == (1, 56, 56, 64)
    assert shapes["ResNet-50, 1 x 1 of 2048", "Conv2DBackpropFilter"] == (1, 1, 2048, 512)
    assert shapes["ResNet-50, norm of 1024", "FusedBatchNormGradV3"] == (1, 14, 14, 1024)
    assert shapes["BERT-base, in", "MatMul"] == (512, 3072)
    assert shapes["BERT-base, attention", "Softmax"] == (12, 512, 512)
    assert shapes["LSTM-512, 16 steps", "BlockLSTMV2"] == (16, 2, 512)


def test_layers_have_a_table_of_their_own():
    measured = {"commit": "abc", "date": "2026-01-02", "load": 0.5}
    rows, of_layers = [("Add", "float32", 2.0, 1.0)], [("a net's", "Conv2D", 1.0, 4.0)]
    failed = {"MatMul (a net's)": "ValueError: no"}
    text = device_ops.markdown(rows, failed, measured, of_layers)
    ops, layers = text.split("## At the sizes of layers")
    assert "1 ops, 0 of them slower" in ops and "Conv2D" not in ops
    assert "| a net's | Conv2D | 1.000 | 4.000 | 4.00 |" in layers
    assert "- MatMul (a net's): ValueError: no" in layers
    assert "At the sizes of layers" not in device_ops.markdown(rows, {}, measured)


def test_other_vectors_have_a_table_of_their_own():
    assert device_ops.named_by({"simd": "AVX-512"}) == ""
    assert device_ops.named_by({"simd": "AVX2"}) == "_avx2"


def test_a_part_of_the_ops_is_not_recorded(monkeypatch, capsys):
    for part in (["--quick"], ["--filter", "Add"]):
        monkeypatch.setattr(sys, "argv", ["benchmarks.device_ops", "--record", *part])
        with pytest.raises(SystemExit):
            device_ops.main()
        assert "--record wants every op and all rounds" in capsys.readouterr().err


def test_losing_ops_come_first_and_are_counted():
    rows = [("Add", "float32", 2.0, 1.0), ("Sin", "float32", 1.0, 5.0), ("Mul", "int8", 1.0, 1.2)]
    measured = {"commit": "abc", "date": "2026-01-02", "load": 0.5}
    text = device_ops.markdown(rows, {"Where": "ValueError: no"}, measured)
    assert "3 ops, 1 of them slower than 1.5 times" in text
    found = [line.split(" | ")[0] for line in text.splitlines() if " | " in line]
    assert found[-4:-2] == ["| Sin", "| Mul"]
    assert text.endswith(
        "| 0.5 to 0.8, 1 ops | Add |\n\nNot measured:\n\n- Where: ValueError: no\n"
    )
    assert "| Sin | float32 | 1.000 | 5.000 | 5.00 |" in text and "- Where: ValueError: no" in text


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A history: a kernel, and a file that is none."""

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.com"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", text)

    git("init", "-q")
    for name, text in (
        ("kernels/softshrink/x.cc", "first"),
        ("docs/page.md", "words"),
        ("kernels/hash_encode/x.cc", "another family"),
        ("kernels/softshrink/x.cc", "faster"),
        ("kernels/msl/x.h", "shared"),
    ):
        commit(name, text)
    return tmp_path


@pytest.mark.parametrize(
    "back, said",
    [
        (4, "Its kernels have changed 2 times since, on "),
        (1, "Its kernels have changed once since, on "),
        (0, ""),
    ],
)
def test_changes_of_kernels_after_a_measurement(repository, back, said):
    at = provenance.git("rev-parse", "--short=12", f"HEAD~{back}", root=repository)
    for commit in (at, f"{at} and changes that were not committed"):
        found = provenance.changes_since("softshrink", commit, repository)
        assert found.startswith(said) and bool(found) == bool(said)


def test_a_commit_that_is_not_there(repository):
    assert "cannot be told" in provenance.changes_since("softshrink", "0123456789ab", repository)
    assert provenance.changes_since("softshrink", "", repository) == ""


ROWS = {"metal_ops": 2.0, "the machine's memory": 0.1, "an empty tf.function": 0.2}
OURS_TOO = {"metal_ops, Metal device": 0.5, "Conv2D, BiasAdd, AddV2, Relu": 0.4, "plain C++": 0.3}


def page(site: ModuleType, folder: Path, rows: dict[str, float]) -> str:
    shown = tuple(
        pages.Row(name, f"{ms:.2f}", ratio=f"{ms / 2:.2f}", runs="15") for name, ms in rows.items()
    )
    run = pages.Run("0123456789ab", "2026-01-01", tuple(MACHINE.items()))
    site.pages.RESULTS = folder
    site.pages.record("softshrink", pages.Recorded("A title", run, "0.1", shown), ["A title"])
    return site.on_page_markdown(f"{site.OVERVIEW}\n\n{site.MARKER}")


def test_overview_counts_other_peoples_code_alone(site, results):
    row = "| [softshrink](#softshrink) | A title |"
    assert row not in page(site, results, ROWS | OURS_TOO)
    others = {"TensorFlow, CPU with oneDNN": 1.5, "PyTorch, eager": 1.0, "JAX, jit": 4.0}
    text = page(site, results, ROWS | OURS_TOO | others)
    assert f"{row} 2.00 | PyTorch, eager | 1.00 | **0.50** |" in text
    assert "|  | JAX, jit | 4.00 |  |  | 2.00 | 15 |  |  |" in text


def test_page_says_when_kernels_have_changed(site, results):
    text = page(site, results, ROWS)
    heading = "### At 0123456789ab, 2026-01-01"
    assert f"{heading}\n\nWhether its kernels have changed since cannot be told" in text
