"""The compiler's code for this machine's processor: an ELF object, from the rewritten source and its kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import checks, coverage, ir, lanes, toolchain
from .reflection import Reflection
from .wrappers import wrappers

STACK_BYTES = 65536  # of a fiber; raised where a kernel's frames are larger
STACK_RESERVE = 16384  # for the C library's functions
KERNELS_PER_PART = (
    16  # that one optimiser has; not by the machine's cores, on which the object may not depend
)
# In kernels with barriers, statements next to each other make vectors of at most 256 bits: LLVM 19 loses values where
# it gathers numbers for one of 512 (https://github.com/llvm/llvm-project/issues/117170 is of the kind; gemm_few's
# bfloat sums were wrong). Loops over lanes, and over the values of one thread, are another pass's, which makes vectors
# of 512.
SHORT_SLP = ("-mllvm", "-slp-max-reg-size=256")
# A section each: the linker leaves one of those with the same code.
SECTIONS = "-ffunction-sections"


def front_end(text: str, flags: list[str]) -> str:
    """The rewritten source with wrappers behind it as IR; `flags` are all of clang's."""
    command = [*flags, "-w", "-x", "c++", "-", "-S", "-emit-llvm", "-Xclang"]
    return toolchain.run(
        [toolchain.clang(), *command, "-disable-llvm-passes", "-o", "-"],
        "the front end",
        text,
    )


def compile_text(
    text: str,
    reflection: Reflection,
    flags: list[str],
    target: str,
    variants: Sequence[str],
    work: Path,
    edit: Callable[[str], str] | None = None,
) -> bytes:
    """The rewritten source as a relocatable object.

    Args:
      flags: all of clang's.
      work: a folder for files.
      edit: changes the front end's IR.
    """
    whole = front_end(wrappers(reflection).behind(text), flags)
    whole = edit(whole) if edit else whole
    if ir.for_debugger(whole):
        whole = ir.with_users_lines(whole)
    # The description of a source beside its code is one piece.
    if ir.for_debugger(whole) or coverage.counts(whole):
        parts = [(list(range(len(reflection.kernels))), whole)]
    else:
        parts = ir.split(whole, KERNELS_PER_PART)
    names = [kernel.host_name for kernel in reflection.kernels]
    constants = [c.name for c in reflection.constants]
    return compile_parts(parts, names, constants, target, variants, work)


def compile_parts(
    parts: list[tuple[list[int], str]],
    names: Sequence[str],
    constants: list[str],
    target: str,
    variants: Sequence[str],
    work: Path,
) -> bytes:
    """Parts of a module, as ir.split cuts them, as one object; `names` are those of all of the module's kernels."""

    def back_end(i: int, variant: str, text: str) -> list[Path]:
        out = work / f"{variant}{i}.o"
        # A kernel's name is marked once.
        marks = ir.mark_names([names[number] for number in parts[i][0]]) * (variant == variants[0])
        if variant == "checks":
            checks.back_end(lanes.by_fibers(ir.checked(text + marks)), target, out)
            _say_stack(out)
            return [out]
        if variant == "checked":
            # Alone, it is made while a caller waits for it; beside others, it is packed.
            level = "-O1" if len(variants) > 1 else "-O0"
            _back_end_checked(lanes.by_fibers(ir.checked(text + marks)), target, out, level)
            return [out]
        text, cpu_ = ir.unchecked(text), target
        if variant in ("wide", "widened"):  # beside the plain ones, or in their place
            text, cpu_ = ir.widened(text, toolchain.attributes(toolchain.WIDE)), toolchain.WIDE
        if variant == "wide":
            text = ir.wide(text)
        modules = [lanes.by_fibers(text)] if ir.by_thread(text) else lanes.by_lanes(text, cpu_)[0]
        modules[0] += marks
        flags = SHORT_SLP if ir.meeting(text) else ()
        made = [out.with_stem(f"{out.stem}_{n}") for n in range(len(modules))]
        for module, file in zip(modules, made, strict=True):
            _back_end(module, cpu_, file, flags)
        return made

    jobs = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for i, (_, part) in enumerate(parts):
            text = ir.unaligned(ir.prepare(part, constants))
            jobs += [pool.submit(back_end, i, variant, text) for variant in variants]
        objects = [file for job in jobs for file in job.result()]
    return _joined(objects, work)


