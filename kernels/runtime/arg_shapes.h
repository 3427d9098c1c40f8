// Checks of argument shapes in one voice, for shape functions and for the kernels of every device.
// No TensorFlow, no Metal: a check answers with a sentence for InvalidArgument.
//
//   ArgShapes shapes("Render");
//   shapes.Expect("sigmas", sigmas, {"samples"});
//   shapes.Expect("rgbs", rgbs, {"samples", "3"});
//   if (!shapes.ok()) ... shapes.error() is
//     "Render: rgbs must have shape [samples, 3] with samples = 7 as in sigmas, got [5, 3]."

#ifndef METAL_OPS_KERNELS_RUNTIME_ARG_SHAPES_H_
#define METAL_OPS_KERNELS_RUNTIME_ARG_SHAPES_H_

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace metal_ops {

// A shape of which parts may be unknown while a graph is built.
struct ArgShape {
  ArgShape() = default;
  explicit ArgShape(std::vector<int64_t> sizes) : known_rank(true), dims(std::move(sizes)) {}

  bool known_rank = false;
  std::vector<int64_t> dims;  // -1: unknown

  int rank() const { return known_rank ? static_cast<int>(dims.size()) : -1; }
};

inline std::string ToText(const ArgShape& shape) {
  if (!shape.known_rank) return "an unknown shape";
  std::string text = "[";
  for (size_t i = 0; i < shape.dims.size(); ++i) {
    text += (i > 0 ? ", " : "") + (shape.dims[i] < 0 ? "?" : std::to_string(shape.dims[i]));
  }
  return text + "]";
}

// As Python users write it: "-1", "0.25", "nan".
inline std::string ToText(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

class ArgShapes {
 public:
  explicit ArgShapes(std::string op) : op_(std::move(op)) {}

  // A dimension is a number ("3") or a name; a name has one size throughout. Only the first error
  // is kept. `remedy` is a sentence of its own.
  ArgShapes& Expect(const char* arg, const ArgShape& shape, const std::vector<std::string>& dims,
                    const std::string& remedy = "") {
    if (!error_.empty() || !shape.known_rank) return *this;
    bool fits = shape.dims.size() == dims.size();
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      const int64_t expected = Size(dims[i]);
      fits = expected < 0 || shape.dims[i] < 0 || shape.dims[i] == expected;
    }
    if (!fits) {
      error_ = op_ + ": " + arg + " must have shape " + Describe(dims) + ", got " + ToText(shape) +
               "." + (remedy.empty() ? "" : " " + remedy);
      return *this;
    }
    for (size_t i = 0; i < dims.size(); ++i) {
      if (shape.dims[i] < 0 || Size(dims[i]) >= 0) continue;
      // "L + 1" gives L.
      const size_t plus = dims[i].find(" + ");
      const int64_t more = plus == std::string::npos ? 0 : std::atoll(&dims[i][plus + 3]);
      known_.push_back({dims[i].substr(0, plus), arg, shape.dims[i] - more});
    }
    return *this;
  }

  // The same shape as that of another argument.
  ArgShapes& ExpectLike(const char* arg, const ArgShape& shape, const char* like,
                        const ArgShape& reference) {
    if (!shape.known_rank || !reference.known_rank) return *this;
    bool same = shape.dims.size() == reference.dims.size();
    for (size_t i = 0; same && i < shape.dims.size(); ++i) {
      const int64_t a = shape.dims[i], b = reference.dims[i];
      same = a < 0 || b < 0 || a == b;
    }
    return Require(same, std::string(arg) + " must be shaped like " + like + ", " +
                             ToText(reference) + ", got " + ToText(shape) + ".");
  }

  // For conditions that shapes alone cannot say.
  ArgShapes& Require(bool condition, const std::string& sentence) {
    if (error_.empty() && !condition) error_ = op_ + ": " + sentence;
    return *this;
  }

  // The argument that says a dimension's size; empty if none has.
  std::string SaidBy(const std::string& dim) const {
    for (const Known& known : known_) {
      if (known.dim == dim) return known.arg;
    }
    return "";
  }

  // -1: not known.
  int64_t Size(const std::string& dim) const {
    if (std::isdigit(static_cast<unsigned char>(dim[0]))) return std::atoll(dim.c_str());
    if (const size_t plus = dim.find(" + "); plus != std::string::npos) {
      const int64_t size = Size(dim.substr(0, plus));
      return size < 0 ? -1 : size + std::atoll(&dim[plus + 3]);
    }
    if (const size_t times = dim.find('*'); times != std::string::npos) {
      const int64_t a = Size(dim.substr(0, times)), b = Size(dim.substr(times + 1));
      if (a >= 0 && b >= 0) return a * b;
    }
    for (const Known& known : known_) {
      if (known.dim == dim) return known.size;
    }
    return -1;
  }

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  const std::string& op() const { return op_; }

 private:
  struct Known {
    std::string dim;
    std::string arg;
    int64_t size;
  };

  std::string Describe(const std::vector<std::string>& dims) const {
    std::string shape, sizes;
    for (size_t i = 0; i < dims.size(); ++i) {
      shape += (i > 0 ? ", " : "") + dims[i];
      for (const Known& known : known_) {
        if (known.dim != dims[i]) continue;
        sizes += (sizes.empty() ? " with " : " and ") + known.dim + " = " +
                 std::to_string(known.size) + " as in " + known.arg;
      }
      if (dims[i].find('*') == std::string::npos || Size(dims[i]) < 0) continue;
      sizes +=
          (sizes.empty() ? " with " : " and ") + dims[i] + " = " + std::to_string(Size(dims[i]));
    }
    return dims.empty() ? "[] (a scalar)" : "[" + shape + "]" + sizes;
  }

  std::string op_;
  std::vector<Known> known_;
  std::string error_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_RUNTIME_ARG_SHAPES_H_
