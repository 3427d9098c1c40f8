// An adapter without TensorFlow: ops declared in kernels/ and their CPU kernels run on arrays that
// C callers own, with std::thread for a scheduler and malloc for an allocator. For the test beside
// it, which calls it through ctypes: the libraries linked here are all that a kernel needs.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/runtime/op.h"

namespace metal_ops {
namespace {

constexpr int kMostDims = 4;

// As the test's ctypes.Structure.
struct Array {
  void* data;
  int64_t dims[kMostDims];
  int32_t rank;
  int32_t type;
};

int64_t NumElements(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

std::map<std::string, void (*)(CpuCall&)>& Kernels() {
  static auto* const kernels = new std::map<std::string, void (*)(CpuCall&)>();
  return *kernels;
}

std::vector<ArgShape> ShapesOf(const Array* arrays, size_t n) {
  std::vector<ArgShape> shapes;
  for (size_t i = 0; i < n; ++i) {
    shapes.emplace_back(std::vector<int64_t>(arrays[i].dims, arrays[i].dims + arrays[i].rank));
  }
  return shapes;
}

class PlainCall : public CpuCall {
 public:
  PlainCall(const OpDeclaration& op, const std::vector<AttrValue>& attrs, const Array* in,
            Array* out, int64_t threads)
      : CpuCall(op, attrs, ShapesOf(in, op.inputs.size())), out_(out), threads_(threads) {
    outputs.resize(op.outputs.size());
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const DType type = static_cast<DType>(in[i].type);
      const int64_t n = NumElements(in_shapes[i].dims);
      inputs.push_back({in[i].data, type, n, n * static_cast<int64_t>(SizeOf(type))});
    }
  }

  // The caller owns the inputs, so no output takes the memory of one.
  bool Allocate(int output, const std::vector<int64_t>& dims, int) override {
    const std::string& declared = op.outputs[output].type;
    const DType type = op.Attr(declared) >= 0 ? Type(declared.c_str()) : DType::kFloat;
    if (op.Attr(declared) < 0 && declared != "float") {
      shapes.Require(false, "this adapter has no outputs of type " + declared + ".");
      return false;
    }
    const int64_t n = NumElements(dims);
    void* const data = std::malloc(std::max<int64_t>(n * static_cast<int64_t>(SizeOf(type)), 1));
    outputs[output] = {data, type, n, n * static_cast<int64_t>(SizeOf(type))};
    out_[output] = {data, {}, static_cast<int32_t>(dims.size()), static_cast<int32_t>(type)};
    std::copy(dims.begin(), dims.end(), out_[output].dims);
    return true;
  }

  void* Scratch(int64_t n_bytes) override { return scratch_.emplace_back(new char[n_bytes]).get(); }

  bool IsWanted(int) const override { return true; }

  void ParallelFor(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& work) override {
    const int64_t piece = (n + threads_ - 1) / threads_;
    RunTasks(threads_, threads_, [&](int64_t task, int64_t) {
      const int64_t begin = task * piece, end = std::min(n, begin + piece);
      if (begin < end) work(begin, end);
    });
  }

  int64_t n_threads() const override { return threads_; }

  void RunTasks(int64_t n_tasks, int64_t threads,
                const std::function<void(int64_t, int64_t)>& work) override {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> pool;
    for (int64_t thread = 0; thread < std::min(threads, n_tasks); ++thread) {
      pool.emplace_back([&, thread] {
        for (int64_t task = next++; task < n_tasks; task = next++) work(task, thread);
      });
    }
    for (std::thread& thread : pool) thread.join();
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

 private:
  Array* const out_;
  const int64_t threads_;
  std::vector<std::unique_ptr<char[]>> scratch_;
};

// "lambd=0.5 T=1": the value of each attribute, in any order. An error's text, or none.
std::string ReadAttrs(const OpDeclaration& op, const char* text, std::vector<AttrValue>* values) {
  std::map<std::string, std::string> given;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t at = word.find('=');
    given[word.substr(0, at)] = word.substr(at + 1);
  }
  for (const OpAttr& attr : op.attrs) {
    const auto found = given.find(attr.name);
    if (found == given.end()) return op.name + ": attribute " + attr.name + " is missing.";
    const char* const number = found->second.c_str();
    if (attr.kind == AttrKind::kText) {
      values->emplace_back(found->second);
    } else if (attr.kind == AttrKind::kFloat) {
      values->emplace_back(std::strtof(number, nullptr));
    } else if (attr.kind == AttrKind::kInt) {
      values->emplace_back(int64_t{std::atoll(number)});
    } else if (attr.kind == AttrKind::kType) {
      values->emplace_back(static_cast<DType>(std::atoi(number)));
    } else {
      return op.name + ": this adapter has no attributes of " + attr.name + "'s kind.";
    }
  }
  return "";
}

std::string Run(const char* name, const char* attrs, const Array* in, Array* out, int threads) {
  const OpDeclaration* const op = FindOp(name);
  if (op == nullptr) return std::string("there is no op ") + name + ".";
  std::vector<AttrValue> values;
  std::string error = ReadAttrs(*op, attrs, &values);
  if (!error.empty()) return error;
  PlainCall call(*op, values, in, out, threads);
  if (call.CheckAttrs() && call.CheckAll()) {
    for (size_t i = 0; i < op->outputs.size(); ++i) {
      const ArgShape& shape = call.out_shapes[i];
      if (IsAllKnown(shape) && !call.Allocate(static_cast<int>(i), shape.dims, -1)) break;
    }
    if (call.shapes.ok()) Kernels().at(name)(call);
  }
  return call.shapes.ok() ? "" : call.shapes.error();
}

}  // namespace

DeclaredOp::DeclaredOp(const OpBuilder& builder) {
  const OpDeclaration& op = internal::Remember(builder.op_);
  if (op.elementwise.cpu != nullptr) CpuKernel(op.name.c_str(), op.elementwise.cpu);
}

CpuKernel::CpuKernel(const char* op, void (*kernel)(CpuCall&)) { Kernels()[op] = kernel; }

}  // namespace metal_ops

// Returns "" or the error, until the thread's next call. The caller frees the outputs' data.
extern "C" const char* run_op(const char* op, const char* attrs, const metal_ops::Array* inputs,
                              metal_ops::Array* outputs, int threads) {
  static thread_local std::string error;
  error = metal_ops::Run(op, attrs, inputs, outputs, threads);
  return error.c_str();
}

extern "C" void free_array(metal_ops::Array* array) { std::free(array->data); }
