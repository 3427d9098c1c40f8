"""The owner of the GPU device on a Mac, by TensorFlow's release and the installed plugins; played here on any
system."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from metal_ops import device
from metal_ops._version import TENSORFLOW_METAL_UNTIL, TENSORFLOW_RELEASES
from metal_ops.build import flags

RELEASES = [*TENSORFLOW_RELEASES]
LOADS, LEFT = "2.19", "2.20"


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch):
    """Makes one: the answer of load() there, as a word."""

    def make(release: str, theirs: str = "", asked: str = "", system: str = "14.0") -> str:
        monkeypatch.setattr(device.platform, "mac_ver", lambda: (system, ("", "", ""), "arm64"))
        monkeypatch.setattr(device, "build_info", lambda: {"tensorflow": f"{release}.1"})
        monkeypatch.setattr(device, "_tensorflow_metal", lambda: theirs)
        monkeypatch.setattr(device, "_load_own", lambda: "ours")
        monkeypatch.setattr(
            tf.config, "list_physical_devices", lambda kind: ["a GPU"] if theirs else []
        )
        monkeypatch.setattr(
            tf.config.experimental, "get_device_details", lambda gpu: {"device_name": "theirs"}
        )
        monkeypatch.setenv("METAL_OPS_DEVICE", asked)
        found = device._load_macos()
        return found if isinstance(found, str) else found[0].hardware

    return make


def test_the_releases_are_on_both_sides():
    assert LOADS == TENSORFLOW_METAL_UNTIL and RELEASES[RELEASES.index(LOADS) + 1] == LEFT


@pytest.mark.parametrize("asked", ["", "0", "1"])
@pytest.mark.parametrize("release", RELEASES[RELEASES.index(LEFT) :])
def test_ours_where_apple_has_left(mac, release, asked):
    assert mac(release, asked=asked) == "ours"


def test_theirs_where_it_loads(mac):
    assert mac(LOADS, theirs="1.2.0") == "theirs"
    assert mac(LOADS, theirs="1.2.0", asked="0") == "theirs"


def test_ours_where_it_loads_if_asked(mac):
    assert mac(LOADS, asked="1") == "ours"


def test_neither_names_both_remedies(mac):
    with pytest.raises(device.DeviceError, match="install tensorflow-metal==.*METAL_OPS_DEVICE=1"):
        mac(LOADS)


@pytest.mark.parametrize(
    ("release", "asked", "sentence"),
    [
        (LOADS, "1", "tensorflow-metal 1.2.0 is installed.*unset METAL_OPS_DEVICE, or `pip unin"),
        (LEFT, "1", "loads into no TensorFlow after 2.19.*2.20.*`pip uninstall tensorflow-metal`"),
        (LEFT, "", "loads into no TensorFlow after 2.19.*2.20.*`pip uninstall tensorflow-metal`"),
    ],
)
def test_both_are_refused(mac, release, asked, sentence):
    with pytest.raises(device.DeviceError, match=sentence) as refused:
        mac(release, theirs="1.2.0", asked=asked)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("release", "theirs", "asked"), [(LEFT, "", ""), (LOADS, "1.2.0", "")])
def test_a_system_that_is_too_old_is_refused(mac, release, theirs, asked):
    with pytest.raises(device.DeviceError, match="want macOS 13.0 or newer; this is 12.7.6. Up"):
        mac(release, theirs, asked, system="12.7.6")
    for system in ("13", "13.7.2", "15.1"):
        assert mac(release, theirs, asked, system=system) in ("ours", "theirs")


def mach_o(major: int, minor: int) -> bytes:
    """The beginning of a linked file: the header, a command of another kind, LC_BUILD_VERSION."""
    other = struct.pack("<6I", 0x1B, 24, 1, 2, 3, 4)  # LC_UUID
    version = struct.pack("<6I", 0x32, 24, 1, major << 16 | minor << 8, 15 << 16, 0)
    header = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 2, len(other + version), 0, 0)
    return header + other + version + bytes(100)


@pytest.mark.parametrize(
    ("built", "system", "sentence"),
    [
        ((14, 0), "13.7.2", "built for macOS 14.0 or newer; this is 13.7.2. Build it for this one "
         "without bfloat16, `make metal MACOS_OF_METAL=13.0` in the source checkout, update macOS"),
        ((15, 2), "15.1", "15.2 or newer; this is 15.1. Build it for this one, `make metal MACOS_OF_METAL=15.0`"),
        ((13, 0), "13.0", ""),
        ((13, 0), "15.1", ""),
        ((14, 0), "14.0", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("file", ["KERNELS", "PLUGIN"])
def test_what_is_built_for_a_newer_system_is_refused(
    mac, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file, built, system, sentence
):
    library = tmp_path / "lib.so"
    library.write_bytes(mach_o(*built))
    assert flags.macos_built_for(library) == built
    for name in ("KERNELS", "PLUGIN"):
        monkeypatch.setattr(device, name, library if name == file else tmp_path / "none.so")
    if not sentence:
        assert mac(LEFT, system=system) == "ours"
        return
    with pytest.raises(device.DeviceError, match=re.escape(sentence)) as refused:
        mac(LEFT, system=system)
    assert str(refused.value).startswith("metal_ops: lib.so is built for macOS ")


@pytest.mark.parametrize("content", [b"", b"\x7fELF" + bytes(60), mach_o(14, 0)[:31]])
def test_other_files_say_no_system(tmp_path: Path, content: bytes):
    (tmp_path / "lib.so").write_bytes(content)
    assert flags.macos_built_for(tmp_path / "lib.so") is None


@pytest.fixture
def build_on(monkeypatch: pytest.MonkeyPatch):
    """Makes a Mac that builds: its system, and MACOS_OF_METAL of its environment."""

    def make(system: str, asked: str) -> None:
        monkeypatch.setattr(flags, "MACOS", True)
        monkeypatch.setattr(flags.platform, "mac_ver", lambda: (system, ("", "", ""), "arm64"))
        monkeypatch.setenv("MACOS_OF_METAL", asked)

    return make


@pytest.mark.parametrize(
    ("system", "asked", "built"),
    [
        ("15.1", "", "14.0"),
        ("14.0", "", "14.0"),
        ("13.7.2", "", "13.0"),
        ("15.1", "13.0", "13.0"),
        ("15.1", "13.3", "13.3"),
        ("13.7.2", "14.0", "14.0"),
        ("13.7.2", "15", "15.0"),
    ],
)
def test_one_version_for_host_code_shaders_and_links(build_on, system, asked, built):
    build_on(system, asked)
    bfloat = not built.startswith("13.")
    for options in (flags.objcxx_flags(), flags.metal_link_flags(), flags.shader_flags()):
        assert [w for w in options if "version-min" in w] == [f"-mmacosx-version-min={built}"]
    assert ("-DMETAL_OPS_BFLOAT=0" in flags.objcxx_flags()) != bfloat
    language = [word for word in flags.shader_flags() if word.startswith("-std=")]
    assert language == ["-std=metal3.1" if bfloat else "-std=metal3.0"]


@pytest.mark.parametrize("asked", ["12", "12.6", "10.15", "x", "14.0 -O0", "14.", "-1", "0"])
def test_a_system_that_nothing_can_be_built_for_is_refused(build_on, asked):
    build_on("15.1", asked)
    for options in (flags.objcxx_flags, flags.metal_link_flags, flags.shader_flags):
        with pytest.raises(flags.MissingToolError, match="MACOS_OF_METAL is '.*13.0 on") as no:
            options()
        assert "\n" not in str(no.value) and repr(asked) in str(no.value)


def test_make_refuses_it_in_a_sentence(tmp_path: Path):
    command = [sys.executable, flags.__file__, str(tmp_path / "flags")]
    environment = {**os.environ, "MACOS_OF_METAL": "12"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and not (tmp_path / "flags" / "compiler").exists()
    assert done.stderr.startswith("metal_ops: MACOS_OF_METAL is '12', expected the macOS to build")
    assert done.stderr.count("\n") == 1


def test_where_the_plugin_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """In tensorflow-plugins where a wheel has put it there, beside the package in a checkout; on Linux never there."""
    found = tmp_path / "tensorflow-plugins" / "libmetal_device.dylib"
    monkeypatch.setattr(device, "FOUND_PLUGIN", found)
    monkeypatch.setattr(device.sys, "platform", "darwin")
    assert device._plugin_file() == device.PLUGIN
    found.parent.mkdir()
    found.touch()
    assert device._plugin_file() == found
    monkeypatch.setattr(device.sys, "platform", "linux")
    assert device._plugin_file() == device.PLUGIN
