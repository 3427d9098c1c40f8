// A call of a CPU kernel with PyTorch's tensors, on its threads.

#ifndef METAL_OPS_KERNELS_TORCH_CALL_H_
#define METAL_OPS_KERNELS_TORCH_CALL_H_

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "kernels/runtime/op.h"
#include "kernels/torch/given.h"

namespace metal_ops {

using torch::stable::Tensor;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
struct DeleteTensor {
  void operator()(AtenTensorHandle tensor) const { aoti_torch_delete_tensor_object(tensor); }
};
using OwnedTensor = std::unique_ptr<AtenTensorOpaque, DeleteTensor>;

inline void Check(AOTITorchError error) {
  if (error != AOTI_TORCH_SUCCESS) throw std::runtime_error("metal_ops: a call of PyTorch failed.");
}

inline ArgShape ShapeOf(AtenTensorHandle tensor) {
  int64_t rank = 0, *sizes = nullptr;
  Check(aoti_torch_get_dim(tensor, &rank));
  Check(aoti_torch_get_sizes(tensor, &sizes));
  return ArgShape(std::vector<int64_t>(sizes, sizes + rank));
}

inline std::vector<ArgShape> ShapesOf(const std::vector<Tensor>& tensors) {
  std::vector<ArgShape> shapes;
  for (const Tensor& tensor : tensors) shapes.push_back(ShapeOf(tensor.get()));
  return shapes;
}

inline int64_t Elements(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

class TorchCall : public CpuCall {
 public:
  TorchCall(const TorchOp& op, const std::vector<AttrValue>& attrs,
            const std::vector<Tensor>& tensors, const Given& given)
      : CpuCall(*op.declared, attrs, ShapesOf(tensors)) {
    CheckTypes(op, *this, given);
    results.resize(op.declared->outputs.size());
    outputs.resize(results.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      void* data = nullptr;
      Check(aoti_torch_get_data_ptr(tensors[i].get(), &data));
      const DType type = given.types[i].type;
      const int64_t n = Elements(in_shapes[i].dims);
      inputs.push_back({data, type, n, n * static_cast<int64_t>(SizeOf(type))});
    }
  }

  bool Allocate(int output, const std::vector<int64_t>& dims, int) override {
    std::vector<int64_t> strides(dims.size());
    int64_t n = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      strides[i] = n;
      n *= std::max<int64_t>(dims[i], 1);
    }
    const DType type = OutputType(*this, output);
    AtenTensorHandle handle = nullptr;
    if (aoti_torch_empty_strided(static_cast<int64_t>(dims.size()), dims.data(), strides.data(),
                                 TorchTypes().at(type), aoti_torch_device_type_cpu(), 0,
                                 &handle) != AOTI_TORCH_SUCCESS) {
      shapes.Require(false,
                     "there is no memory for an output of shape " + ToText(ArgShape(dims)) + ".");
      return false;
    }
    results[output].reset(handle);
    void* data = nullptr;
    Check(aoti_torch_get_data_ptr(handle, &data));
    n = Elements(dims);
    outputs[output] = {data, type, n, n * static_cast<int64_t>(SizeOf(type))};
    return true;
  }

  void* Scratch(int64_t n_bytes) override {
    constexpr int64_t kLine = 64;
    const int64_t lines = std::max<int64_t>((n_bytes + kLine - 1) / kLine, 1);
    scratch_.emplace_back(std::aligned_alloc(kLine, lines * kLine));
    if (scratch_.back() == nullptr) shapes.Require(false, "there is no memory for the call.");
    return scratch_.back().get();
  }

  bool IsWanted(int) const override { return true; }

  void ParallelFor(int64_t n, int64_t cycles,
                   const std::function<void(int64_t, int64_t)>& work) override {
    // At least, some 20 us: to wake a thread takes longer than half of that.
    constexpr double kRangeCycles = 50000;
    constexpr int64_t kRangesPerThread = 8;
    if (n == 0) return;
    const double worth = static_cast<double>(n) * static_cast<double>(cycles) / kRangeCycles;
    if (worth < 4) return work(0, n);
    const int64_t most = std::min(n, kRangesPerThread * n_threads());
    const int64_t n_ranges = worth < static_cast<double>(most) ? static_cast<int64_t>(worth) : most;
    const int64_t size = n / n_ranges, rest = n % n_ranges;
    RunTasks(n_ranges, std::max<int64_t>(n_ranges / 2, 1), [&](int64_t range, int64_t) {
      const int64_t begin = size * range + std::min(range, rest);
      work(begin, begin + size + (range < rest ? 1 : 0));
    });
  }

  int64_t n_threads() const override {
    uint32_t n = 1;
    Check(torch_get_num_threads(&n));
    return n;
  }

  // On PyTorch's own threads, each of which takes one task after the other.
  void RunTasks(int64_t n_tasks, int64_t threads,
                const std::function<void(int64_t, int64_t)>& work) override {
    threads = std::min({threads, n_tasks, n_threads()});
    if (threads <= 1) {
      for (int64_t task = 0; task < n_tasks; ++task) work(task, 0);
      return;
    }
    struct Loop {
      std::atomic<int64_t> next{0};
      int64_t n_tasks;
      const std::function<void(int64_t, int64_t)>* work;
    } loop;
    loop.n_tasks = n_tasks;
    loop.work = &work;
    const auto drain = [](int64_t begin, int64_t end, void* context) {
      auto* const of = static_cast<Loop*>(context);
      for (int64_t thread = begin; thread < end; ++thread) {
        for (int64_t task = of->next++; task < of->n_tasks; task = of->next++) {
          (*of->work)(task, thread);
        }
      }
    };
    Check(torch_parallel_for(0, threads, 1, drain, &loop));
  }

  const float* Read(int input, int64_t begin, int64_t n, float* buffer) const override {
    return floats(input).Read(begin, n, buffer);
  }

  void Store(int output, int64_t begin, int64_t n, const float* values) const override {
    const MutableFloatArray to = float_out(output);
    if (to.type == FloatType::kFloat) {
      std::copy_n(values, n, static_cast<float*>(to.data) + begin);
    } else {
      to.Store(begin, n, values);
    }
  }

  std::vector<OwnedTensor> results;

 private:
  static const std::map<DType, int32_t>& TorchTypes() {
    static const auto* const types = [] {
      auto* const made = new std::map<DType, int32_t>();
      for (const KnownType& type : kTypes) {
        (*made)[type.ours] =
            torch::stable::detail::to<int32_t>(torch::stable::detail::from(type.torch));
      }
      return made;
    }();
    return *types;
  }

  std::vector<std::unique_ptr<void, FreeMemory>> scratch_;
};

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TORCH_CALL_H_
