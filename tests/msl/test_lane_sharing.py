"""Values that are the same in all lanes of a simdgroup, in kernels with barriers: read once, and kept
apart."""

from __future__ import annotations

import re
import subprocess
import time

import numpy as np
import pytest

from metal_ops.metal import Options, compile_object, cpu, lanes, toolchain

from .shaders import HEADER, VALIDATION, by_lanes_and_by_fibers

# i: the thread's number in its threadgroup, n: how many there are, at: its number in the grid. s has 1024 floats.
ATTENTION = """
    float query[2], acc[2] = {0, 0}, top = -INFINITY, total = 0;
    for (uint k = 0; k < 2; ++k) query[k] = x[at] * float(k + 1);
    for (uint key = i / 32; key < 24; key += (n + 31) / 32) {
      float part = 0;
      for (uint k = 0; k < 2; ++k) part += query[k] * float(h[key * 64 + k * 32 + i % 32]);
      const float score = simd_sum(part), before = top;
      top = max(top, score);
      const float keep = exp(before - top), weight = exp(score - top);
      total = total * keep + weight;
      for (uint k = 0; k < 2; ++k) acc[k] = acc[k] * keep + weight * float(h[key * 64 + k * 32 + i % 32]);
    }
    y[at] = acc[0] / total + acc[1];"""
BODIES = {
    "attention": ATTENTION,
    "results_of_some_lanes": """
        if (i % 5 == 0) return;
        float v = x[at];
        for (uint k = 0; k < 3; ++k) v = v * 0.5f + simd_sum(v) - simd_max(v * k);
        y[at] = v;""",
    "results_of_several_words": """
        float v = 0;
        for (uint k = 0; k < 4; ++k) {
          const ulong votes = (simd_vote::vote_t)simd_ballot(x[at] > k * 0.2f);
          v += float(votes % 1021) + float(simd_max(long(i * k) << 20) >> 18) + simd_broadcast_first(float4(v, k, x[at], i)).z;
        }
        y[at] = v;""",
    "results_that_decide": """
        float v = x[at];
        for (uint k = 0; k < 5; ++k) {
          const float least = simd_min(v);
          if (least < -0.5f) v += simd_sum(least + i); else v -= least * 0.5f;
          if (simd_any(v > 40)) v *= 0.125f;
        }
        y[at] = v;""",
    "results_that_are_kept": """
        const float sum = simd_sum(x[at]), most = simd_max(x[at] * i);
        s[i] = sum * x[at];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const float other = s[(i + 1) % n] + most;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        s[i] = other;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        y[at] = s[n - 1 - i] + sum - most;""",
    "results_where_lanes_part": """
        float v = x[at];
        if (i % 4 == 1) { const float sum = simd_sum(v); v = sum * i; } else if (i % 4 == 2) v -= simd_max(v);
        y[at] = v;""",
    # The last loop ends at other times for some lanes; before, all are there.
    "results_before_the_end": """
        float v = x[at];
        for (uint k = 0; k < 4; ++k) {
          v = v * 0.5f + simd_sum(v * k) + simd_max(int(v * 8) - int(i));
          for (uint j = i; j < 70; j += n) v += float(h[j]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        s[i] = v;
        for (uint j = i; j < n + i % 3; j += 32) y[at] = s[i] - float(h[j]);""",
    "rows_of_lanes": """
        float row[16], sum = 0;
        for (uint k = 0; k < 16; ++k) row[k] = float(h[i * 24 % 1000 + k]) * x[at];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i < 64) for (uint k = 0; k < 16; ++k) s[i * 16 + k] = row[k];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 16; ++k) sum += s[i % 64 * 16 + k] * row[15 - k];
        y[at] = simd_sum(sum) + sum;""",
    "halves_here_and_there": """
        half a = half(x[at]);
        for (uint k = 0; k < 4; ++k) a = half(float(a) * 0.5f + float(h[(i * 37 + k) % 1024]) + simd_sum(float(a)));
        y[at] = float(a);""",
}
SOURCE = "".join(
    f"""kernel void {name}(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    device const half* h [[buffer(2)]], uint at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]],
    uint n [[threads_per_threadgroup]]) {{
  threadgroup float s[1024];
  s[i] = 0;{body}
}}
"""
    for name, body in BODIES.items()
)
RNG = np.random.default_rng(0)
HALVES = RNG.standard_normal(24 * 64).astype(np.float16)


@pytest.fixture(scope="module")
def both():
    return by_lanes_and_by_fibers(SOURCE)


@pytest.mark.parametrize("width", [32, 128, 50, 1])
@pytest.mark.parametrize("name", BODIES)
def test_lanes_share_what_fibers_have_each(both, name, width):
    x = np.random.default_rng(width).standard_normal(2 * width, np.float32)
    results = []
    for made in both:
        y = np.full_like(x, 7)
        made[name].run(2 * width, width, {0: x, 1: y, 2: HALVES})
        results.append(y.view(np.uint32))
    np.testing.assert_array_equal(*results)
    assert both[0][name].lanes != VALIDATION


def test_attention_of_shared_sums(both):
    x = RNG.standard_normal(32, np.float32)
    y = np.zeros_like(x)
    both[0]["attention"].run(32, 32, {0: x, 1: y, 2: HALVES})
    keys = HALVES.astype(np.float64).reshape(24, 2, 32)
    scores = (keys * x * np.array([[1], [2]])).sum((1, 2))
    weights = np.exp(scores - scores.max())
    mean = np.tensordot(weights, keys, 1)
    np.testing.assert_allclose(y, mean[0] / weights.sum() + mean[1], rtol=2e-5, atol=1e-5)


