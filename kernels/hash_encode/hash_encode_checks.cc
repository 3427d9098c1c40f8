// The sentences of hash_encode_checks.h.

#include "kernels/hash_encode/hash_encode_checks.h"

#include <cmath>

#include "kernels/hash_encode/hash_encode_levels.h"

namespace metal_ops {
namespace {

std::string ToText(const PartialShape& shape) {
  if (!shape.known_rank) return "an unknown shape";
  std::string text = "[";
  for (size_t i = 0; i < shape.dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape.dims[i] < 0 ? "?" : std::to_string(shape.dims[i]);
  }
  return text + "]";
}

std::string Sentence(const char* op, HashEncodeInput input, const std::string& expected,
                     const std::string& got) {
  return std::string(op) + ": " + InputName(input) + " must " + expected + ", got " + got + ".";
}

// Joins what two inputs say of one size. False if they disagree.
bool Merge(int64_t value, int64_t* known) {
  if (value < 0) return true;
  if (*known >= 0 && *known != value) return false;
  *known = value;
  return true;
}

std::string Expected(HashEncodeInput input) {
  switch (input) {
    case HashEncodeInput::kTangents:
    case HashEncodeInput::kPoints:
      return "be a matrix [N, D] with D = 2, 3 or 4";
    case HashEncodeInput::kIncoming:
      return "be a matrix [N, L * F]";
    case HashEncodeInput::kTable:
      return "be a matrix [rows, F] with F = 1, 2, 4 or 8";
    case HashEncodeInput::kOffsets:
      return "be a vector of L + 1 row numbers with L = 1 to " +
             std::to_string(HASH_ENCODE_MAX_LEVELS);
  }
  return "";
}

std::string CheckOne(const char* op, HashEncodeInput input, const PartialShape& shape) {
  const size_t rank = input == HashEncodeInput::kOffsets ? 1 : 2;
  if (shape.dims.size() != rank) {
    return Sentence(op, input, Expected(input), "shape " + ToText(shape));
  }
  const int64_t last = shape.dims.back();
  bool good = true;
  if (last >= 0) {
    switch (input) {
      case HashEncodeInput::kTangents:
      case HashEncodeInput::kPoints:
        good = last >= HASH_ENCODE_MIN_DIMS && last <= HASH_ENCODE_MAX_DIMS;
        break;
      case HashEncodeInput::kTable:
        good = last == 1 || last == 2 || last == 4 || last == 8;
        break;
      case HashEncodeInput::kOffsets:
        good = last >= 2 && last <= HASH_ENCODE_MAX_LEVELS + 1;
        break;
      case HashEncodeInput::kIncoming:
        break;
    }
  }
  return good ? "" : Sentence(op, input, Expected(input), "shape " + ToText(shape));
}

}  // namespace

std::string CheckHashEncodeAttrs(const char* op, const HashEncodeAttrs& attrs) {
  if (!std::isfinite(attrs.log2_per_level_scale)) {
    return std::string(op) + ": log2_per_level_scale must be finite, got " +
           std::to_string(attrs.log2_per_level_scale) + ".";
  }
  if (attrs.resolution_coarsest < 1) {
    return std::string(op) + ": resolution_coarsest must be at least 1, got " +
           std::to_string(attrs.resolution_coarsest) + ".";
  }
  return "";
}

std::string CheckHashEncodeShapes(const HashEncodeOpSpec& spec,
                                  const std::vector<PartialShape>& shapes, HashEncodeSizes* sizes) {
  *sizes = {};
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i].known_rank) continue;
    const std::string error = CheckOne(spec.name, spec.inputs[i], shapes[i]);
    if (!error.empty()) return error;
    const std::vector<int64_t>& dims = shapes[i].dims;
    switch (spec.inputs[i]) {
      case HashEncodeInput::kTable:
        sizes->n_rows = dims[0];
        sizes->n_features = dims[1];
        break;
      case HashEncodeInput::kOffsets:
        sizes->n_levels = dims[0] < 0 ? -1 : dims[0] - 1;
        break;
      default:
        break;
    }
  }

  // The points speak first, so that a disagreement is reported of the other input.
  for (const bool points_turn : {true, false}) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      const HashEncodeInput input = spec.inputs[i];
      if (!shapes[i].known_rank || (input == HashEncodeInput::kPoints) != points_turn) continue;
      if (input == HashEncodeInput::kTable || input == HashEncodeInput::kOffsets) continue;
      const std::vector<int64_t>& dims = shapes[i].dims;
      const bool same_n = Merge(dims[0], &sizes->n_points);
      if (input == HashEncodeInput::kIncoming) {
        const int64_t width =
            sizes->n_levels < 0 || sizes->n_features < 0 ? -1 : sizes->n_levels * sizes->n_features;
        if (!same_n || (width >= 0 && dims[1] >= 0 && dims[1] != width)) {
          const std::string n = sizes->n_points < 0 ? "N" : std::to_string(sizes->n_points);
          const std::string w = width < 0 ? "L * F" : std::to_string(width);
          return Sentence(
              spec.name, input,
              "have one row a point and one column a level and feature ([" + n + ", " + w + "])",
              "shape " + ToText(shapes[i]));
        }
      } else if (!same_n || !Merge(dims[1], &sizes->n_dims)) {
        return Sentence(spec.name, input, "have the shape of inputs", "shape " + ToText(shapes[i]));
      }
    }
  }
  return "";
}

std::string CheckHashEncodeOffsets(const char* op, const HashEncodeAttrs& attrs,
                                   const int32_t* offsets, int64_t n_levels, int64_t n_rows) {
  const HashEncodeInput input = HashEncodeInput::kOffsets;
  if (offsets[0] < 0) {
    return Sentence(op, input, "start at 0 or above", std::to_string(offsets[0]));
  }
  for (int64_t l = 0; l < n_levels; ++l) {
    if (offsets[l + 1] <= offsets[l]) {
      return Sentence(op, input, "increase from level to level (no level may be empty)",
                      std::to_string(offsets[l]) + " then " + std::to_string(offsets[l + 1]) +
                          " at level " + std::to_string(l));
    }
  }
  if (n_rows >= 0 && offsets[n_levels] > n_rows) {
    return Sentence(op, input, "end within the " + std::to_string(n_rows) + " rows of embeddings",
                    std::to_string(offsets[n_levels]));
  }
  for (int64_t l = 0; l < n_levels; ++l) {
    const float scale =
        HashEncodeScale(static_cast<int>(l), attrs.log2_per_level_scale, attrs.resolution_coarsest);
    if (!HashEncodeScaleIsUsable(scale)) {
      return std::string(op) +
             ": log2_per_level_scale = " + std::to_string(attrs.log2_per_level_scale) +
             " and resolution_coarsest = " + std::to_string(attrs.resolution_coarsest) +
             " must give every level a resolution from 1 to " + "2^31, got a scale of " +
             std::to_string(scale) + " at level " + std::to_string(l) + ".";
    }
  }
  return "";
}

}  // namespace metal_ops
