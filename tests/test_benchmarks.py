"""Benchmark results say when they were measured, the page counts who is who, and --quick leaves them alone."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import (
    device_layers,
    device_ops,
    ggml,
    op_calls,
    op_worker,
    peers,
    provenance,
    registry,
    report,
)
from benchmarks.cases import quantized, rows
from metal_ops import raw_ops
from tests.processes import ROOT

pytestmark = pytest.mark.house

MACHINE = {"cpu": "a processor", "cores": "2"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that reports are written into."""
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
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


def test_a_result_names_commit_date_and_load(results, monkeypatch):
    measure(monkeypatch, case(metal_ops=2.0))
    record = json.loads((results / "softshrink-test.json").read_text())
    measured = record["measured"]
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    assert head and measured["commit"].startswith(head)
    assert len(measured["date"].split("-")) == 3 and measured["load"] >= 0
    text = (results / "softshrink.md").read_text()
    sentence = f"Measured at {measured['commit']} on {measured['date']}; the load before was {measured['load']} on"
    assert sentence in text


@pytest.mark.parametrize("option", ["--quick", "--no-save"])
def test_quick_results_are_not_saved(results, monkeypatch, option):
    measure(monkeypatch, case(metal_ops=2.0))
    before = {path.name: path.read_bytes() for path in results.iterdir()}
    measure(monkeypatch, case(metal_ops=1.0), option)
    assert len(before) == 2
    assert {path.name: path.read_bytes() for path in results.iterdir()} == before


def test_what_takes_minutes_is_measured_once(results, monkeypatch):
    calls: dict[str, int] = {"metal_ops": 0, "slow": 0}

    def contender(name: str, **more: Any) -> registry.Contender:
        def time_ms() -> float:
            calls[name] += 1
            return 1.0

        return registry.Contender(name, time_ms, **more)

    rows = [contender("metal_ops"), contender("slow", once=True)]
    chosen = dataclasses.replace(case(), contenders=lambda _: rows)
    measure(monkeypatch, chosen)
    saved = json.loads((results / "softshrink-test.json").read_text())
    assert [row["runs"] for row in saved["rows"]] == [15, 1]
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


@pytest.mark.parametrize("kind", ggml.TYPES)
def test_blocks_of_llama_cpp_stand_for_their_numbers(kind):
    """The worker holds ggml's products to these."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256 if kind == "Q8_0" else 16, (3, 2, ggml.BLOCK))
    scales, minima = random.integers(-64, 64, (2, 3, 2, 1)) / 32
    packed = np.zeros((3, 2, ggml.TYPES[kind][1]), np.uint8)
    for at in np.ndindex(3, 2):
        head = struct.pack("<e", scales[at][0])
        if kind == "Q4_1":
            head += struct.pack("<e", minima[at][0])
        low, high = codes[at][:16], codes[at][16:]
        body = codes[at] if kind == "Q8_0" else low + 16 * high
        packed[at] = list(head + bytes(body.tolist()))
    steps = {"Q4_0": codes - 8, "Q4_1": codes, "Q8_0": codes - 256 * (codes > 127)}[kind]
    want = scales * steps + (minima if kind == "Q4_1" else 0)
    np.testing.assert_array_equal(ggml.dequantize(kind, packed), want.reshape(3, -1))


def test_rows_of_kernels_that_are_missing_say_so(results, monkeypatch, tmp_path):
    monkeypatch.setattr(ggml, "BUILT", tmp_path)
    with pytest.raises(FileNotFoundError, match="Run 'make bench PEERS=1'") as raised:
        ggml.load.__wrapped__()

    def start(stack: Any, library: str, *arguments: Any, **environment: str) -> Any:
        if library == "ggml":
            raise RuntimeError(f"FileNotFoundError: {raised.value}")
        worker = SimpleNamespace(version={"int4": "of a version"})
        worker.contender = lambda name, kind, note: registry.Contender(name, lambda: 3.0, note=note)
        return worker

    monkeypatch.setattr(peers, "start", start)
    chosen = dataclasses.replace(
        case(),
        contenders=lambda context: [
            registry.Contender("metal_ops", lambda: 2.0),
            *quantized.of_peers(context, ("int4", "Q4_0")),
        ],
    )
    measure(monkeypatch, chosen, "--peers", failed=1)
    ours, torch, llama = json.loads((results / "softshrink-test.json").read_text())["rows"]
    assert (torch["median_ms"], torch["note"]) == (3.0, "of a version")
    assert llama["contender"] == "llama.cpp, Q4_0" and str(raised.value)[:100] in llama["error"]
    measure(monkeypatch, chosen)
    assert len(json.loads((results / "softshrink-test.json").read_text())["rows"]) == 1


def test_a_group_in_one_table(results, monkeypatch):
    rows = {"CPU": 2.0, "Metal device": 3.0, "the machine's memory": 0.5}
    for name in ("zero_out", "null_op"):
        chosen = dataclasses.replace(
            case(**rows), name=f"ops-{name}", title=name, in_one_table=True
        )
        measure(monkeypatch, chosen)
    lines = (results / "softshrink.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert table[0].startswith("| case | CPU, ms | quartiles | Metal device, ms | quartiles |")
    cells = "2.00 | 2.00 - 2.00 | 3.00 | 3.00 - 3.00 | 0.50 | 0.50 - 0.50 | 1.50 | 0.25 | 15 |"
    assert sorted(table[2:]) == [f"| null_op | {cells}  |", f"| zero_out | {cells}  |"]
    assert [line for line in lines if "2 rows; the load before each was" in line]
    assert "## zero_out" not in lines


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


def test_old_results_say_that_their_commit_is_not_known(results):
    record = {"group": "softshrink", "name": "x", "order": 0, "title": "T", "unit": "u", "units": 0}
    record |= {"machine": MACHINE, "rows": [{"contender": "metal_ops", "median_ms": 1.0}]}
    record["rows"][0] |= {"quartiles_ms": [1.0, 1.0], "runs": 3}
    results.mkdir()
    (results / "x.json").write_text(json.dumps(record))
    text = report.write_markdown("softshrink").read_text()
    assert "Measured at a commit that was not recorded." in text
    assert provenance.changes_since(record) == ""


def test_committed_tables_are_those_of_the_committed_figures(tmp_path, monkeypatch):
    for path in report.RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    kept = {path.stem: path.read_text() for path in report.RESULTS.glob("*.md")}
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    groups = {json.loads(path.read_text())["group"] for path in tmp_path.glob("*.json")}
    groups.discard("nerf_recipe")  # has a program of its own
    assert len(groups) >= 8
    for group in groups:
        assert report.write_markdown(group).read_text() == kept[group], group


def test_every_group_names_the_sources_of_its_figures():
    groups = {found.group for found in registry.all_cases()}
    groups.add("device_ops")  # has a program of its own
    assert set(provenance.SOURCES) < groups
    for group in groups:
        missing = [folder for folder in provenance.sources(group) if not (ROOT / folder).is_dir()]
        assert missing == [], group


def test_every_op_of_the_device_has_arguments_to_be_measured_with():
    """TensorFlow's CPU takes them; a small square stands for the one that is measured."""
    page = (ROOT / "docs" / "support.md").read_text()
    table = page[page.index("ResourceApplyAdam") - 3000 :]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    ops = {op.strip() for row in rows for op in row.split(",")}
    ops = {op for op in ops if op in dir(device_ops.tf.raw_ops)}
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


