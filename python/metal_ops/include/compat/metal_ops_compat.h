// Included before every source of an op that `python -m metal_ops build` compiles, so that
// published ops build without edits: names that they get without including them from Apple's
// headers, or got from an older TensorFlow.

#ifndef METAL_OPS_COMPAT_H_
#define METAL_OPS_COMPAT_H_

#ifdef __cplusplus
// On macOS some of these come along with other headers, and samples rely on it.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>
#endif

#include <sys/types.h>
#include <unistd.h>

#if defined(__OBJC__) && defined(GNUSTEP)
#import <Foundation/Foundation.h>
#endif

#endif  // METAL_OPS_COMPAT_H_
