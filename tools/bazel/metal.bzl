"""Objective-C++, shaders and shared objects: Bazel's own C++ rules know no .mm outside of macOS.

Compiler and flags are those of python/metal_ops/build/flags.py, as in the Makefile. System headers, TensorFlow's among
them, are used where they lie: thousands of links for each of these actions would take longer than compiling.
"""

load("@metal//:config.bzl", "CFLAGS", "COMPILER", "LDFLAGS", "MACOS", "SHADER_FLAGS")
load("@tensorflow//:config.bzl", "DEFINES", "INCLUDE", "LIBRARY", "PYTHON")

_REPRODUCIBLE = ["-ffile-prefix-map=" + INCLUDE + "=tensorflow"]
_CXXFLAGS = ["-std=c++17", "-DNDEBUG", "-fPIC", "-ffp-contract=off", "-pthread"]
_TENSORFLOW_CFLAGS = ["-isystem", INCLUDE] + DEFINES
_TENSORFLOW_LDFLAGS = ["-L" + LIBRARY] + (
    ["-ltensorflow_framework.2"] if MACOS else ["-l:libtensorflow_framework.so.2"]
)

# The project's own runtime is named by a label, and where libraries look is said in one place.
_METAL_LDFLAGS = [flag for flag in LDFLAGS if flag not in ("-lhostmetal", "-Wl,-rpath,$ORIGIN")]

# For the copts of targets that are neither the runtime nor a test; the header says why.
PROTOCOLS_ONCE = [] if MACOS else ["-include", "hostmetal/protocols_once.h"]

def _quoted(arguments):
    """For a genrule's shell: in single quotes, and with Bazel's dollars."""
    return " ".join(["'" + argument.replace("$", "$$") + "'" for argument in arguments])

def objects(name, srcs, headers, copts = [], tensorflow = False, linux_only = False, **kwargs):
    """Compiles C++ and Objective-C++ sources to position-independent objects; `name` is all of them.

    Args:
      name: a filegroup of the objects.
      srcs: .cc and .mm files of this package.
      headers: labels of what they include from this repository.
      copts: more flags.
      tensorflow: whether they include TensorFlow's headers.
      linux_only: whether macOS has its own of this, and there is no such target there.
      **kwargs: what all rules have.
    """
    if MACOS and linux_only:
        return
    outs = []
    for src in srcs:
        out = "%s.objects/%s.o" % (name, src.rpartition(".")[0])
        language = CFLAGS if src.endswith(".mm") else _CXXFLAGS
        flags = language + ["-O2", "-I."] + copts + (_TENSORFLOW_CFLAGS if tensorflow else []) + _REPRODUCIBLE
        native.genrule(
            name = out + "_",
            srcs = [src] + headers,
            outs = [out],
            cmd = "%s %s -c $(location %s) -o $@" % (COMPILER, _quoted(flags), src),
            message = "Compiling",
        )
        outs.append(out)
    native.filegroup(name = name, srcs = outs, **kwargs)

def linked(name, objects, libraries = [], exports = None, ldflags = [], metal = False, tensorflow = False, shared = True, linux_only = False, **kwargs):
    """Links objects to a shared object or, with shared = False, to a program.

    Args:
      name: the file.
      objects: labels of `objects()`.
      libraries: labels of shared objects that are linked against and lie beside the result when it runs.
      exports: a version script's label; nothing else is exported.
      ldflags: more flags, behind all others.
      metal: whether Metal and Foundation are linked.
      tensorflow: whether TensorFlow is linked.
      shared: False for a program.
      linux_only: see objects().
      **kwargs: what all rules have.
    """
    if MACOS and linux_only:
        return

    # The order is make's: the loader takes a name that several libraries have, such as _Block_copy, from the first.
    flags = (_METAL_LDFLAGS if metal else []) + (_TENSORFLOW_LDFLAGS if tensorflow else []) + ldflags
    if MACOS:
        flags = flags + ["-Wl,-undefined,dynamic_lookup", "-Wl,-rpath,@loader_path"]
        if shared:
            flags = flags + ["-Wl,-install_name,@rpath/" + name]
    else:
        flags = flags + ["-Wl,-rpath,$ORIGIN"]
    command = [COMPILER, "-pthread"] + (["-shared"] if shared else []) + ["$(locations %s)" % label for label in objects]
    command += ["-o", "$@"]
    if libraries:
        # By folder and name, or the loader would look for the path at the time of linking.
        command += ["-L$$(dirname $(location %s)) -l:$$(basename $(location %s))" % (label, label) for label in libraries]
    command.append(_quoted(flags))
    if exports and MACOS:
        command.append("$$(sed -n '/global:/,/local:/s/^ *\\([A-Za-z_*]*\\);/-Wl,-exported_symbol,_\\1/p' $(location %s))" % exports)
    elif exports:
        command.append("-Wl,--version-script,$(location %s)" % exports)
    native.genrule(
        name = name + "_",
        srcs = objects + libraries + ([exports] if exports else []),
        outs = [name],
        cmd = " ".join(command),
        executable = not shared,
        message = "Linking",
        **kwargs
    )

def metallib(name, srcs, headers, linux_only = False, **kwargs):
    """Compiles Metal shaders to one library: by Apple's compiler on macOS, by the project's own elsewhere.

    Args:
      name: the file.
      srcs: .metal files of this package.
      headers: labels of what they include.
      linux_only: see objects().
      **kwargs: what all rules have.
    """
    if MACOS and linux_only:
        return
    own = PYTHON + " python/metal_ops/metal"
    compiler = "xcrun -sdk macosx metal " + " ".join(SHADER_FLAGS) if MACOS else own
    linker = "xcrun -sdk macosx metallib" if MACOS else own + " metallib"
    tools = [] if MACOS else ["//python:shader_compiler"]
    airs = []
    for src in srcs:
        air = "%s.airs/%s.air" % (name, src.rpartition(".")[0])
        native.genrule(
            name = air + "_",
            srcs = [src] + headers + tools,
            outs = [air],
            cmd = "%s -c -I. -Wall $(location %s) -o $@" % (compiler, src),  # make's, so that its cache serves
            message = "Compiling shaders",
        )
        airs.append(air)
    native.genrule(
        name = name + "_",
        srcs = airs + tools,
        outs = [name],
        cmd = linker + " " + " ".join(["$(location %s)" % air for air in airs]) + " -o $@",
        message = "Linking",
        **kwargs
    )
