"""The command line and the disk cache, run as users and the runtime run them: as programs, many at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import metal_ops.metal
from metal_ops.metal import toolchain
from metal_ops.metal.abi import number
from metal_ops.metal.launch import Library
from tests.suites import at_depth

pytestmark = pytest.mark.compiler

PROGRAM = [sys.executable, str(Path(metal_ops.metal.__file__).parent)]
FEWER = "-fno-shader-validation"  # where that makes no difference: half of the code
ADD = "#include <metal_stdlib>\nkernel void {name}(device float* x, uint i [[thread_position_in_grid]]) {{ x[i] += {value}; }}\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache, in which the first test leaves the precompiled metal_stdlib."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def metal(tmp_path, cache):
    """Runs the compiler in a folder of its own."""

    def run(*arguments, code=0, stdin=None, **environment):
        done = subprocess.run([*PROGRAM, *map(str, arguments)], cwd=tmp_path, input=stdin, capture_output=True, text=True,
                              env={**os.environ, "METAL_OPS_CACHE": str(cache), **environment})  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def _value(path, name="add", **options):
    x = np.zeros(1, np.float32)
    Library(path)[name].run(1, 1, {0: x}, **options)
    return x[0]


def test_logging_is_asked_for(metal, tmp_path):
    log = "#include <metal_logging>\n" + ADD.format(
        name="add", value='1; metal::os_log_default.log("added")'
    )
    (tmp_path / "a.metal").write_text(log)
    metal("a.metal", "-o", "quiet.metallib", "-fno-shader-validation")
    metal("a.metal", "-o", "loud.metallib", "-fno-shader-validation", "-fmetal-enable-logging")
    flags = {n: Library(tmp_path / f"{n}.metallib")["add"]._table.flags for n in ("quiet", "loud")}
    assert {n: bool(f & number("KERNEL_LOGS")) for n, f in flags.items()} == {
        "quiet": False,
        "loud": True,
    }
    assert _value(tmp_path / "loud.metallib") == 1  # without a buffer its messages go nowhere


def test_one_file_to_a_metallib(metal, tmp_path):
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value="VALUE"))
    assert metal("a.metal", "-DVALUE=3", "-o", "a.metallib") == ""
    assert _value(tmp_path / "a.metallib") == 3
    metal(
        "-std=metal3.0",
        "-O2",
        "-Wall",
        "-gline-tables-only",
        "-mmacosx-version-min=14.0",
        "-D",
        "VALUE=4",
        "a.metal",
    )
    assert _value(tmp_path / "default.metallib") == 4
    metal("metal", "-", "-o", "b.metallib", stdin=ADD.format(name="add", value="5"))
    assert _value(tmp_path / "b.metallib") == 5


def test_preprocessed_text(metal, tmp_path):
    """As projects ask for the language's version, and for the headers of a shader in their order."""
    asked = metal("-std=metal3.0", "-E", "-x", "metal", "-P", "-", stdin="__METAL_VERSION__\n")
    assert asked.splitlines()[-1] == "300"
    (tmp_path / "inner.h").write_text("#define TWO 2\n")
    (tmp_path / "outer.h").write_text('#include <metal_stdlib>\n#include "inner.h"\n')
    (tmp_path / "a.metal").write_text('#include "outer.h"\nconstant int a = TWO * N; // said\n')
    text = metal("-E", "-P", "-CC", "-DN=3", "a.metal", "-o", "a.txt")
    assert text == ""
    assert (tmp_path / "a.txt").read_text().splitlines()[-1] == "constant int a = 2 * 3; // said"
    listed = metal("-E", "-H", "a.metal", "-o", "a.txt").splitlines()
    assert [line.split("/")[0] for line in listed] == [". .", ".. ."]
    assert "'absent.h' file not found" in metal("-E", "-", code=1, stdin='#include "absent.h"\n')


