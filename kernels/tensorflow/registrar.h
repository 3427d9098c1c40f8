// Self-registration of Metal kernels: one line beside the kernel, no central list.

#ifndef METAL_OPS_KERNELS_TENSORFLOW_REGISTRAR_H_
#define METAL_OPS_KERNELS_TENSORFLOW_REGISTRAR_H_

#import <Foundation/Foundation.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensorflow/op_kernel.h"

namespace metal_ops {

// The dtypes, and the arguments that live in host memory.
struct KernelOptions {
  // One kernel per dtype of attribute `attr`.
  KernelOptions&& Types(std::string attr, std::vector<TF_DataType> dtypes) && {
    type_attr = std::move(attr);
    types = std::move(dtypes);
    return std::move(*this);
  }
  // Only where attribute `attr` is `dtype`.
  KernelOptions&& Where(std::string attr, TF_DataType dtype) && {
    where.emplace_back(std::move(attr), dtype);
    return std::move(*this);
  }
  // Input or output `arg` is read or written by the CPU: shapes, offsets, anything Compute looks
  // at.
  KernelOptions&& HostMemory(std::string arg) && {
    host_memory.push_back(std::move(arg));
    return std::move(*this);
  }

  // It launches no shader that calculates in bfloat16, whose kernel is there without one, too. Where
  // TensorFlow has a kernel for any device there has to be one: that would take memory of the device
  // for the host's.
  KernelOptions&& CalculatesInNoBfloat() && {
    calculates_in_no_bfloat = true;
    return std::move(*this);
  }

  std::string type_attr;
  std::vector<TF_DataType> types;
  std::vector<std::pair<std::string, TF_DataType>> where;
  std::vector<std::string> host_memory;
  bool calculates_in_no_bfloat = false;
};

struct KernelFunctions {
  void* (*create)(TF_OpKernelConstruction*);
  void (*compute)(void*, TF_OpKernelContext*);
  void (*destroy)(void*);
};

// Registers for device type "GPU": tensorflow-metal's on macOS, libmetal_device.so's on Linux. Where
// shaders have no bfloat16 (dtype.h) its kernels are left out, and TensorFlow places the ops on the
// CPU.
class KernelRegistrar {
 public:
  KernelRegistrar(const char* op, const KernelFunctions& functions, const KernelOptions& options);
};

// A kernel that could not be registered, for metal_kernels_error().
void ReportRegistrationError(const std::string& line);

// Reports to `ctx` the exceptions of `body`. Nothing may be thrown through TensorFlow: neither C++
// nor Objective-C exceptions.
template <typename Context, typename Body>
void Guarded(const char* op, Context* ctx, const Body& body) {
  @autoreleasepool {
    @try {
      try {
        body();
      } catch (const std::bad_alloc&) {
        ctx->Fail(ResourceExhausted(op, ": out of host memory"));
      } catch (const std::exception& e) {
        ctx->Fail(Internal(op, ": ", e.what()));
      }
    } @catch (NSException* e) {
      ctx->Fail(Internal(op, ": ", [[e name] UTF8String], ": ", [[e reason] UTF8String]));
    }
  }
}

// The functions that TensorFlow calls.
//
// A kernel that cannot be built says so when it is run: where TensorFlow learns it while it builds
// a kernel, host-memory inputs that it has sent already stay behind, and the next call takes them
// for its own.
template <typename Kernel>
struct KernelThunks {
  struct Built {
    std::unique_ptr<Kernel> kernel;
    Status error;
    KernelNames names;
  };

  static void* Create(TF_OpKernelConstruction* raw) {
    KernelConstruction ctx(raw);
    auto* const built = new (std::nothrow) Built();
    if (built == nullptr) return nullptr;
    Guarded(Kernel::kOp, &ctx, [&] { built->kernel = std::make_unique<Kernel>(&ctx); });
    built->error = ctx.error();
    return built;
  }

  static void Compute(void* raw_built, TF_OpKernelContext* raw) {
    KernelContext ctx(raw);
    auto* const built = static_cast<Built*>(raw_built);
    const OpScope scope(ToRunningOp(Kernel::kOp, raw, built == nullptr ? nullptr : &built->names));
    if (built == nullptr) return ctx.Fail(ResourceExhausted(Kernel::kOp, ": out of host memory"));
    if (!built->error.ok()) return ctx.Fail(built->error);
    Guarded(Kernel::kOp, &ctx, [&] { built->kernel->Compute(&ctx); });
  }

  static void Delete(void* built) { delete static_cast<Built*>(built); }
};

}  // namespace metal_ops

#define METAL_OPS_CONCAT_(a, b) a##b
#define METAL_OPS_CONCAT(a, b) METAL_OPS_CONCAT_(a, b)

// REGISTER_METAL_KERNEL(TwiceOp, .Types("T", {TF_FLOAT, TF_HALF}).HostMemory("axis"));
#define REGISTER_METAL_KERNEL(Kernel, ...)                                                      \
  [[maybe_unused]] static const ::metal_ops::KernelRegistrar METAL_OPS_CONCAT(metal_kernel_,    \
                                                                              __COUNTER__)(     \
      Kernel::kOp,                                                                              \
      {&::metal_ops::KernelThunks<Kernel>::Create, &::metal_ops::KernelThunks<Kernel>::Compute, \
       &::metal_ops::KernelThunks<Kernel>::Delete},                                             \
      ::metal_ops::KernelOptions() __VA_ARGS__)

#endif  // METAL_OPS_KERNELS_TENSORFLOW_REGISTRAR_H_
