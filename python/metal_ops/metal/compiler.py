"""The compiler's stages, from a .metal file to an object (.air) and from objects to a .metallib."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from . import cache, checks, coverage, cpu, gpu, kept_sources, lanes, tensors, toolchain
from .features import BFLOAT_SINCE, BFLOATS, LACKS
from .flat import flatten
from .linking import link
from .messages import render
from .reflect import reflect
from .reflection import Reflection
from .source import Source
from .syntax_tree import SyntaxTree
from .toolchain import CompileError

# In a shader, within #if defined(__METAL_CPU__): its kernels are compiled for processors with AVX-512 as well.
WIDE_PRAGMA = re.compile(r"^#[ \t]*pragma[ \t]+metal_ops[ \t]+wide_vectors[ \t]*$", re.M)

__all__ = ["CompileError", "Options", "compile_metallib", "compile_object", "link"]


@dataclass(frozen=True)
class Options:
    """The options of the command line.

    Attributes:
      defines: `NAME` or `NAME=VALUE`.
      include: folders for #include.
      std: language version, (3, 1) for metal3.1.
      fast_math: allow reassociation and reciprocals (Apple's default; here it is off).
      warnings: clang's -W flags.
      target: `x86-64-v3`, `native` or another CPU name of clang's -march; None for the default.
      validation: also make the bounds-checked kernels for METAL_DEVICE_WRAPPER_TYPE=1.
      plain: make the kernels that check nothing.
      checks: make the kernels of HOSTMETAL_CHECK, and no others.
      gpu: NVIDIA GPUs to make code for as well, `sm_80` or `sm_90`.
      logging: os_log writes messages; else its calls are left out.
      debug: make code that debuggers step through, thread by thread and without optimisation.
      coverage: count what runs; so does the environment variable HOSTMETAL_COVERAGE.
      lane_map: which lane has which element of a cooperative tensor; HOSTMETAL_LANE_MAP by default.
    """

    defines: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    std: tuple[int, int] = (3, 1)
    fast_math: bool = False
    warnings: tuple[str, ...] = ()
    target: str | None = None
    validation: bool = True
    plain: bool = True
    checks: bool = False
    undefines: tuple[str, ...] = field(default=())
    gpu: tuple[str, ...] = ()
    logging: bool = False
    debug: bool = False
    coverage: bool = field(default_factory=coverage.wanted)
    lane_map: str = field(default_factory=tensors.wanted)

    @property
    def variants(self) -> tuple[str, ...]:
        """The kinds of kernels to make."""
        if self.checks:
            return ("checks",)
        return ("plain",) * self.plain + ("checked",) * self.validation

    def code_flags(self, flat: str) -> list[str]:
        """Flags of clang's front end for a text with its includes, besides toolchain.code_flags."""
        has_tensors = tensors.used(flat, self.std)
        return [*(checks.flags() if self.checks else ()), *(tensors.FLAGS if has_tensors else ())]

    def language_defines(self, processor: str = "CPU") -> list[str]:
        """Predefined macros and the user's, in the order of the command line."""
        version = self.std[0] * 100 + self.std[1] * 10
        own = [
            f"__METAL_VERSION__={version}",
            "__METAL__=1",
            "__METAL_MACOS__=1",
            f"__METAL_{processor}__=1",
        ]
        if self.std >= BFLOAT_SINCE:
            own.append("__HAVE_BFLOAT__=1")
        if self.fast_math:
            own.append("__METAL_FAST_MATH__=1")
        if self.std >= tensors.SINCE:
            names = ("TENSOR", "EXECUTION_UNIT", "INT4B_FORMAT_TYPE")
            own += [f"__HAVE_{name}__=1" for name in names]
        return [*own, *self.defines]


def compile_object(file: str, options: Options, text: str | None = None) -> tuple[bytes, str]:
    """One .metal file as a relocatable object, and the warnings.

    Args:
      file: its path, which messages name.
      text: its content, if not that of the file.

    Raises:
      CompileError: with the messages.
    """
    data, said = _processor_object(file, options, text)
    return attach_gpu(data, file, options, text), said


def attach_gpu(data: bytes, file: str, options: Options, text: str | None) -> bytes:
    """An object of a .metal file with its code for GPUs, if `options` name any."""
    if not options.gpu:
        return data
    texts = [(name, gpu_text(file, options, text, name)) for name in options.gpu]
    return gpu.attach(data, texts)


def _flat(file: str, text: str | None, options: Options, defines: list[str]) -> str:
    include = [flag for folder in options.include for flag in ("-I", folder)]
    undefines = [f"-U{name}" for name in options.undefines]
    return flatten(file, text, [*include, *undefines], [f"-D{d}" for d in defines])


@dataclass(frozen=True)
class Unit:
    """One .metal file and the settings that its code for this processor depends on.

    Attributes:
      flat: its text with its includes.
      key: the cache's name for all of this.
      wide: whether it asks for code for wider vectors as well.
      beside: clang's flags for descriptions of the source beside its code.
      kept_source: the file that has the text of a source that is none.
    """

    file: str
    options: Options
    flat: str
    key: str
    target: str
    wide: bool
    beside: tuple[str, ...] = ()
    kept_source: Path | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """The kinds of kernels to make."""
        plain = self.options.plain and not self.options.checks
        as_written = self.options.debug or self.options.coverage
        wide = self.wide and plain and not as_written and self.target in toolchain.NARROW
        return self.options.variants + ("wide",) * wide

    @property
    def source(self) -> str:
        """A digest of the text alone."""
        return toolchain.digest(_anywhere(self.flat))

    def kept(self) -> tuple[bytes, str] | None:
        """The object and the warnings, if the cache has them."""
        kept = cache.read(f"{self.key}.air")
        if kept is None:
            return None
        # The messages lie before the object, so that both come from one write.
        said, _, data = kept.partition(b"\0")
        return data, said.decode()

    def flags(self, work: Path) -> list[str]:
        """All of clang's; `work` is a folder for the precompiled header."""
        fast = self.options.fast_math
        own = [*toolchain.code_flags(self.target, fast), *self.options.code_flags(self.flat)]
        host = toolchain.host_cpu() if self.target == "native" else ""
        prelude = str(toolchain.prelude_of(own, work, host))
        counters = [coverage.profile_list(work)] if self.options.coverage else []
        return [*own, "-include-pch", prelude, *self.options.warnings, *self.beside, *counters]

    def read(self, flags: list[str]) -> tuple[Source, Reflection, str]:
        """The rewritten source, its reflection, and the warnings."""
        read = _reflect(self.flat, self.file, self.options, flags, self.options.language_defines())
        if self.options.checks:  # every thread has a fiber: any may run between two accesses
            for kernel in read[1].kernels:
                kernel.fibers = not kernel.visible
        return read

    def compile(
        self, source: Source, reflection: Reflection, said: str, flags: list[str], work: Path
    ) -> bytes:
        """The object of a unit, which the cache has from then on."""

        def counted(text: str) -> str:
            return coverage.in_users_files(text, source, self.file, self.kept_source)

        edit = counted if self.options.coverage else None
        variants = self.variants
        data = cpu.compile_text(source.text, reflection, flags, self.target, variants, work, edit)
        cache.write(f"{self.key}.air", said.encode() + b"\0" + data)
        return data


def _anywhere(flat: str) -> str:
    """The text without the place of this library, which its lines name: another checkout finds the objects made
    here."""
    return flat.replace(str(toolchain.library_root()), "")


def unit(file: str, options: Options, text: str | None) -> Unit:
    """One .metal file with its includes."""
    defines = options.language_defines()
    flat = _flat(file, text, options, defines)
    target = options.target or toolchain.default_target()
    flags = [*toolchain.code_flags(target, options.fast_math), *options.code_flags(flat)]
    host = toolchain.host_cpu() if target == "native" else ""
    key = toolchain.cache_key(
        _anywhere(flat),
        *flags,
        host,
        repr(defines),
        repr(options.warnings),
        repr(options.std),
        repr(options.variants),
        repr(lanes.forced()),
        repr((options.logging, options.debug, options.coverage)),
        options.lane_map if tensors.used(flat, options.std) else "",
        file,
    )
    without, found = WIDE_PRAGMA.subn("", flat)
    # Kernels with checks say their lines themselves, and the linker leaves nothing to a debugger.
    debug = options.debug and not options.checks
    beside = ("-g", *kept_sources.flags(file, text)) if debug else ()
    kept = None
    if options.coverage:
        beside += tuple(coverage.FRONT)
        kept = kept_sources.kept(text) if text is not None else None
    return Unit(file, options, without, key, target, found > 0, beside, kept)


def _processor_object(file: str, options: Options, text: str | None) -> tuple[bytes, str]:
    one = unit(file, options, text)
    kept = one.kept()
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        work = Path(folder)
        flags = one.flags(work)
        source, reflection, said = one.read(flags)
        return one.compile(source, reflection, said, flags, work), said


def gpu_usage(file: str, options: Options, text: str | None = None) -> list[gpu.Usage]:
    """The resources that the kernels of one .metal file take of the GPUs of `options`.

    Raises:
      CompileError: with the messages.
    """
    return [
        usage
        for name in options.gpu
        for usage in gpu.assemble(gpu_text(file, options, text, name), name)
    ]


def gpu_text(file: str, options: Options, text: str | None, gpu_target: str) -> str:
    """PTX of one .metal file, from the cache where it is."""
    defines = options.language_defines("NVPTX") + gpu.defines(gpu_target)
    flat = _flat(file, text, options, defines)
    if tensors.used(flat, options.std):
        raise CompileError(
            f"{file}:1:1: error: tensors of Metal 4 run on processors here, and not on NVIDIA GPUs ({gpu_target}); compile "
            "the file without --gpu, or set HOSTMETAL_DEVICE=cpu"
        )
    target = options.target or toolchain.default_target()
    flags = gpu.flags(gpu_target, options.fast_math)
    key = toolchain.cache_key(
        _anywhere(flat), *flags, repr(defines), repr(options.std), repr(options.logging), file
    )
    name = f"{key}.ptx"
    kept = cache.read(name)
    if kept is not None:
        return kept.decode()
    front = toolchain.code_flags(target, options.fast_math)
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        prelude = toolchain.prelude(target, options.fast_math, Path(folder))
        front += ["-include-pch", str(prelude), *options.warnings]
        source, reflection, _ = _reflect(flat, file, options, front, defines)
    ptx = gpu.compile_text(source.text, reflection, gpu_target, options.fast_math)
    cache.write(name, ptx.encode())
    return ptx


def _reflect(
    flat: str, file: str, options: Options, flags: list[str], defines: list[str]
) -> tuple[Source, Reflection, str]:
    """The rewritten source, its reflection, and the warnings; `flags` are all of clang's."""
    head = "".join(
        f"#define {re.sub('=', ' ', d, count=1) if '=' in d else d + ' 1'}\n" for d in defines
    )
    if any(define.split("=")[0] == "NDEBUG" for define in defines):
        head += "#define assert(...) ((void)0)\n"  # also without <metal_assert>
    if options.std < BFLOAT_SINCE:
        head += "".join(f"#define {name} {LACKS}{name}\n" for name in BFLOATS)
    text = f"{head}# 1 {json.dumps(file)}\n{flat}"
    parser_flags = ["-x", "c++", "-fno-elide-type", "-ferror-limit=0", *flags]
    helps: frozenset[tuple[int, str]] = frozenset()
    while True:
        source = Source(text, helps)
        tree = SyntaxTree(source, parser_flags)
        reflection = reflect(tree, options.std)
        if tree.helps <= helps:
            break
        helps |= tree.helps
    reflection.logging, reflection.debug = options.logging, options.debug
    reflection.coverage = options.coverage
    reflection.lane_map = options.lane_map if tensors.used(flat, options.std) else ""
    said = render(reflection.messages, source.source_line)
    if any(m.severity == "error" for m in reflection.messages):
        count = sum(m.severity == "error" for m in reflection.messages)
        raise CompileError(f"{said}{count} error{'s' * (count > 1)} generated.")
    return source, reflection, said


def dependencies(file: str, options: Options) -> list[str]:
    """The files that `file` is made of, itself first."""
    include = [flag for folder in options.include for flag in ("-I", folder)]
    flat = flatten(file, None, include, [f"-D{d}" for d in options.language_defines()])
    own = str(toolchain.library_root())
    names = dict.fromkeys(m.group(1) for m in re.finditer(r'^# \d+ "([^"]+)"', flat, re.M))
    return [n for n in names if not n.startswith(("<", own)) and n != file and Path(n).exists()] + [
        file
    ]


def compile_metallib(files: list[str], options: Options) -> tuple[bytes, str]:
    """.metal files as one .metallib, and the warnings."""
    objects, said = [], ""
    for file in files:
        data, words = compile_object(file, options)
        objects.append(data)
        said += words
    return link(objects, options.target), said
