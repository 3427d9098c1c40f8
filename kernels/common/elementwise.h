// Elementwise CPU kernels: a function of floats, on all threads, whatever the dtype.
//
//   Elementwise(context, 2, y, [=](float a, float b) { return a + scale * b; }, a, b);

#ifndef METAL_OPS_KERNELS_COMMON_ELEMENTWISE_H_
#define METAL_OPS_KERNELS_COMMON_ELEMENTWISE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/common/parallel.h"
#include "kernels/common/tf_float_types.h"

namespace metal_ops {

namespace internal {

template <typename Function, typename Sources, size_t... kIndex>
void Apply(Function function, const Sources& sources, int64_t n, float* result,
           std::index_sequence<kIndex...>) {
  for (int64_t i = 0; i < n; ++i) result[i] = function(sources[kIndex][i]...);
}

}  // namespace internal

// output[i] = function(inputs[i] ...). All are of one shape and of type float, half or bfloat16;
// the output may be one of the inputs. `cycles` is what the function costs.
template <typename Function, typename... Inputs>
void Elementwise(tensorflow::OpKernelContext* context, int64_t cycles, tensorflow::Tensor* output,
                 const Function& function, const Inputs&... inputs) {
  constexpr int64_t kPiece = 1024;
  const MutableFloatArray to = ToMutableFloatArray(output);
  // In place the compiler could not vectorise, for all it knows: results are then kept apart at
  // first.
  const bool in_place = (... || (inputs.data() == output->data()));
  ParallelFor(context, output->NumElements(), cycles, [&](int64_t begin, int64_t end) {
    float wide[sizeof...(Inputs)][kPiece];
    float result[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      size_t next = 0;
      // Braces, unlike an argument list, are worked through from left to right.
      const float* const sources[] = {ToFloatArray(inputs).Read(at, n, wide[next++])...};
      float* const piece = to.Piece(at, result);
      float* const apart = in_place ? result : piece;
      internal::Apply(function, sources, n, apart, std::index_sequence_for<Inputs...>());
      if (apart != piece) std::copy_n(apart, n, piece);
      to.Store(at, n, piece);
    }
  });
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_COMMON_ELEMENTWISE_H_