def test_objects_and_linking(metal, tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.metal").write_text(ADD.format(name=name, value=value))
        metal("-c", f"{name}.metal", *(["-o", "second.air"] if value == 2 else []))
    metal("metallib", "one.air", "second.air", "-o", "both.metallib")
    metal("one.metal", "second.air", "-o", "mixed.metallib")
    for file in ("both.metallib", "mixed.metallib"):
        assert _value(tmp_path / file, "one") == 1 and _value(tmp_path / file, "two") == 2
        assert set(Library(tmp_path / file, checked=True).kernels) == {"one", "two"}
    (tmp_path / "three.metal").write_text(ADD.format(name="one", value=7))
    metal("-c", "three.metal")
    assert "duplicate kernel name 'one'" in metal(
        "metallib", "one.air", "three.air", "-o", "x.metallib", code=1
    )
    (tmp_path / "text.air").write_text("no object")
    assert "not an object of this compiler" in metal("metallib", "text.air", code=1)
    metal("-c", "one.metal", "-fno-shader-validation", "-o", "fast.air")
    metal("metallib", "fast.air", "-o", "fast.metallib")
    with pytest.raises(ValueError, match="metallib_v1_checked"):
        Library(tmp_path / "fast.metallib", checked=True)
    metal("--on-demand", "-fshader-validation-only", "one.metal", "-o", "checked.metallib")
    assert set(Library(tmp_path / "checked.metallib", checked=True).kernels) == {"one"}
    assert not Library(tmp_path / "checked.metallib").kernels
    for wrong in (["-c"], ["--gpu=sm_80"], ["second.metal"]):
        said = metal("one.metal", "--kernel=one", *wrong, code=1)
        assert "--on-demand and --kernel take one source" in said


def test_includes_and_dependencies(metal, tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "value.h").write_text("#pragma once\n#define VALUE 6\n")
    (tmp_path / "a.metal").write_text(
        '#include "value.h"\n' + ADD.format(name="add", value="VALUE")
    )
    metal("a.metal", "-I", "inc", "-MD", "-MF", "a.d", "-o", "a.metallib")
    assert _value(tmp_path / "a.metallib") == 6
    rule = (tmp_path / "a.d").read_text()
    assert (
        rule.startswith("a.metallib: ")
        and "inc/value.h" in rule
        and "a.metal" in rule
        and "metal_stdlib" not in rule
    )
    (tmp_path / "inc" / "value.h").write_text(
        "#pragma once\n#define VALUE 8\n"
    )  # the cache looks at contents
    metal("a.metal", "-Iinc", "-o", "b.metallib")
    assert _value(tmp_path / "b.metallib") == 8


def test_rules_of_make(metal, tmp_path):
    """Alone, and with targets and names as build systems give them."""
    (tmp_path / "my inc").mkdir()
    (tmp_path / "my inc" / "value.h").write_text("#define VALUE 6\n")
    (tmp_path / "a.metal").write_text(
        '#include "value.h"\n' + ADD.format(name="add", value="VALUE")
    )
    rule = "{}: my\\ inc/value.h a.metal\nmy\\ inc/value.h:\na.metal:\n"
    assert metal("-M", "a.metal", "-I", "my inc") == rule.format("a.air")
    assert not list(tmp_path.glob("*.air")) and not list(tmp_path.glob("*.metallib"))
    words = ("-MMD", "-MP", "-MT", "one", "-MQ", "$two", "-MF", "x.d", "-fno-inline")
    metal("-c", "a.metal", "-I", "my inc", *words, "-o", "b.air")
    assert (tmp_path / "x.d").read_text() == rule.format("one $$two")
    assert (tmp_path / "b.air").exists()
    assert "argument to '-MT' is missing" in metal("a.metal", "-MT", code=1)


def test_pipes(tmp_path, cache):
    """As projects make a library without a file between: `metal -c a.metal -o - | metallib - -o default.metallib`."""
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=9))
    env = {**os.environ, "METAL_OPS_CACHE": str(cache)}

    def run(*words, given=b""):
        done = subprocess.run(
            [*PROGRAM, *words], cwd=tmp_path, env=env, input=given, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    compiled = run("-c", "a.metal", "-o", "-")
    assert run("metallib", "-", "-o", "a.metallib", given=compiled) == b""
    assert _value(tmp_path / "a.metallib") == 9
    (tmp_path / "b.metallib").write_bytes(run("metallib", "-", "-o", "-", given=compiled))
    assert _value(tmp_path / "b.metallib") == 9
    assert not (tmp_path / "-").exists()


WRONG = {
    ("nothing.metal",): "no such file or directory: 'nothing.metal'",
    ("-o", "x.metallib"): "no input files",
    ("a.metal", "-o"): "argument to '-o' is missing",
    ("a.metal", "-std=metal9.9"): "this compiler knows Metal up to 4.0",
    ("a.metal", "-std=metal4.1"): "this compiler knows Metal up to 4.0",
    ("a.metal", "-std=c++17"): "expected metal2.0",
    ("a.metal", "--frobnicate"): "unknown option '--frobnicate'",
    (
        "-c",
        "a.metal",
        "a.metal",
        "-o",
        "x.air",
    ): "cannot specify -o when generating multiple output files",
    ("metallib", "-o", "x.metallib"): "no input files",
    ("a.metal", "-o", "no/such/folder/x.metallib"): "No such file or directory",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_arguments(arguments, metal, tmp_path):
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=1))
    said = metal(*arguments, code=1)
    assert WRONG[arguments] in said and "Traceback" not in said


def test_missing_tools(metal, tmp_path):
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=1))
    for variable in ("METAL_OPS_CLANG", "METAL_OPS_LLD", "METAL_OPS_LIBCLANG"):
        alone = {variable: "/no/such/program", "METAL_OPS_CACHE": str(tmp_path / "cache")}
        said = metal("a.metal", code=1, **alone)
        assert variable in said and "apt-get install" in said and "Traceback" not in said


