"""`make release`: all wheels, each tried in an environment of its own, their checksums and the page to take them from.

    dist/release/*.whl         two for each release of TensorFlow: the package, and its Metal half for Linux
    dist/release/pypi/*.whl    the package with a version and a tag that PyPI takes, for the first of these releases
    dist/release/SHA256SUMS    of the former, for `sha256sum -c`
    dist/release/index.html    the page, which `pip install --find-links` reads, too

Each step is written into build/release/state.json when it is done: a second call goes on behind the last of them. The
log of a step is beside that file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import libraries
import page

ROOT = Path(__file__).resolve().parents[2]
VERSION = libraries.VERSIONS["__version__"]
RELEASES = libraries.VERSIONS["TENSORFLOW_RELEASES"]
# Run in a new environment: by the package alone, and with the Metal half.
ON_CPU = "import metal_ops\nassert metal_ops.zero_out([5, 4]).numpy().tolist() == [5, 0]\n"
ON_METAL = (
    "import tensorflow as tf, metal_ops\nmetal_ops.device.load()\nwith tf.device('GPU:0'):\n"
    "    x = metal_ops.softshrink(tf.constant([2.0, -0.25]))\n"
    "assert 'GPU' in x.device and x.numpy().tolist() == [1.5, 0.0], x\n"
)
# Seconds between the lines of a long step.
MINUTE = 60.0


class StepError(Exception):
    """A step failed; the message says which, and where its log is."""


class Release:
    """The steps, and a record of those that are done.

    Args:
      output: The folder of the wheels, the checksums and the page.
      state: The folder of state.json, logs and environments.
      trial: Whether to take the libraries of this checkout as they are, for its release of TensorFlow alone, and
        dependencies from the environment that runs this.
    """

    def __init__(self, output: Path, state: Path, trial: bool = False) -> None:
        self.output, self.folder, self.trial = output.resolve(), state.resolve(), trial
        self.commit = said("git", "describe", "--always", "--dirty", "--abbrev=12")
        self._began = time.monotonic()
        self._file = self.folder / "state.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        of = [VERSION, self.commit, "trial" if trial else "release"]
        self.state: dict[str, Any] = {}
        if self._file.exists():
            self.state = json.loads(self._file.read_text())
        # Changes that are not committed have no name that could be compared.
        if self.state.get("of") != of or self.commit.endswith("-dirty"):
            if self.state:
                self.say(
                    f"the sources may differ from those of the last call: all of {VERSION} anew"
                )
            self.state = {"of": of, "wheels": {}, "tried": {}}

    def say(self, text: str) -> None:
        print(f"release: {time.monotonic() - self._began:5.0f} s  {text}", flush=True)

    def keep(self) -> None:
        """Writes the state; a call that is ended leaves the old one or the new one."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(self.state, indent=1) + "\n")
        temporary.replace(self._file)

    def call(self, name: str, *command: str | Path, **options: Any) -> None:
        """Runs a command with its output in a log, and says the log's last line each minute.

        Raises:
          StepError: It failed.
        """
        log = self.folder / f"{name}.log"
        with open(log, "a") as file:
            running = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
            while True:
                try:
                    code = running.wait(MINUTE)
                    break
                except subprocess.TimeoutExpired:
                    self.say(f"  {last_lines(log, 1)[:100]}")
                except BaseException:
                    running.terminate()
                    running.wait()
                    raise
        if code:
            raise StepError(
                f"{name} failed (exit code {code}): {last_lines(log, 3)}; {log} has all"
            )

    def step(
        self, kind: str, key: str, digests: Callable[[], Any], work: Callable[[], Any]
    ) -> bool:
        """Does `work` unless its result is there: `digests` of it are those that were kept."""
        if self.state[kind].get(key, None) == (now := digests()) and now:
            self.say(f"{kind} {key}: done before")
            return False
        self.say(f"{kind} {key} ...")
        work()
        self.state[kind][key] = digests()
        self.keep()
        return True

    # ---- the steps --------------------------------------------------------------------------------------------------
    def wheels(self, release: str) -> dict[str, str]:
        """Names and digests of a release's wheels that are there."""
        public = (
            [] if release != next(iter(RELEASES)) else self.output.glob(f"pypi/*-{VERSION}-*.whl")
        )
        found = [*self.output.glob(f"*-{VERSION}+tf{release}-*.whl"), *public]
        return {str(path.relative_to(self.output)): digest(path) for path in sorted(found)}

    def build(self, release: str) -> None:
        """Makes them."""
        tree = ROOT if release == own_release() else ROOT / "build" / f"tf-{release}"
        made = self.folder / f"made-{release}"
        shutil.rmtree(made, ignore_errors=True)
        # An outer make's options and job server are not for this one.
        drop = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TF", "ARGS", "METAL_OPS_LIBRARIES")
        environment = {name: value for name, value in os.environ.items() if name not in drop}
        script = "tools/packaging/make_wheels.py"
        python: str | Path = sys.executable
        mode = ["--trial"] if self.trial else []
        if not self.trial:
            words = ["make", f"TF={release}", "METAL_OPS_TARGETS=all", "build", "metal"]
            self.call(f"build-{release}", *words, cwd=ROOT, env=environment)
            python = tree / ".venv/bin/python"
        for public in (False, True)[: 1 + (release == next(iter(RELEASES)))]:
            words = [*mode, *["--pypi"][: int(public)]]
            out = made / "pypi" if public else made
            at = f"wheels-{release}"
            self.call(at, python, script, out, *words, cwd=tree, env=environment)
        for name in self.wheels(release):
            (self.output / name).unlink()
        for path in sorted(made.rglob("*.whl")):
            target_path = self.output / path.relative_to(made)
            target_path.parent.mkdir(exist_ok=True)
            path.replace(target_path)

    def attempt(self, release: str) -> None:
        """Installs them into a new environment, and runs the doctor and an op: without the Metal half, and with it."""
        # PyPI's is replaced by the one that the Metal half asks for.
        order = sorted(
            self.wheels(release), key=lambda name: ("/" not in name, "hostmetal" in name)
        )
        name = f"try-{release}"
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "work").mkdir(parents=True)
        drop = re.compile(r"(METAL_OPS|HOSTMETAL|PYTHON|PIP_NO|VIRTUAL_ENV|MAKE)")
        environment = {n: value for n, value in os.environ.items() if not drop.match(n)}
        environment |= {"METAL_OPS_CACHE": str(folder / "cache"), "TF_CPP_MIN_LOG_LEVEL": "2"}
        python = folder / "venv/bin/python"
        options: dict[str, Any] = {"cwd": folder / "work", "env": environment}
        if self.trial:
            venv: Sequence[str] = [sys.executable, "-m", "venv", "--without-pip"]
            pip = [sys.executable, "-m", "pip", "--python", python]
            more = ["--no-deps", "--no-index", "--no-compile"]
        else:
            venv, pip, more = [interpreter(release), "-m", "venv"], [python, "-m", "pip"], []
        self.call(name, *venv, folder / "venv", **options)
        if self.trial:
            # A folder in a .pth file is searched last, and .pth files in it are not read.
            where = next((folder / "venv/lib").glob("python*/site-packages"))
            (where / "borrowed.pth").write_text("\n".join([*site.getsitepackages(), ""]))
        for wheel in order:
            program = ON_METAL if "hostmetal" in wheel else ON_CPU
            install = [*pip, "install", "--disable-pip-version-check", "-q", *more]
            self.call(name, *install, self.output / wheel, **options)
            self.call(name, python, "-m", "metal_ops", "doctor", **options)
            self.call(name, python, "-c", program, **options)
        shutil.rmtree(folder)

    def finish(self, releases: Sequence[str], url: str) -> None:
        """Checksums and page of all wheels.

        Raises:
          StepError: Wheels of other releases lie there, and would be taken for this one's.
        """
        digests = {n: d for release in releases for n, d in self.state["wheels"][release].items()}
        there = {str(path.relative_to(self.output)) for path in self.output.rglob("*.whl")}
        if others := sorted(there - digests.keys()):
            raise StepError(
                f"{self.output} has wheels of another call, such as {others[0]}; remove them"
            )
        own = sorted((name, value) for name, value in digests.items() if "/" not in name)
        lines = "".join(f"{value}  {name}\n" for name, value in own)
        (self.output / "SHA256SUMS").write_text(lines)
        rows = [
            page.Row(
                name,
                (self.output / name).stat().st_size,
                value,
                release,
                RELEASES[release][2].split(),
            )
            for release in releases
            for name, value in sorted(self.state["wheels"][release].items())
            if "/" not in name
        ]
        text = page.render(VERSION, self.commit, rows, url, self.trial)
        (self.output / "index.html").write_text(text)
        self.say(f"{len(digests)} wheels, SHA256SUMS and index.html in {self.output}")

    def run(self, releases: Sequence[str], url: str = "") -> None:
        """All of it.

        Raises:
          StepError: A step failed; what was done before it is kept.
        """
        for number, release in enumerate(releases, 1):
            self.say(f"TensorFlow {release}, {number} of {len(releases)}")
            self.step(
                "wheels", release, lambda r=release: self.wheels(r), lambda r=release: self.build(r)
            )
            self.step(
                "tried",
                release,
                lambda r=release: self.wheels(r),
                lambda r=release: self.attempt(r),
            )
        self.finish(releases, url)


