// Element types, by TensorFlow's numbers.

#ifndef METAL_OPS_KERNELS_RUNTIME_DTYPE_H_
#define METAL_OPS_KERNELS_RUNTIME_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace metal_ops {

enum class DType : int32_t {
  kNone = 0,
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kHalf = 19,
  kResource = 20,
  kUint32 = 22,
  kUint64 = 23,
};

// Whether shaders have bfloat16. It came with Metal 3.1, which macOS 13 does not load: libraries
// built for that (MACOS_OF_METAL in python/metal_ops/build/flags.py) have no Metal kernels of it.
#if !defined(METAL_OPS_BFLOAT)
#if defined(__ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__) && \
    __ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__ < 140000
#define METAL_OPS_BFLOAT 0
#else
#define METAL_OPS_BFLOAT 1
#endif
#endif
constexpr bool kShadersHaveBfloat = METAL_OPS_BFLOAT != 0;

// Bytes of one element; 0 where they differ in size, or are not known here.
inline size_t SizeOf(DType type) {
  switch (type) {
    case DType::kInt8:
    case DType::kUint8:
    case DType::kBool:
      return 1;
    case DType::kHalf:
    case DType::kBfloat16:
    case DType::kInt16:
    case DType::kUint16:
      return 2;
    case DType::kFloat:
    case DType::kInt32:
    case DType::kUint32:
      return 4;
    case DType::kDouble:
    case DType::kInt64:
    case DType::kUint64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    default:
      return 0;
  }
}

// "float32": the name that Python users know.
std::string ToString(DType type);

// "float": the shaders' name of a type; null if they do not calculate in it.
const char* ShaderType(DType type);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_DTYPE_H_