def test_libclang_reads_the_headers_of_the_clang_that_is_asked(metal, tmp_path):
    """A libclang knows where its distribution would have put them, which may not be where they are."""
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=1))
    headers = tmp_path / "elsewhere" / "include"
    headers.mkdir(parents=True)
    (headers / "stddef.h").write_text("#error these headers\n")
    program = tmp_path / "clang"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -print-resource-dir ] && exec echo {headers.parent}\nexec {toolchain.clang()} "$@"\n'
    )
    program.chmod(0o755)
    said = metal(
        "a.metal", code=1, METAL_OPS_CLANG=str(program), METAL_OPS_LIBCLANG=toolchain.libclang()
    )
    assert "these headers" in said


def test_warnings_are_printed_also_from_the_cache(metal, tmp_path):
    (tmp_path / "a.metal").write_text(
        "kernel void k(device float* x) {\n  int unused = 1;\n  x[0] = 1;\n}\n"
    )
    for _ in range(2):
        assert (
            "a.metal:2:7: warning: unused variable 'unused'\n  int unused = 1;\n      ^"
            in metal("a.metal", "-Wall")
        )
    assert metal("a.metal") == ""
    assert "error: unused variable" in metal("a.metal", "-Wall", "-Werror", code=1)


def test_no_warnings_of_our_own_making(metal, tmp_path):
    """A constant that is calculated of others and asked by no kernel; warnings that Apple's compiler alone has."""
    (tmp_path / "a.metal").write_text(
        "constant int rows [[function_constant(0)]];\n"
        "constant int columns [[function_constant(1)]];\n"
        "constant int cells = rows * columns;\n"
        "kernel void k(device int* x) { x[0] = rows; }\n"
    )
    words = ("-Wall", "-Wextra", "-Werror", "-Wmetal-addr-spaces", "-Wno-metal-addr-spaces")
    assert metal("a.metal", *words, "-Werror=metal-addr-spaces") == ""


def test_fast_math_is_off_by_default(metal, tmp_path):
    """(x + y) - x: exactly as in IEEE, unless asked otherwise."""
    source = "kernel void k(device float* x) { x[0] = (x[0] + x[1]) - x[0]; }\n"
    (tmp_path / "a.metal").write_text(source)
    for flag, expected in (("-fno-fast-math", 0.0), ("-ffast-math", 1.0), (None, 0.0)):
        metal("a.metal", "-o", "a.metallib", FEWER, *([flag] if flag else []))
        x = np.float32([1e10, 1])
        (tmp_path / "a.metallib").rename(
            tmp_path / f"{flag}.metallib"
        )  # a loaded library is known by its name
        Library(tmp_path / f"{flag}.metallib")["k"].run(1, 1, {0: x})
        assert x[0] == expected, flag


def test_version_and_help(metal):
    assert "clang 19" in metal("--version")
    assert "-fno-fast-math" in metal("--help") and "usage" in metal(code=2)


def test_cache_is_shared_by_processes(metal, cache, tmp_path):
    """Many compilers at once on a cache without the kernel's code, and at depth `all` without the library's: all succeed,
    one object remains, and a second round compiles nothing."""
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=9))
    environment = {**os.environ, "METAL_OPS_CACHE": str(tmp_path / "cache")}
    many = at_depth(3, 6)
    metal("-E", "a.metal")
    preludes = at_depth([*cache.glob("msl/prelude-*.pch")], [])
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "msl").mkdir(mode=0o700)
    for file in preludes:
        shutil.copy2(file, tmp_path / "cache" / "msl")

    def together():
        programs = [
            subprocess.Popen(
                [*PROGRAM, "a.metal", "-o", f"{i}.metallib"], cwd=tmp_path, env=environment
            )
            for i in range(many)
        ]
        assert [p.wait() for p in programs] == [0] * many

    together()
    cache = tmp_path / "cache" / "msl"
    assert len(list(cache.glob("*.air"))) == 1 and not list(cache.glob(".new-*"))
    assert len({(tmp_path / f"{i}.metallib").read_bytes() for i in range(many)}) == 1
    assert _value(tmp_path / f"{many - 1}.metallib") == 9
    entries = {p.name: p.stat().st_ino for p in cache.iterdir()}
    together()
    assert {p.name: p.stat().st_ino for p in cache.iterdir()} == entries
    (only,) = cache.glob("*.air")
    only.write_bytes(b"")  # a damaged entry is made again
    metal("a.metal", "-o", "again.metallib", METAL_OPS_CACHE=str(tmp_path / "cache"))
    assert _value(tmp_path / "again.metallib") == 9


def test_library_reflection(metal, tmp_path):
    """The tables' own descriptions."""
    (tmp_path / "a.metal").write_text(ADD.format(name="add", value=9))
    metal("a.metal", "-o", "a.metallib", "-march=native")
    table = Library(tmp_path / "a.metallib").table
    assert (table.magic, table.abi_version, table.checked, table.target) == (
        0x314C534D,
        2,
        0,
        b"native",
    )
    assert table.supported() and table.compiler.startswith(b"metal_ops metal")
    needed = subprocess.run(
        ["readelf", "-d", tmp_path / "a.metallib"], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "NEEDED" in line} <= {
        "libm.so.6",
        "libc.so.6",
    }
