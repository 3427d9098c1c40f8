"""A repository of the TensorFlow that the active Python imports: its headers, its library, its flags."""

_ASK = """
import json, os, sys
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import tensorflow as tf
print(json.dumps([sys.executable, tf.__version__, tf.sysconfig.get_include(), tf.sysconfig.get_lib(),
                  [f for f in tf.sysconfig.get_compile_flags() if f.startswith('-D')]]))
"""

def _impl(ctx):
    python = ctx.os.environ.get("METAL_OPS_PYTHON") or ctx.which("python3")
    answer = ctx.execute([python, "-c", _ASK])
    if answer.return_code:
        fail("%s cannot import TensorFlow; activate the environment that has it (`make setup` makes .venv), or set METAL_OPS_PYTHON.\n%s" % (python, answer.stderr))
    python, version, include, library, defines = json.decode(answer.stdout.strip().split("\n")[-1])
    supported = ctx.read(ctx.path(Label("//:TF_SUPPORTED_VERSION"))).strip()
    if not version.startswith(supported + "."):
        fail("metal_ops is written for TensorFlow %s, %s has %s" % (supported, python, version))
    ctx.symlink(include, "include")
    framework = "libtensorflow_framework.2.dylib" if ctx.os.name.startswith("mac") else "libtensorflow_framework.so.2"
    ctx.symlink(library + "/" + framework, framework)
    ctx.symlink(python, "python")
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

exports_files(["python"])
""".format(framework = framework, defines = [d[2:] for d in defines] + ["NDEBUG"]))
    ctx.file("python.bzl", 'PYTHON = "%s"\n' % python)

tensorflow_repository = repository_rule(
    implementation = _impl,
    environ = ["PATH", "METAL_OPS_PYTHON", "VIRTUAL_ENV"],
    local = True,
)
