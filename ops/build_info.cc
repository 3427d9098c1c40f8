// The versions that this library was built with. The text is found in the file without loading it,
// because a library that was built for another TensorFlow may crash while it loads.

#define METAL_OPS_EXPORT extern "C" __attribute__((visibility("default"), used))

#ifndef METAL_OPS_VERSION
#error "METAL_OPS_VERSION: the build passes what python/metal_ops/_version.py says"
#endif

#ifndef METAL_OPS_TENSORFLOW
#error "METAL_OPS_TENSORFLOW: the build passes TensorFlow's version, which its headers do not say"
#endif
#define METAL_OPS_TEXT_OF(x) #x
#define METAL_OPS_TEXT(x) METAL_OPS_TEXT_OF(x)

#ifdef __clang__
#define METAL_OPS_COMPILER __VERSION__  // "Clang 19.1.7 ..."
#else
#define METAL_OPS_COMPILER "gcc " __VERSION__
#endif

// `|` ends the text.
METAL_OPS_EXPORT const char metal_ops_build_info[] =
    "metal_ops-build-info|version=" METAL_OPS_VERSION
    "|tensorflow=" METAL_OPS_TEXT(METAL_OPS_TENSORFLOW) "|compiler=" METAL_OPS_COMPILER "|";
