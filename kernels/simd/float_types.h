// Half-precision arrays read and written through float32 buffers, where all sums are made.

#ifndef METAL_OPS_KERNELS_SIMD_FLOAT_TYPES_H_
#define METAL_OPS_KERNELS_SIMD_FLOAT_TYPES_H_

#include <cstdint>

namespace metal_ops {

enum class FloatType { kFloat, kHalf, kBfloat16 };

inline int64_t BytesOf(FloatType type) { return type == FloatType::kFloat ? 4 : 2; }

// from[0:n] of `type` as float32. No alignment is asked for.
void WidenFloats(FloatType type, const void* from, int64_t n, float* to);

// Rounds to nearest even.
void NarrowFloats(FloatType type, const float* from, int64_t n, void* to);

// An array of T read in pieces.
struct FloatArray {
  const void* data = nullptr;
  FloatType type = FloatType::kFloat;

  const void* At(int64_t i) const { return static_cast<const char*>(data) + BytesOf(type) * i; }

  // Elements [begin, begin + n): the array itself where it is float32, else a copy in `buffer`.
  const float* Read(int64_t begin, int64_t n, float* buffer) const {
    if (type == FloatType::kFloat) return static_cast<const float*>(data) + begin;
    WidenFloats(type, static_cast<const char*>(data) + 2 * begin, n, buffer);
    return buffer;
  }
};

// An array of T written in pieces: fill the result of Piece(), then Store() it.
struct MutableFloatArray {
  void* data = nullptr;
  FloatType type = FloatType::kFloat;

  explicit operator bool() const { return data != nullptr; }
  void* At(int64_t i) const { return static_cast<char*>(data) + BytesOf(type) * i; }
  float* Piece(int64_t begin, float* buffer) const {
    return type == FloatType::kFloat ? static_cast<float*>(data) + begin : buffer;
  }
  void Store(int64_t begin, int64_t n, const float* piece) const {
    if (type != FloatType::kFloat) {
      NarrowFloats(type, piece, n, static_cast<char*>(data) + 2 * begin);
    }
  }
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_SIMD_FLOAT_TYPES_H_