def _made(monkeypatch, source: str, **options) -> str:
    """The module by lanes that the optimiser is given."""
    made: list[str] = []

    def kept(*a, by_lanes=lanes.by_lanes):
        (text,), left = by_lanes(*a)
        assert not left
        made.append(text)
        return [text], left

    monkeypatch.setattr(lanes, "by_lanes", kept)
    text = f"{HEADER}{source}// {time.time_ns()}\n"  # not in the cache
    compile_object("sharing.metal", Options(validation=False, **options), text)
    (one,) = made
    return one


def _kernel(body: str) -> str:
    return f"""kernel void f(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
        device const half* h [[buffer(2)]], uint at [[thread_position_in_grid]], uint i [[thread_index_in_threadgroup]],
        uint n [[threads_per_threadgroup]]) {{ {body} }}
    """


def _remarks(text: str, kind: str, flags: tuple[str, ...]) -> list[str]:
    """The remarks of a pass of the optimiser."""
    command = [toolchain.clang(), "-x", "ir", "-O3", "-S", "-w", "-o", "-", f"-Rpass={kind}"]
    command += [*toolchain.march(toolchain.WIDE), "-fno-math-errno", *flags, "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [line for line in done.stderr.splitlines() if "remark:" in line]


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_what_lanes_share_is_kept_once(monkeypatch):
    text = _made(monkeypatch, _kernel(ATTENTION))
    code = re.search(r"(?ms)^define [^\n]*@_msl_lanes0_whole\(.*?^}", text)[0]
    own, shared = (re.findall(rf"%msl\.{c}\d+ = alloca (.*?), align", code) for c in "fo")
    assert shared and all(re.fullmatch(r"\w+", kind) for kind in shared)
    assert own and all(re.fullmatch(r"\[32 x \w+\]", kind) for kind in own)
    # The result of simd_sum is an argument of the code for one lane, which reads no slot.
    regions = re.findall(r"(?ms)^define internal i32 @_msl_lanes0_\d+\(.*?^}", text)
    slots = [set(re.findall(r"(%\S+) = getelementptr i32, ptr %msl.s,", code)) for code in regions]
    read = [set(re.findall(r"= load \w+, ptr (%[^\s,]+)", code)) for code in regions]
    assert any(slots) and not any(a & b for a, b in zip(slots, read, strict=True))


def _optimised(text: str) -> str:
    """The optimiser's output for whole simdgroups."""
    text = re.sub(r"define internal (void @_msl_lanes\d+_whole\()", r"define \1", text)
    command = [toolchain.clang(), "-x", "ir", "-O3", "-S", "-emit-llvm", "-w", "-o", "-", "-"]
    made = toolchain.run([*command, *toolchain.march(toolchain.WIDE)], "the optimiser", text)
    return re.search(r"(?ms)^define [^\n]*@_msl_lanes0_whole\(.*?^}", made)[0]


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
def test_what_lives_from_turn_to_turn_stays_in_registers(monkeypatch):
    """And all that simd_sum has to do with it."""
    code = _optimised(_made(monkeypatch, _kernel(ATTENTION), target=toolchain.WIDE))
    kept = re.findall(r"(%msl\.(?:[fo]\d+|s)[\w.]*) = alloca", code)
    # Before and behind the loop lanes have copies.
    assert all(place.endswith(".copy") for place in kept)
    assert "fadd <16 x float>" in code and "_msl6reduce" not in code


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("for (uint k = 0; k < 16; ++k) v += float(h[i * 24 + k]); y[at] = simd_sum(v);", 1),
        ("for (uint k = 0; k < 16; ++k) v += float(h[i + 24 * k]); y[at] = simd_sum(v);", 0),
        ("for (uint k = 0; k < 4; ++k) v += x[i * 24 + k]; y[at] = simd_sum(v);", 0),
        ("v = simd_sum(v); for (uint k = 0; k < 16; ++k) y[at * 17 + k] = v + x[k];", 1),
    ],
)
def test_rows_of_lanes_are_no_vectors_of_lanes(monkeypatch, body, rows):
    text = _made(monkeypatch, _kernel(f"float v = x[at]; {body}"))
    assert text.count('!"llvm.loop.vectorize.enable", i1 false') == rows


@pytest.mark.skipif(VALIDATION, reason="checked kernels run by fibers")
@pytest.mark.parametrize(
    ("target", "body", "width"),
    [
        ("x86-64-v4", ATTENTION, 16),
        ("x86-64-v3", ATTENTION, 8),
        ("x86-64", ATTENTION, None),  # converts them one by one
        ("x86-64-v4", ATTENTION.replace("float(h[", "float(x["), None),
        ("x86-64-v4", "y[at] = simd_sum(float(h[i * 37]));", None),  # far apart
    ],
)
def test_halves_are_converted_by_whole_vectors(monkeypatch, target, body, width):
    text = _made(monkeypatch, _kernel(body), target=target)
    found = re.findall(r'!"llvm.loop.vectorize.width", i32 (\d+)', text)
    assert set(found) == ({str(width)} if width else set())
    if target == toolchain.WIDE and width:
        said = _remarks(text, "loop-vectorize", cpu.SHORT_SLP)
        assert sum("vectorized loop (vectorization width: 16" in line for line in said) >= len(
            found
        )
