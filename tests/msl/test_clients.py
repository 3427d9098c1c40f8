"""Other needs of people's shaders beside the language's features: messages, names, kernels too large for a pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from metal_ops.metal import CompileError, Options, compile_object, compiler
from metal_ops.metal.compiler import unit

from .shaders import HEADER, library

GREEDY = """kernel void greedy(device float* x) { threadgroup float a[8192], b; a[0] = b; x[0] = a[1]; }
kernel void exact(device float* x) { threadgroup float a[8192]; a[5] = 2; x[0] = a[5]; }"""


WRONG = "void f() { int x = nothing; }  // %s"
PLAIN = "constant int %s = 1;"
HEAD = "\n".join(["#pragma once", *(f"constant int h{i} = {i};" for i in range(4))])


@pytest.mark.parametrize("wrong", ["top", "header", "between", "second", "bottom"])
def test_message_quotes_its_own_line(tmp_path, wrong):
    """Lines before and behind an #include have numbers of their own, and so have those of the included files."""
    line = {
        name: (WRONG if name == wrong else PLAIN) % name
        for name in ("top", "header", "between", "second", "bottom")
    }
    (tmp_path / "a.h").write_text(f"{HEAD}\n{line['header']}\n")
    (tmp_path / "b.h").write_text(f"#pragma once\n{line['second']}\n")
    source = f'{line["top"]}\n#include "a.h"\n{line["between"]}\n#include "b.h"\n{line["bottom"]}\n'
    # not `messages`: behind an #include clang counts on without its #line
    options = Options(validation=False, include=(str(tmp_path),))
    with pytest.raises(CompileError) as error:
        compile_object("test.metal", options, source)
    said = str(error.value)
    place, quoted, caret = said.splitlines()[:3]
    where = {"top": "test.metal:1", "header": "a.h:6", "between": "test.metal:3", "second": "b.h:2", "bottom": "test.metal:5"}  # fmt: skip
    assert f"{where[wrong]}:20: error: use of undeclared identifier 'nothing'" in place, said
    assert quoted == line[wrong] and caret == " " * 19 + "^", said


def test_too_much_threadgroup_memory_is_a_warning():
    """Its pipeline is refused (tests/hostmetal/library_test.mm); the library's other kernels work."""
    _, said = compile_object("test.metal", Options(validation=False), HEADER + "#line 1\n" + GREEDY)
    assert said.startswith("test.metal:1:13: warning: kernel 'greedy' uses 32784 bytes of threadgroup memory; "
                           "the limit is 32768"), said  # fmt: skip
    assert "exact" not in said.splitlines()[0]
    x = np.zeros(1, np.float32)
    library(GREEDY)["exact"].run(1, 1, {0: x})
    assert x[0] == 2


def test_too_much_threadgroup_memory_is_not_in_code_for_gpus():
    """Their driver would refuse all kernels of the file."""
    text = compiler.gpu_text("test.metal", Options(), HEADER + GREEDY, "sm_80")
    assert "msl_exact" in text and "msl_greedy" not in text


def test_forward_is_a_name_for_everybody():
    source = """struct forward { int x; };
    kernel void k(device float* out) { forward f{3}; out[0] = f.x; }"""
    x = np.zeros(1, np.float32)
    library(source)["k"].run(1, 1, {0: x})
    assert x[0] == 3


def test_conditionals_of_bfloats_in_macros():
    """One in memory and one that is a variable: ?: has no common type for them, wherever it is written."""
    source = """
    #define IF(c, x, y) ((c) ? (x) : (y))
    #define MAX(x, y) IF((x) > (y), x, y)
    #define FLOOR m = \\
      MAX(m, s[2])
    kernel void k(device const bfloat* s, device float* out) {
      bfloat m = 0;
      m = MAX(m, s[1]);
      out[0] = m;
      FLOOR;
      out[1] = m;
    }"""
    s, out = np.array([0, 0x3F80, 0x4040], np.uint16), np.zeros(2, np.float32)  # 0, 1, 3
    library(source)["k"].run(1, 1, {0: s, 1: out})
    assert out.tolist() == [1, 3]


def test_argument_indices_of_an_array_behind_its_attribute(tmp_path):
    """An argument encoder sees the elements as it does where the attribute is behind the bounds."""
    struct = "struct A {{ device float* p {}; texture2d<float> t {}; float x [[id(7)]]; }};"
    kernel = "kernel void k(constant A& a, device float* out) { out[0] = a.x; }"
    found = []
    for p, t in [("[[id(1)]][2]", "[[id(3)]][4]"), ("[2] [[id(1)]]", "[4] [[id(3)]]")]:
        one = unit("test.metal", Options(), HEADER + struct.format(p, t) + kernel)
        _, reflection, _ = one.read(one.flags(tmp_path))
        found.append(reflection.kernels[0].arguments[0].members)
    assert found[0] == found[1]
    assert found[0].startswith("{p,0,1:[2,8:*w4,4:3t,16,3:[4,") and "x,48,7:" in found[0]


