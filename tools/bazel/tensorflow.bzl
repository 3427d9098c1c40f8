"""Repositories of what the active Python and the system have: TensorFlow, the Objective-C++ compiler, Highway."""

_ASK = """
import json, os, sys
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import tensorflow as tf
print(json.dumps([sys.executable, tf.__version__, tf.sysconfig.get_include(), tf.sysconfig.get_lib(),
                  [f for f in tf.sysconfig.get_compile_flags() if f.startswith('-D')]
                  + ['-DMETAL_OPS_TENSORFLOW=' + tf.__version__]]))
"""

def _is_macos(ctx):
    return ctx.os.name.startswith("mac")

def _python(ctx):
    return ctx.os.environ.get("METAL_OPS_PYTHON") or ctx.which("python3")

def _tensorflow_impl(ctx):
    python = _python(ctx)
    answer = ctx.execute([python, "-c", _ASK])
    if answer.return_code:
        fail("%s cannot import TensorFlow; activate the environment that has it (`make setup` makes .venv), or set METAL_OPS_PYTHON.\n%s" % (python, answer.stderr))
    python, version, include, library, defines = json.decode(answer.stdout.strip().split("\n")[-1])
    versions = ctx.read(ctx.path(Label("//python:metal_ops/_version.py")))
    table = versions.split("TENSORFLOW_RELEASES = {")[1].split("}")[0]
    supported = [line.split('"')[1] for line in table.split("\n") if '"' in line]
    if ".".join(version.split(".")[:2]) not in supported:
        fail("metal_ops is written for TensorFlow %s, %s has %s" % (", ".join(supported), python, version))
    ctx.symlink(include, "include")
    framework = "libtensorflow_framework.2.dylib" if _is_macos(ctx) else "libtensorflow_framework.so.2"
    ctx.symlink(library + "/" + framework, framework)
    ctx.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "tensorflow",
    hdrs = glob(["include/**/*"], exclude = ["**/* *"]),
    srcs = ["{framework}"],
    includes = ["include"],
    # -DNDEBUG: the headers lay out classes differently without it, and tf.sysconfig does not say so.
    defines = {defines},
)
""".format(framework = framework, defines = [d[2:] for d in defines] + ["NDEBUG"]))
    version = versions.split('__version__ = "')[1].split('"')[0]
    ctx.file("config.bzl", "\n".join([
        'PYTHON = "%s"' % python,
        'INCLUDE = "%s"' % include,
        'LIBRARY = "%s"' % library,
        "DEFINES = %s" % repr(defines),
        'VERSION = "%s"' % version,
        "",
    ]))

tensorflow_repository = repository_rule(
    implementation = _tensorflow_impl,
    environ = ["PATH", "METAL_OPS_PYTHON", "VIRTUAL_ENV"],
    local = True,
)

def _flags(ctx, name, package):
    # Bazel's actions run where the checkout's files are, by names that start at its root.
    text = ctx.read(name).replace(package + "/include/hostmetal", "hostmetal/include")
    return [line for line in text.split("\n") if line and package not in line]

def _metal_impl(ctx):
    script = ctx.path(Label("//python:metal_ops/build/flags.py"))
    answer = ctx.execute([_python(ctx), script, "."])
    if answer.return_code:
        fail(answer.stderr or answer.stdout)
    package = str(script.dirname.dirname)
    ctx.file("BUILD", "")
    ctx.file("config.bzl", "\n".join([
        "MACOS = %s" % _is_macos(ctx),
        "COMPILER = %s" % repr(ctx.read("compiler").strip()),
        "CFLAGS = %s" % repr(_flags(ctx, "cflags", package)),
        "LDFLAGS = %s" % repr(_flags(ctx, "ldflags", package)),
        "SHADER_FLAGS = %s" % repr(_flags(ctx, "shader_flags", package)),
        "",
    ]))

metal_repository = repository_rule(
    implementation = _metal_impl,
    environ = ["PATH", "METAL_OPS_PYTHON", "METAL_OPS_CXX", "MACOS_OF_METAL", "VIRTUAL_ENV"],
    local = True,
)

def _highway_impl(ctx):
    # A system library on Linux. Homebrew's folder is none of the compiler's own.
    if _is_macos(ctx):
        answer = ctx.execute(["brew", "--prefix", "highway"])
        prefix = answer.stdout.strip()
        if answer.return_code or not ctx.path(prefix + "/include/hwy").exists:
            fail("Highway is missing; run 'brew install highway'.")
        ctx.symlink(prefix + "/include", "include")
        ctx.file("BUILD", """
cc_library(
    name = "highway",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = ["-L%s/lib", "-lhwy"],
    visibility = ["//visibility:public"],
)
""" % prefix)
    else:
        ctx.file("BUILD", 'cc_library(name = "highway", linkopts = ["-lhwy"], visibility = ["//visibility:public"])\n')

highway_repository = repository_rule(implementation = _highway_impl, environ = ["PATH"], local = True)
