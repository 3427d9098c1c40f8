// Everything that can be wrong with a hash-encode call, in one voice, for shape functions and
// kernels of every device. No TensorFlow: each check answers "" or a sentence for InvalidArgument.

#ifndef METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_CHECKS_H_
#define METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace metal_ops {

// The six ops and the inputs that each takes, in order.
enum class HashEncodeInput { kTangents, kIncoming, kPoints, kTable, kOffsets };

struct HashEncodeOpSpec {
  const char* name;
  std::vector<HashEncodeInput> inputs;
};

inline const char* InputName(HashEncodeInput input) {
  switch (input) {
    case HashEncodeInput::kTangents:
      return "tangents";
    case HashEncodeInput::kIncoming:
      return "incoming_gradients";
    case HashEncodeInput::kPoints:
      return "inputs";
    case HashEncodeInput::kTable:
      return "embeddings";
    case HashEncodeInput::kOffsets:
      return "hashmap_offsets";
  }
  return "";
}

struct HashEncodeAttrs {
  float log2_per_level_scale = 0;
  int64_t resolution_coarsest = 0;
  bool smoothstep = false;
  bool dense = false;
};

// A shape of which parts may be unknown while a graph is built.
struct PartialShape {
  bool known_rank = false;
  std::vector<int64_t> dims;  // -1: unknown
};

// What the shapes say together; -1: not known yet.
struct HashEncodeSizes {
  int64_t n_points = -1;
  int64_t n_dims = -1;
  int64_t n_rows = -1;
  int64_t n_features = -1;
  int64_t n_levels = -1;
};

std::string CheckHashEncodeAttrs(const char* op, const HashEncodeAttrs& attrs);

// `shapes` in the order of `spec.inputs`. Fills `sizes` with what is known.
std::string CheckHashEncodeShapes(const HashEncodeOpSpec& spec,
                                  const std::vector<PartialShape>& shapes, HashEncodeSizes* sizes);

// The values of hashmap_offsets; `n_rows` may be -1. Also checks that every level's resolution is
// usable.
std::string CheckHashEncodeOffsets(const char* op, const HashEncodeAttrs& attrs,
                                   const int32_t* offsets, int64_t n_levels, int64_t n_rows);

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_HASH_ENCODE_HASH_ENCODE_CHECKS_H_