def last_lines(log: Path, count: int) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-count:])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def said(*command: str) -> str:
    """A command's output, in the checkout."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def own_release() -> str:
    return said("tools/setup.sh", "--release")


def interpreter(release: str) -> str:
    """A Python that the release of TensorFlow has wheels for.

    Raises:
      StepError: None is installed.
    """
    lines = [line.split() for line in said("tools/setup.sh", "--pythons", release).splitlines()]
    found = next((line[1] for line in lines if len(line) > 1), None)
    if found is None:
        versions = ", ".join(line[0] for line in lines)
        raise StepError(
            f"TensorFlow {release} needs Python {versions} to be tried, and none is here"
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "release")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "release")
    parser.add_argument(
        "--tensorflow", nargs="+", choices=RELEASES, metavar="RELEASE", default=[*RELEASES]
    )
    parser.add_argument(
        "--url", default="", help="where the wheels will lie; beside the page if left out"
    )
    parser.add_argument(
        "--trial",
        action="store_true",
        help="with the libraries as they are, for this checkout's release of TensorFlow and, maybe, this machine alone",
    )
    arguments = parser.parse_args()
    releases = [own_release()] if arguments.trial else arguments.tensorflow
    release = Release(arguments.output, arguments.state, arguments.trial)
    if not arguments.trial and (not release.commit or release.commit.endswith("-dirty")):
        parser.error(
            "the checkout has changes that are not committed, which a release cannot name; commit them."
        )
    try:
        release.run(releases, arguments.url)
    except StepError as error:
        release.say(f"{error}; the same command goes on from here")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
