"""The file: a zip archive of stored members that begin at multiples of 64 bytes, so that weights are mapped, not read.

`manifest.json` lists its contents, with the SHA-256 of each other member. Whatever the bytes of a file, `open_file`
returns or raises PackageError: it looks at sizes before it reads, and nothing is ever unpacked to a path.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import platform
import struct
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from metal_ops.package.errors import PackageError
from metal_ops.programs.errors import short

VERSION = 1
FORMAT = "metal_ops package"
MANIFEST = "manifest.json"
ALIGNMENT = 64
# A manifest of some thousand weights has less than a mebibyte.
MAX_MANIFEST = 64 << 20
MAX_MEMBERS = 10_000
_LOCAL_HEADER = 30
_PADDING = 0xD935  # the extra field that Android's zipalign pads with
_ZIP64_EXTRA = 20


def write(path: Path, manifest: dict[str, Any], members: Mapping[str, Iterable[Any]]) -> None:
    """Writes a package, which appears under its name when it is whole.

    Args:
      path: The file.
      manifest: The manifest; "members" is added.
      members: By name the parts of each, bytes or arrays, in order.

    Raises:
      PackageError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file, zipfile.ZipFile(file, "w") as archive:
                described = {}
                for name, parts in members.items():
                    described[name] = _write_member(archive, file, name, parts)
                text = json.dumps({**manifest, "members": described}, indent=1).encode()
                _write_member(archive, file, MANIFEST, [text])
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PackageError(
            f"[package.save] {path}: cannot be written ({error.strerror or error}); make room, or give another path."
        ) from error


def _write_member(
    archive: zipfile.ZipFile, file: Any, name: str, parts: Iterable[Any]
) -> dict[str, Any]:
    info = zipfile.ZipInfo(name)  # of 1980: the same content makes the same file
    # All of them, as the size is not known before: the local header then has a field for large sizes.
    head = file.tell() + _LOCAL_HEADER + len(name) + _ZIP64_EXTRA + 4
    padding = -head % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
    digest, size = hashlib.sha256(), 0
    with archive.open(info, "w", force_zip64=True) as member:
        for part in parts:
            view = memoryview(part).cast("B")
            digest.update(view)
            member.write(view)
            size += len(view)
    return {"size": size, "sha256": digest.hexdigest()}


class File:
    """An open package.

    Attributes:
      path: Where it lies.
      manifest: The manifest, checked for its types (see manifest.py).
    """

    def __init__(self, path: Path, data: memoryview, places: dict[str, tuple[int, int]]):
        self.path = path
        self._data = data
        self._places = places
        self.manifest: dict[str, Any] = {}

    def member(self, name: str) -> memoryview:
        """A member's bytes, not copied.

        Raises:
          PackageError: There is none of that name.
        """
        if name not in self._places:
            raise PackageError(f"{self.path}: has no member {short(name)}; save it again.")
        begin, size = self._places[name]
        return self._data[begin : begin + size]

    def names(self) -> list[str]:
        """All members."""
        return [*self._places]

    def check(self, name: str) -> None:
        """Holds a member against its hash.

        Raises:
          PackageError: It is another one.
        """
        said = self.manifest["members"][name]
        content = self.member(name)
        if len(content) != said["size"] or hashlib.sha256(content).hexdigest() != said["sha256"]:
            raise PackageError(
                f"{self.path}: {name} is not what was saved (its SHA-256 differs); copy or save the file again."
            )


def open_file(path: Path) -> File:
    """Maps a package, and reads its manifest as JSON.

    Raises:
      PackageError: It cannot be read, is no package, or is cut off.
    """
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise PackageError(f"{path}: is empty; save it again.")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, PackageError):
            raise
        raise PackageError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})."
        ) from None
    data = memoryview(mapped)
    if data[:4] != b"PK\x03\x04":
        raise PackageError(
            f"{path}: is no package; expected a file of metal_ops.package.save or `metal_ops package save`."
        )
    opened = File(path, data, _places(path, mapped, data))
    if MANIFEST not in opened.names():
        raise PackageError(f"{path}: is a zip archive, but no package: it has no {MANIFEST}.")
    text = opened.member(MANIFEST)
    if len(text) > MAX_MANIFEST:
        raise PackageError(f"{path}: {MANIFEST} has {len(text)} bytes, more than {MAX_MANIFEST}.")
    try:
        manifest = json.loads(bytes(text))
    except (ValueError, RecursionError):
        raise PackageError(f"{path}: {MANIFEST} is no JSON; copy or save the file again.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError(f"{path}: is a zip archive, but its {MANIFEST} is not a package's.")
    opened.manifest = manifest
    return opened


class _Bytes:
    """The file methods that zipfile needs, over the mapped bytes."""

    def __init__(self, mapped: mmap.mmap):
        self._mapped, self._at = mapped, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, len(self._mapped))[whence]
        if at < 0:
            raise OSError("before the file's begin")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        end = len(self._mapped) if n is None or n < 0 else self._at + n
        found = self._mapped[self._at : end]
        self._at += len(found)
        return found


def _places(path: Path, mapped: mmap.mmap, data: memoryview) -> dict[str, tuple[int, int]]:
    """Begin and size of each member."""
    cut = PackageError(
        f"{path}: is cut off or damaged (its archive cannot be read); copy or save the file again."
    )
    try:
        archive: Any = zipfile.ZipFile(_Bytes(mapped))  # type: ignore[arg-type]
        infos = archive.infolist()
    # NotImplementedError, struct.error, ValueError, RecursionError, ...: zipfile's errors for damaged archives.
    except Exception:
        raise cut from None
    if len(infos) > MAX_MEMBERS:
        raise PackageError(f"{path}: has {len(infos)} members, more than {MAX_MEMBERS}.")
    places = {}
    for info in infos:
        begin = info.header_offset
        if begin < 0 or begin + _LOCAL_HEADER > len(data):
            raise cut
        head = data[begin : begin + _LOCAL_HEADER]
        if head[:4] != b"PK\x03\x04":
            raise cut
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise PackageError(
                f"{path}: {short(info.filename)} is compressed, and a package's members are not; save it again instead "
                "of zipping it."
            )
        name_size, extra_size = struct.unpack_from("<HH", head, 26)
        begin += _LOCAL_HEADER + name_size + extra_size
        if begin + info.file_size > len(data):
            raise cut
        if info.filename in places:
            raise PackageError(f"{path}: has two members {short(info.filename)}; save it again.")
        places[info.filename] = (begin, info.file_size)
    return places


def platform_name() -> str:
    """The platform that compiled shaders run on, such as "linux-x86_64"."""
    return f"{sys.platform}-{platform.machine()}"
