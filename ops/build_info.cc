// What this library was built with. The text is found in the file without loading it, because a
// library that was built for another TensorFlow may crash while it loads.

#include "tensorflow/core/public/version.h"

#define METAL_OPS_EXPORT extern "C" __attribute__((visibility("default"), used))

#ifndef METAL_OPS_VERSION
#error "METAL_OPS_VERSION: the build passes what python/metal_ops/_version.py says"
#endif

#ifdef __clang__
#define METAL_OPS_COMPILER __VERSION__  // "Clang 19.1.7 ..."
#else
#define METAL_OPS_COMPILER "gcc " __VERSION__
#endif

// TF_VERSION_STRING is put in parentheses there, so the pieces are joined again here. `|` ends the
// text.
METAL_OPS_EXPORT const char metal_ops_build_info[] =
    "metal_ops-build-info|version=" METAL_OPS_VERSION "|tensorflow=" TF_STR(
        TF_MAJOR_VERSION) "." TF_STR(TF_MINOR_VERSION) "." TF_STR(TF_PATCH_VERSION)
        TF_VERSION_SUFFIX "|compiler=" METAL_OPS_COMPILER "|";
