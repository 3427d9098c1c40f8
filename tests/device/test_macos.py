"""Whose device the GPU is on a Mac, by TensorFlow's release and what is installed; played here on any system."""

from __future__ import annotations

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
    """Makes one: what load() would do there, as a word."""

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
def test_a_system_whose_shaders_lack_bfloat16_is_refused(mac, release, theirs, asked):
    with pytest.raises(
        device.DeviceError, match="want macOS 14.0 or newer.*this is 13.7.2. Update"
    ):
        mac(release, theirs, asked, system="13.7.2")
    assert mac(release, theirs, asked, system="15.1") in ("ours", "theirs")


def test_one_version_for_host_code_shaders_and_links(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flags, "MACOS", True)
    wanted = f"-mmacosx-version-min={flags.MACOS_OF_METAL}"
    for options in (flags.objcxx_flags(), flags.metal_link_flags(), flags.shader_flags()):
        assert [word for word in options if "version-min" in word] == [wanted]


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