def test_threadgroup_zeros_are_there_in_every_threadgroup():
    """Not only in a worker's first, whose memory is new."""
    source = """kernel void k(device int* out, uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
      threadgroup int t[32] = {0};
      threadgroup short n = 0;
      out[g * 32 + i] = t[i] + n;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      t[i] = 5;
      n = 7;
    }"""
    out = np.full(8 * 32, -1, np.int32)
    library(source)["k"].run(8 * 32, 32, {0: out}, workers=1)
    assert not out.any(), out


def test_a_program_may_name_the_scope_of_the_system_itself():
    """As MSL has no such name: one in namespace metal, of the number that the compiler's macro says."""
    source = """
    namespace metal {
    constexpr constant metal::thread_scope thread_scope_system = static_cast<thread_scope>(__METAL_MEMORY_SCOPE_SYSTEM__);
    }
    kernel void k(device uint* out) {
      metal::atomic_thread_fence(metal::mem_flags::mem_device, metal::memory_order_seq_cst, metal::thread_scope_system);
      out[0] = metal::thread_scope_system != metal::thread_scope_device;
    }"""
    out = np.zeros(1, np.uint32)
    library(source)["k"].run(1, 1, {0: out})
    assert out[0] == 1


def test_suffixes_of_literals_are_names_for_everybody():
    """A loop to H is no loop to its h, and a struct may be called bf."""
    source = """
    struct bf { int BF; };
    kernel void k(constant int& H, device float* out) {
      bf b{0};
      for (int h = 0; h < H; ++h) b.BF += h;
      out[0] = b.BF;
      out[1] = float(1.5H) + float(2.0bf) + float(.25BF) + float(1e1H);
    }"""
    out = np.zeros(2, np.float32)
    library(source)["k"].run(1, 1, {0: np.array([4], np.int32), 1: out})
    assert out.tolist() == [6, 13.75]


def test_threadgroup_by_a_name_of_the_programs_own():
    """Sources for several languages call the address space so; where the name is another's, it stays that."""
    source = """
    #if defined(__METAL__) && !defined(ELSEWHERE)
    #define LOCAL threadgroup
    #else
    #define LOCAL
    #endif
    #define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
    int sum(LOCAL int* x) {
      int all = 0;
      for (int i = 0; i < 32; ++i) all += x[i];
      return all;
    }
    kernel void k(device int* out, uint i [[thread_index_in_threadgroup]], LOCAL int* passed [[threadgroup(0)]]) {
      LOCAL int x[32], y;
      LOCAL int* p = x;
      p[i] = passed[i] = int(i);
      if (i == 3) y = 5;
      BARRIER;
      out[i] = sum(x) + y + passed[31 - i];
    }"""
    out = np.zeros(32, np.int32)
    library(source)["k"].run(32, 32, {0: out}, threadgroup_memory={0: 128})
    assert out.tolist() == [496 + 5 + 31 - i for i in range(32)]
    alone = (
        source[: source.index("int sum")]
        + """
    kernel void k(device int* out, uint i [[thread_index_in_threadgroup]]) {
      LOCAL int x;
      x = int(i);
      BARRIER;
      out[i] = x;
    }"""
    )
    library(alone, defines=("ELSEWHERE",))["k"].run(32, 32, {0: out})
    assert out.tolist() == list(range(32))


def test_threadgroup_variables_in_a_macros_body():
    """By the address space's own name and by the program's; a macro that is only a type, or has a pointer, stays that."""
    source = """
    #define LOCAL threadgroup
    #define WORD LOCAL int
    #define KEEP(name, n)     \\
      LOCAL int name[n];      \\
      threadgroup int b##name; \\
      name[i] = 2 * int(i);   \\
      if (i == 0) b##name = 5; \\
      threadgroup_barrier(mem_flags::mem_threadgroup);
    #define POINTER(name) LOCAL int* name;
    int first(WORD* x) { return x[0]; }
    kernel void k(device int* out, uint i [[thread_index_in_threadgroup]]) {
      KEEP(x, 32)
      POINTER(p)
      p = x;
      out[i] = p[31 - i] + bx + first(x + 1);
    }"""
    out = np.zeros(32, np.int32)
    library(source)["k"].run(32, 32, {0: out})
    assert out.tolist() == [2 * (31 - i) + 7 for i in range(32)]


def test_threadgroup_variables_of_types_with_calls_in_their_arguments():
    """As transpilers write an array's length, and pointers as elements."""
    source = """
    kernel void k(device int* out, uint i [[thread_index_in_threadgroup]]) {
      threadgroup array<int, int(32)> x;
      threadgroup array<device int*, (1 + 1)> p;
      x[i] = int(i);
      if (i == 0) p[1] = out;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      p[1][i] = x[31 - i];
    }"""
    out = np.zeros(32, np.int32)
    library(source)["k"].run(32, 32, {0: out})
    assert out.tolist() == list(range(31, -1, -1))