def test_losing_ops_come_first_and_are_counted():
    rows = [("Add", "float32", 2.0, 1.0), ("Sin", "float32", 1.0, 5.0), ("Mul", "int8", 1.0, 1.2)]
    measured = {"commit": "abc", "date": "2026-01-02", "load": 0.5}
    text = device_ops.markdown(rows, {"Where": "ValueError: no"}, measured)
    assert "3 ops, 1 of them slower than 1.5 times" in text
    found = [line.split(" | ")[0] for line in text.splitlines() if " | " in line]
    assert found[-3:] == ["| Sin", "| Mul", "| Add"]
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
        record = {"group": "softshrink", "measured": {"commit": commit}}
        found = provenance.changes_since(record, repository)
        assert found.startswith(said) and bool(found) == bool(said)


def test_a_commit_that_is_not_there(repository):
    record = {"group": "softshrink", "measured": {"commit": "0123456789ab"}}
    assert "cannot be told" in provenance.changes_since(record, repository)


ROWS = {"metal_ops": 2.0, "the machine's memory": 0.1, "an empty tf.function": 0.2}
OURS_TOO = {"metal_ops, Metal device": 0.5, "Conv2D, BiasAdd, AddV2, Relu": 0.4, "plain C++": 0.3}


def page(site: ModuleType, folder: Path, rows: dict[str, float]) -> str:
    record = {"group": "softshrink", "order": 0, "title": "A title", "machine": MACHINE}
    record["measured"] = {"commit": "0123456789ab", "date": "2026-01-01", "load": 0.0}
    record["rows"] = [{"contender": name, "median_ms": ms} for name, ms in rows.items()]
    (folder / "x.json").write_text(json.dumps(record))
    (folder / "softshrink.md").write_text("# Benchmark: softshrink\n\n## A title\n\nThe table.\n")
    site.RESULTS = folder
    return site.on_page_markdown(f"{site.OVERVIEW}\n\n{site.MARKER}")


def test_overview_counts_other_peoples_code_alone(site, tmp_path):
    assert "A title |" not in page(site, tmp_path, ROWS | OURS_TOO)
    others = {"TensorFlow, CPU with oneDNN": 1.5, "PyTorch, eager": 1.0, "JAX, jit": 4.0}
    text = page(site, tmp_path, ROWS | OURS_TOO | others)
    assert "| A title | 2.00 | PyTorch, eager | 1.00 | 0.50 |" in text
    text = page(site, tmp_path, ROWS | OURS_TOO | others | {"llama.cpp, Q4_0": 0.5})
    assert "| A title | 2.00 | llama.cpp, Q4_0 | 0.50 | 0.25 |" in text


def test_page_says_when_kernels_have_changed(site, tmp_path):
    text = page(site, tmp_path, ROWS)
    assert "### A title\n\nWhether its kernels have changed since cannot be told" in text


def test_page_says_once_when_kernels_of_a_group_in_one_table_have_changed(
    site, tmp_path, monkeypatch
):
    monkeypatch.setattr(site, "changes_since", lambda record: f"Of {record['group']}: changed.")
    record = {"group": "ops", "order": 0, "title": "zero_out", "in_one_table": True, "rows": []}
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(record | {"rows": [{"error": "none"}]}))
    (tmp_path / "ops.md").write_text("# Benchmark: ops\n\n| zero_out |\n")
    monkeypatch.setattr(site, "RESULTS", tmp_path)
    monkeypatch.setattr(site, "overview", lambda: "")
    assert site.on_page_markdown(site.MARKER).startswith("## ops\n\nOf ops: changed.\n")