def compile_tables(text: str, target: str, variants: Sequence[str], work: Path) -> bytes:
    """A module that describes kernels and has no code of them, as an object."""
    part = lanes.by_fibers(ir.prepare(text, []))
    objects = []
    for variant in variants:
        if variant == "wide":
            continue  # a library without code
        text = ir.checked(part) if variant in ("checked", "checks") else ir.unchecked(part)
        objects.append(work / f"tables_{variant}.o")
        command = [toolchain.clang(), "-x", "ir", "-O0", "-fPIC", "-c", "-w", "-"]
        toolchain.run(
            [*command, "-o", str(objects[-1]), *toolchain.march(target)], "the tables", text
        )
    return _joined(objects, work)


def _joined(objects: list[Path], work: Path) -> bytes:
    if len(objects) == 1:
        return objects[0].read_bytes()
    out = work / "out.air"
    toolchain.run([toolchain.linker(), "-r", *map(str, objects), "-o", str(out)], "the linker")
    return out.read_bytes()


def _back_end(text: str, target: str, out: Path, flags: Sequence[str]) -> None:
    """IR to object."""
    command = [
        toolchain.clang(),
        "-x",
        "ir",
        "-O0" if ir.for_debugger(text) else "-O3",
        "-fPIC",
        "-c",
        "-w",
        "-",
        "-o",
        str(out),
        *toolchain.march(target),
    ]
    command += [*flags, "-fno-math-errno", "-fstack-usage", SECTIONS]
    command += coverage.BACK if coverage.counts(text) else []
    toolchain.run(command, "the optimiser", text)
    _say_stack(out)


def _back_end_checked(text: str, target: str, out: Path, level: str) -> None:
    march = toolchain.march(target)
    common = [toolchain.clang(), "-x", "ir", "-fPIC", "-w", "-fno-math-errno", *march, "-"]
    optimised = "-O0" if ir.for_debugger(text) else "-O1"
    common += coverage.BACK if coverage.counts(text) else []
    light = toolchain.run(
        [*common, optimised, "-S", "-emit-llvm", "-o", "-"], "the optimiser", text
    )
    # Only instruction selection is left: a call before every access leaves little to optimise. With -O1 that takes five
    # times as long for two thirds of the code.
    command = [*common, level, "-Xclang", "-disable-llvm-passes", "-c", "-fstack-usage", SECTIONS]
    command += ["-o", str(out)]
    toolchain.run(command, "the checked variant", ir.instrument(light))
    _say_stack(out)


def _say_stack(out: Path) -> None:
    """Writes into an object the bytes of stack that a fiber of it needs."""
    size = max(STACK_BYTES, (_stack_needed(out) + 4095) // 4096 * 4096)
    mark = ir.STACK_MARK.to_bytes(8, "little")
    out.write_bytes(out.read_bytes().replace(mark, size.to_bytes(8, "little")))


def _stack_needed(out: Path) -> int:
    """The largest kernel, everything that could not be inlined into it (there is no recursion), and libm.

    A kernel's functions of different kinds are on the stack together: the loop over its parallel regions calls a region.
    """
    kernels: dict[str, dict[str, int]] = {"": {"": 0}}
    others = [0]
    usage = out.with_suffix(".su")  # not written where no function is left
    for line in usage.read_text().splitlines() if usage.exists() else []:
        name, size, _ = line.rsplit("\t", 2)
        own = re.search(r"_msl_(K|inner|run|lanes|simdgroup)(\d*)", name)
        if own:
            kinds = kernels.setdefault(own[2], {})
            kinds[own[1]] = max(kinds.get(own[1], 0), int(size))
        else:
            others.append(int(size))
    largest = max(sum(kinds.values()) for kinds in kernels.values())
    return largest + min(sum(others), 32 * max(others)) + STACK_RESERVE
