"""Debian's Bazel 4 wants three repositories from the network that only re-export rules it has built in."""

def _stub_impl(ctx):
    ctx.file("WORKSPACE", "")
    for path, text in ctx.attr.files.items():
        ctx.file(path, text)

_stub = repository_rule(implementation = _stub_impl, attrs = {"files": attr.string_dict()})

_CC_RULES = ["cc_binary", "cc_import", "cc_library", "cc_proto_library", "cc_test", "cc_toolchain", "cc_toolchain_suite", "objc_import", "objc_library"]
_JAVA_RULES = ["java_binary", "java_import", "java_library", "java_test", "java_toolchain", "java_runtime", "java_package_configuration", "java_proto_library", "java_lite_proto_library", "java_plugin"]

def _reexport(rules):
    return "\n".join(["%s = native.%s" % (rule, rule) for rule in rules if hasattr(native, rule)])

def native_rules_for_bazel_4():
    """To be called in WORKSPACE; does nothing in other Bazels."""

    # Debian's build has no version string.
    version = native.bazel_version
    if version and not version.startswith("4."):
        return
    _stub(name = "rules_cc", files = {
        "BUILD": "",
        "cc/BUILD": "",
        "cc/defs.bzl": _reexport(_CC_RULES),
    })
    _stub(name = "rules_java", files = {
        "BUILD": "",
        "java/BUILD": "",
        "java/defs.bzl": _reexport(_JAVA_RULES),
    })
    _stub(name = "remote_coverage_tools", files = {
        "BUILD": 'filegroup(name = "coverage_report_generator", srcs = ["unused.sh"], visibility = ["//visibility:public"])',
        "unused.sh": "",
    })
