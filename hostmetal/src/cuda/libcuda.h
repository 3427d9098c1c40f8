// NVIDIA's driver library, found at run time: no CUDA toolkit is needed to build or to run. Names
// and values are those of its documented API.
#ifndef HOSTMETAL_SRC_CUDA_LIBCUDA_H_
#define HOSTMETAL_SRC_CUDA_LIBCUDA_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "hostmetal/src/driver.h"

namespace hostmetal {
namespace cuda {

using Result = int;
using Address = uint64_t;  // CUdeviceptr
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;

// CUipcMemHandle, which the library takes by value.
struct IpcName {
  unsigned char bytes[64];
};

enum : Result { kSuccess = 0, kOutOfDeviceMemory = 2, kNotReady = 600 };
enum DeviceAttribute : int {
  kMaxSharedMemoryPerBlock = 8,
  kMultiprocessors = 16,
  kMostSharedMemoryPerBlock = 97,  // where a function asks for it
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kConcurrentManagedAccess = 89,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kPciDomainId = 50,
};
enum FunctionAttribute : int { kMaxThreadsPerBlock = 0, kMaxDynamicSharedBytes = 8 };
enum JitOption : int { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };

// M(result type's function, its exported name, parameters)
#define HOSTMETAL_LIBCUDA(M)                                                                    \
  M(Init, "cuInit", unsigned)                                                                   \
  M(DriverGetVersion, "cuDriverGetVersion", int*)                                               \
  M(DeviceGetCount, "cuDeviceGetCount", int*)                                                   \
  M(DeviceGet, "cuDeviceGet", int*, int)                                                        \
  M(DeviceGetName, "cuDeviceGetName", char*, int, int)                                          \
  M(DeviceGetAttribute, "cuDeviceGetAttribute", int*, int, int)                                 \
  M(DeviceTotalMem, "cuDeviceTotalMem_v2", size_t*, int)                                        \
  M(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", Context*, int)                                \
  M(CtxSetCurrent, "cuCtxSetCurrent", Context)                                                  \
  M(MemGetInfo, "cuMemGetInfo_v2", size_t*, size_t*)                                            \
  M(MemAlloc, "cuMemAlloc_v2", Address*, size_t)                                                \
  M(MemFree, "cuMemFree_v2", Address)                                                           \
  M(MemAllocManaged, "cuMemAllocManaged", Address*, size_t, unsigned)                           \
  M(MemHostAlloc, "cuMemHostAlloc", void**, size_t, unsigned)                                   \
  M(MemFreeHost, "cuMemFreeHost", void*)                                                        \
  M(MemHostRegister, "cuMemHostRegister_v2", void*, size_t, unsigned)                           \
  M(MemHostUnregister, "cuMemHostUnregister", void*)                                            \
  M(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", Address*, void*, unsigned)         \
  M(IpcGetMemHandle, "cuIpcGetMemHandle", IpcName*, Address)                                    \
  M(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", Address*, IpcName, unsigned)                     \
  M(MemcpyAsync, "cuMemcpyAsync", Address, Address, size_t, Stream)                             \
  M(MemsetD8Async, "cuMemsetD8Async", Address, unsigned char, size_t, Stream)                   \
  M(StreamCreate, "cuStreamCreate", Stream*, unsigned)                                          \
  M(StreamDestroy, "cuStreamDestroy_v2", Stream)                                                \
  M(StreamSynchronize, "cuStreamSynchronize", Stream)                                           \
  M(EventCreate, "cuEventCreate", Event*, unsigned)                                             \
  M(EventDestroy, "cuEventDestroy_v2", Event)                                                   \
  M(EventRecord, "cuEventRecord", Event, Stream)                                                \
  M(EventSynchronize, "cuEventSynchronize", Event)                                              \
  M(EventElapsedTime, "cuEventElapsedTime", float*, Event, Event)                               \
  M(StreamWaitEvent, "cuStreamWaitEvent", Stream, Event, unsigned)                              \
  M(ModuleLoadDataEx, "cuModuleLoadDataEx", Module*, const void*, unsigned, int*, void**)       \
  M(ModuleUnload, "cuModuleUnload", Module)                                                     \
  M(ModuleGetFunction, "cuModuleGetFunction", Function*, Module, const char*)                   \
  M(FuncGetAttribute, "cuFuncGetAttribute", int*, int, Function)                                \
  M(FuncSetAttribute, "cuFuncSetAttribute", Function, int, int)                                 \
  M(LaunchKernel, "cuLaunchKernel", Function, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, unsigned, Stream, void**, void**)                                                 \
  M(GetErrorName, "cuGetErrorName", Result, const char**)                                       \
  M(GetErrorString, "cuGetErrorString", Result, const char**)

struct Library {
#define HOSTMETAL_MEMBER(name, symbol, ...) Result (*name)(__VA_ARGS__) = nullptr;
  HOSTMETAL_LIBCUDA(HOSTMETAL_MEMBER)
#undef HOSTMETAL_MEMBER

  // "CUDA_ERROR_...: its meaning"
  std::string Explain(Result result) const;
};

// The library, loaded and initialised; nullptr where there is none, and then `why` says so.
// HOSTMETAL_LIBCUDA names another file than libcuda.so.1.
const Library* TheLibrary(std::string* why);

// An error of the library as a Failure, "what" in front.
Failure Explained(const Library& library, const std::string& what, Result result);

}  // namespace cuda
}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_CUDA_LIBCUDA_H_
