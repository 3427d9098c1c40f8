"""The disk cache holds code that is run: its permissions, its entries, and a full disk."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import metal_ops.metal
from metal_ops.metal import CompileError, Options, cache, compiler, toolchain
from metal_ops.metal.launch import Library

pytestmark = pytest.mark.compiler

PROGRAM = [sys.executable, str(Path(metal_ops.metal.__file__).parent)]
SOURCE = "kernel void add(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 3; }\n"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a.metal, a.metallib and the cache of that, for tests to copy: the first compilation takes seconds."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "a.metal").write_text(SOURCE)
    before = os.umask(0)  # modes are asked for, not left to it
    try:
        assert compile_in(folder) == ""
    finally:
        os.umask(before)
    return folder


@pytest.fixture
def work(compiled: Path, tmp_path: Path) -> Path:
    shutil.copytree(compiled, tmp_path / "work")
    return tmp_path / "work"


def compile_in(
    folder: Path,
    out: str = "a.metallib",
    code: int = 0,
    limit: int | None = None,
    **environment: str,
) -> str:
    """Compiles a.metal with the cache beside it; returns the output."""

    def limited() -> None:
        assert limit is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [*PROGRAM, "a.metal", "-o", out],
        cwd=folder,
        env={**os.environ, "METAL_OPS_CACHE": str(folder / "cache"), **environment},
        capture_output=True,
        text=True,
        preexec_fn=limited if limit is not None else None,
    )
    said = done.stdout + done.stderr
    assert done.returncode == code and "Traceback" not in said, said
    return said


def entries(folder: Path) -> dict[str, Path]:
    found = {path.suffix: path for path in (folder / "cache" / "msl").iterdir()}
    assert set(found) == {".air", ".pch", ".o"}
    return found


def works(path: Path) -> bool:
    x = np.zeros(1, np.float32)
    Library(path)["add"].run(1, 1, {0: x})
    return bool(x[0] == 3)


def test_another_checkout_finds_the_same_entries(tmp_path: Path, monkeypatch) -> None:
    def unit() -> compiler.Unit:
        return compiler.unit("a.metal", Options(), "#include <metal_stdlib>\n" + SOURCE)

    here = unit()
    shutil.copytree(toolchain.library_root(), tmp_path / "msl")
    monkeypatch.setattr(toolchain, "library_root", lambda: tmp_path / "msl")
    there = unit()
    assert (there.key, there.flat != here.flat) == (here.key, True)


def test_folder_is_the_users_alone(compiled: Path) -> None:
    assert [(compiled / "cache" / p).stat().st_mode & 0o777 for p in (".", "msl")] == [0o700] * 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in entries(compiled).values())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """cache.folder() of a process whose METAL_OPS_CACHE is tmp_path/cache."""
    monkeypatch.setenv("METAL_OPS_CACHE", str(tmp_path / "cache"))
    yield cache.folder.__wrapped__


def test_what_others_may_only_read_is_mended(folder, tmp_path: Path) -> None:
    folder().chmod(0o755)
    assert folder().stat().st_mode & 0o777 == 0o700


UNSAFE = {
    "group may write": ("cache/msl", 0o770, "cache/msl can be written by others (mode 0770)"),
    "all may write": ("cache/msl", 0o702, "cache/msl can be written by others (mode 0702)"),
    "all may write, sticky": ("cache/msl", 0o1777, "can be written by others (mode 1777)"),
    "group may write the cache": ("cache", 0o770, "cache can be written by others (mode 0770)"),
    "all may write a folder above": (".", 0o777, "can be written by others (mode 0777)"),
}


@pytest.mark.parametrize(("place", "mode", "message"), UNSAFE.values(), ids=UNSAFE)
def test_unsafe_folders_are_refused(
    folder, tmp_path: Path, place: str, mode: int, message: str
) -> None:
    folder()
    (tmp_path / place).chmod(mode)
    with pytest.raises(CompileError, match="run 'chmod go-w") as said:
        folder()
    assert message in str(said.value) and "\n" not in str(said.value)


def test_the_program_says_so_and_writes_nothing(work: Path) -> None:
    (work / "a.metallib").unlink()
    (work / "cache" / "msl").chmod(0o770)
    said = compile_in(work, code=1)
    assert "can be written by others" in said and said.count("\n") == 1
    assert not (work / "a.metallib").exists()


def test_a_sticky_folder_above_is_as_good_as_tmp(folder, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert folder() == tmp_path / "cache" / "msl"


@pytest.mark.parametrize("link", ["cache", "cache/msl"])
def test_links_are_refused(folder, tmp_path: Path, link: str) -> None:
    (tmp_path / "elsewhere" / "msl").mkdir(parents=True, mode=0o700)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(CompileError, match=f"{link} is a symbolic link"):
        folder()


@pytest.mark.parametrize("wrong", ["file", "file above", "link to nothing"])
def test_what_is_no_folder_is_said(
    folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "link to nothing":
        (tmp_path / "cache").symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "cache").write_text("")
    if wrong == "file above":
        monkeypatch.setenv("METAL_OPS_CACHE", str(tmp_path / "cache" / "below"))
    with pytest.raises(CompileError, match="METAL_OPS_CACHE"):
        folder()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_folders_of_other_users(folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder()
    for path in ("cache/msl", "cache", "."):
        os.chown(tmp_path / path, 12345, -1)
        with pytest.raises(CompileError, match="belongs to user 12345"):
            folder()
        os.chown(tmp_path / path, 0, -1)
    # A default that is not ours is passed over: `sudo` keeps HOME.
    home = tmp_path / "home"
    (home / ".cache").mkdir(parents=True)
    os.chown(home, 12345, -1)
    (tmp_path / "tmp").mkdir(mode=0o700)
    for name in ("METAL_OPS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert folder() == tmp_path / "tmp" / "metal_ops-0" / "msl"
    assert not list((home / ".cache").iterdir())


DAMAGE = {
    "empty": lambda good: b"",
    "cut": lambda good: good[: len(good) // 2],
    "cut by one": lambda good: good[:-1],
    "more": lambda good: good + b"\0",
    "a bit": lambda good: good[:-5] + bytes([good[-5] ^ 4]) + good[-4:],
    "header": lambda good: b"\x7fELF" + good[4:],
    "content alone": lambda good: good[-1000:],
    "link": None,
    "pipe": None,
    "folder": None,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_and_forged_entries_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    content, path = os.urandom(1000), tmp_path / "x.o"
    cache.write("x.o", content)
    assert cache.read("x.o") == content and cache.read("y.o") is None
    good = path.read_bytes()
    (tmp_path / "y.o").write_bytes(good)  # whole, but of another name
    assert cache.read("y.o") is None
    path.unlink()
    if damage == "link":
        path.symlink_to(tmp_path / "forged")
        (tmp_path / "forged").write_bytes(good)
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage == "folder":
        path.mkdir()
    else:
        path.write_bytes(DAMAGE[damage](good))
    assert cache.read("x.o") is None
    if damage != "folder":
        cache.write("x.o", content)
        assert cache.read("x.o") == content


@pytest.mark.parametrize("kind", [".air", ".pch", ".o"])
def test_what_is_damaged_is_made_anew(work: Path, kind: str) -> None:
    found = entries(work)
    if kind == ".pch":  # read only where there is something to compile
        found[".air"].unlink()
    good = found[kind].read_bytes()
    found[kind].write_bytes(good[: len(good) // 2])
    assert compile_in(work, "b.metallib") == "" and works(work / "b.metallib")
    assert entries(work)[kind].read_bytes()[:18] == good[:18]
    assert len(entries(work)[kind].read_bytes()) == len(good)


def test_a_full_disk_leaves_nothing_behind(work: Path) -> None:
    """Files end at a size, as they do on a full disk."""
    found = entries(work)
    size = found[".pch"].stat().st_size
    for path in (*found.values(), work / "a.metallib"):
        path.unlink()
    # The compiler's own temporary file is as large as its entry: the entry's header no longer fits.
    said = compile_in(work, limit=size - 30)
    assert f"nothing is kept in the cache {work / 'cache' / 'msl'}: File too large" in said
    assert said.count("\n") == 1 and works(work / "a.metallib")
    left = sorted(path.name for path in (work / "cache" / "msl").iterdir())
    assert left == sorted(found[kind].name for kind in (".air", ".o"))
    # No room for the result, nor for anything else.
    (work / "a.metallib").unlink()
    said = compile_in(work, code=1, limit=100)
    assert "File too large" in said
    assert sorted(path.name for path in work.iterdir()) == ["a.metal", "cache"]
    assert sorted(path.name for path in (work / "cache" / "msl").iterdir()) == left


def test_results_that_are_no_files_stay_what_they_are(work: Path) -> None:
    compile_in(work, "/dev/null")
    assert Path("/dev/null").is_char_device()
    victim = work / "victim"
    victim.write_text("kept")
    (work / "b.metallib").symlink_to(victim)
    compile_in(work, "b.metallib")
    assert victim.read_text() == "kept" and works(work / "b.metallib")


def test_leftovers_of_killed_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    old, young = tmp_path / ".new-old", tmp_path / ".new-young"
    for path in (old, young):
        path.write_text("")
    os.utime(old, (1, 1))
    cache.write("x", b"")
    assert not old.exists() and young.exists()


def test_processes_that_damage_and_make_the_same_entries_at_once(work: Path) -> None:
    place, good = work / "cache" / "msl", (work / "a.metallib").read_bytes()
    environment = {**os.environ, "METAL_OPS_CACHE": str(work / "cache")}
    programs = []
    for i in range(4):
        for path in place.glob("*.air"):
            path.unlink() if i % 2 else path.write_bytes(path.read_bytes()[:100])
        command = [*PROGRAM, "a.metal", "-o", f"{i}.metallib"]
        programs.append(subprocess.Popen(command, cwd=work, env=environment))
    assert [p.wait() for p in programs] == [0] * 4
    assert {(work / f"{i}.metallib").read_bytes() for i in range(4)} == {good}
    assert len(list(place.iterdir())) == 3
