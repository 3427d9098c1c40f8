// How _metal_ops.so, which knows no Metal, has a shader run on the processor: _metal_kernels.so,
// which does, offers these functions. Plain C, as the two are linked to nothing in common.

#ifndef METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_HOST_H_
#define METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_HOST_H_

#include <cstddef>
#include <cstdint>

extern "C" {

// The attributes of a MetalKernel.
struct metal_kernels_spec {
  const char* source;
  size_t source_size;
  const char* function;
  const char* const* arguments;
  size_t n_arguments;
  const int64_t* copied;
  size_t n_copied;
  bool initialized;
  bool atomic;
  bool fast_math;
};

// A tensor in host memory.
struct metal_kernels_array {
  void* data;
  uint64_t bytes;
  int32_t dtype;  // DType
  int32_t rank;
  const int64_t* dims;
};

struct metal_kernels_call {
  const int64_t* launch;
  size_t launch_size;
  const metal_kernels_array *inputs, *params, *outputs;
  size_t n_inputs, n_params, n_outputs;
};

// A kernel that the process keeps, and the functions that its op calls.
struct metal_kernels_kept {
  void* kernel;
  const char* function;
  size_t n_threadgroup;
  bool atomic;
};

// The Code of an error, and its sentence, which stays until the thread's next call; 0 and ""
// otherwise.
typedef int metal_kernels_new_fn(const metal_kernels_spec* spec, void** kernel,
                                 const char** message);
typedef int metal_kernels_run_fn(void* kernel, const metal_kernels_call* call,
                                 const char** message);
typedef void metal_kernels_delete_fn(void* kernel);
// The kernel that the process keeps under a handle (metal_kernels_keep).
typedef int metal_kernels_find_fn(int64_t handle, metal_kernels_kept* kept, const char** message);

__attribute__((visibility("default"))) metal_kernels_new_fn metal_kernels_new;
__attribute__((visibility("default"))) metal_kernels_run_fn metal_kernels_run;
__attribute__((visibility("default"))) metal_kernels_delete_fn metal_kernels_delete;
__attribute__((visibility("default"))) metal_kernels_find_fn metal_kernels_find;

}  // extern "C"

#endif  // METAL_OPS_KERNELS_METAL_KERNEL_METAL_KERNEL_HOST_H_
