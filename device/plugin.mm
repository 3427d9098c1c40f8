// The TensorFlow plugin: registers platform METAL, device type GPU, on top of the Metal runtime.
//
// SE_InitPlugin may not fail: TensorFlow ends the process then. A plugin that must decline has no
// devices, and says why through metal_device_why_not().

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/device.h"
#include "device/executor.h"
#include "device/fork.h"
#include "device/memory.h"
#include "device/stream.h"
#include "kernels/runtime/platform.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

#define METAL_OPS_TEXT_OF(x) #x
#define METAL_OPS_TEXT(x) METAL_OPS_TEXT_OF(x)
#define METAL_DEVICE_EXPORT extern "C" __attribute__((visibility("default")))

namespace metal_device {
namespace {

struct Plugin {
  std::string why_not;  // empty if there is a device
};

Plugin& ThePlugin() {
  static Plugin* plugin = new Plugin();
  return *plugin;
}

// A whole number from the environment; anything else is a reason to decline, not to guess.
bool ReadNumber(const char* variable, int64_t smallest, int64_t* value) {
  const char* text = getenv(variable);
  if (text == nullptr || *text == '\0') return true;
  char* end = nullptr;
  const long long number = strtoll(text, &end, 10);
  if (*end != '\0' || number < smallest || number > (int64_t{1} << 40)) {
    ThePlugin().why_not = std::string(variable) + "=" + text +
                          " is not a whole number of at least " + std::to_string(smallest);
    return false;
  }
  *value = number;
  return true;
}

bool IsSet(const char* variable) {
  const char* text = getenv(variable);
  return text != nullptr && *text != '\0' && strcmp(text, "0") != 0;
}

// Where the device has memory of its own, which is kept between uses, waiting costs more than
// pages.
constexpr int64_t kAbandonedEnough = int64_t{32} << 20, kAbandonedEnoughApart = int64_t{2} << 30;

void Find(Plugin* plugin) {
  int64_t megabytes = 0, batch = 2;
  if (!ReadNumber("METAL_OPS_DEVICE_MEMORY_MB", 1, &megabytes) ||
      !ReadNumber("METAL_OPS_DEVICE_BATCH", 1, &batch)) {
    return;
  }
  // Layouts of C++ types and the plugin C API change between minor releases.
  static constexpr char kVersion[] = METAL_OPS_TEXT(METAL_OPS_TENSORFLOW);
  const std::string release(kVersion, strrchr(kVersion, '.') + 1);
  if (strncmp(TF_Version(), release.c_str(), release.size()) != 0) {
    plugin->why_not =
        "this plugin is built for TensorFlow " + release + "x, the process runs " + TF_Version();
    return;
  }
  NSArray<id<MTLDevice> >* found =
      [static_cast<NSArray<id<MTLDevice> >*>(metal_ops::NewDevices()) autorelease];
  if ([found count] == 0) {
    plugin->why_not = "the Metal runtime found no device";
    return;
  }
  InitMemory();
  for (id<MTLDevice> metal in found) {
    auto* const device = new Device();
    device->metal = [metal retain];
    device->ordinal = static_cast<int>(Devices().size());
    device->name = [[metal name] UTF8String];
    device->has_unified_memory = [metal hasUnifiedMemory];
    const int64_t limit = megabytes > 0
                              ? megabytes << 20
                              : static_cast<int64_t>([metal recommendedMaxWorkingSetSize]);
    device->memory.limit = limit;
    device->most_abandoned =
        device->has_unified_memory ? kAbandonedEnough : std::min(kAbandonedEnoughApart, limit / 8);
    Devices().push_back(device);
  }
  // NVIDIA's library, which is in use by now, does not work in a process that is forked after that.
  if (!Devices()[0]->has_unified_memory) WatchForks();
  GlobalStreamOptions().batch = static_cast<int>(batch);
  // Waiting for every op tells which one a fault belongs to; Apple's validation switch asks for
  // just that.
  GlobalStreamOptions().synchronous =
      IsSet("METAL_OPS_DEVICE_SYNC") || IsSet("METAL_DEVICE_WRAPPER_TYPE");
  // Work may be in flight when the process exits; it must not find destroyed statics.
  atexit([] {
    @autoreleasepool {
      SynchronizeAll();
    }
  });
}

void GetDeviceCount(const SP_Platform*, int* count, TF_Status*) {
  *count = static_cast<int>(Devices().size());
}

void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status*) {
  *params->device = SP_Device{SP_DEVICE_STRUCT_SIZE};
  params->device->ordinal = params->ordinal;
  const Device& device = *Devices()[params->ordinal];
  params->device->device_handle = device.metal;
  params->device->hardware_name = device.name.c_str();
  params->device->device_vendor = "metal_ops";
  params->device->pci_bus_id = "<none>";
}

void DestroyDevice(const SP_Platform*, SP_Device*) {}

int32_t GetNumaNode(const SP_Device*) { return 0; }
int64_t GetMemoryBandwidth(const SP_Device*) { return -1; }
double GetGflops(const SP_Device*) { return -1; }

void CreateDeviceFns(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status*) {
  *params->device_fns = SP_DeviceFns{SP_DEVICE_FNS_STRUCT_SIZE};
  params->device_fns->get_numa_node = GetNumaNode;
  params->device_fns->get_memory_bandwidth = GetMemoryBandwidth;
  params->device_fns->get_gflops = GetGflops;
}

void DestroyDeviceFns(const SP_Platform*, SP_DeviceFns*) {}

void CreateStreamExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status*) {
  FillStreamExecutor(params->stream_executor);
}

void DestroyStreamExecutor(const SP_Platform*, SP_StreamExecutor*) {}

void CreateTimerFns(const SP_Platform*, SP_TimerFns* fns, TF_Status*) { FillTimerFns(fns); }
void DestroyTimerFns(const SP_Platform*, SP_TimerFns*) {}
void DestroyPlatform(SP_Platform*) {}
void DestroyPlatformFns(SP_PlatformFns*) {}

// A C string that stays valid in the calling thread until its next call.
const char* Hold(std::string text) {
  thread_local std::string held;
  held = std::move(text);
  return held.c_str();
}

}  // namespace
}  // namespace metal_device

METAL_DEVICE_EXPORT void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status*) {
  using namespace metal_device;
  @autoreleasepool {
    Find(&ThePlugin());
    *params->platform = SP_Platform{SP_PLATFORM_STRUCT_SIZE};
    params->platform->name = "METAL";
    params->platform->type = "GPU";
    params->platform->supports_unified_memory = 1;
    // No BFC: it would hand out pieces of one huge buffer, and kernels need a buffer each.
    params->platform->use_bfc_allocator = 0;
    params->platform->force_memory_growth = 1;
    SP_PlatformFns* fns = params->platform_fns;
    *fns = SP_PlatformFns{SP_PLATFORM_FNS_STRUCT_SIZE};
    fns->get_device_count = GetDeviceCount;
    fns->create_device = CreateDevice;
    fns->destroy_device = DestroyDevice;
    fns->create_device_fns = CreateDeviceFns;
    fns->destroy_device_fns = DestroyDeviceFns;
    fns->create_stream_executor = CreateStreamExecutor;
    fns->destroy_stream_executor = DestroyStreamExecutor;
    fns->create_timer_fns = CreateTimerFns;
    fns->destroy_timer_fns = DestroyTimerFns;
    params->destroy_platform = DestroyPlatform;
    params->destroy_platform_fns = DestroyPlatformFns;
  }
}

// The kernels register themselves when the library is loaded; this tells TensorFlow that there are
// some.
METAL_DEVICE_EXPORT void TF_InitKernel() {}

// ---- what kernels and metal_ops.device ask ------------------------------------------------------

// TensorFlow's device pointer, or one into the middle of a tensor -> its id<MTLBuffer> and the
// offset.
METAL_DEVICE_EXPORT bool metal_device_resolve(const void* opaque, void** buffer, uint64_t* offset) {
  id<MTLBuffer> found = nil;
  if (!metal_device::Resolve(opaque, &found, offset)) return false;
  *buffer = (void*)found;
  return true;
}

// Null if there is a device, else the reason.
METAL_DEVICE_EXPORT const char* metal_device_why_not() {
  const std::string& why_not = metal_device::ThePlugin().why_not;
  return why_not.empty() ? nullptr : why_not.c_str();
}

// Null, or why this process cannot use the device: it is the child of one that has.
METAL_DEVICE_EXPORT const char* metal_device_why_forked() {
  return metal_device::Forked() ? metal_device::WhyNotForked() : nullptr;
}

// How many there are; the functions below take a number below that.
METAL_DEVICE_EXPORT uint64_t metal_device_count() { return metal_device::Devices().size(); }

METAL_DEVICE_EXPORT const char* metal_device_name(uint64_t ordinal) {
  return metal_device::Devices()[ordinal]->name.c_str();
}

METAL_DEVICE_EXPORT int64_t metal_device_memory_limit(uint64_t ordinal) {
  return metal_device::GetMemoryStatistics(*metal_device::Devices()[ordinal]).limit;
}

// Whether tensors lie in memory that the host does not see: on a GPU of its own.
METAL_DEVICE_EXPORT bool metal_device_has_own_memory(uint64_t ordinal) {
  return !metal_device::Devices()[ordinal]->has_unified_memory;
}

METAL_DEVICE_EXPORT int64_t metal_device_memory_in_use(uint64_t ordinal) {
  return metal_device::GetMemoryStatistics(*metal_device::Devices()[ordinal]).in_use;
}

METAL_DEVICE_EXPORT int64_t metal_device_memory_peak(uint64_t ordinal) {
  return metal_device::GetMemoryStatistics(*metal_device::Devices()[ordinal]).peak_in_use;
}

// Waits for everything that was given to the devices.
METAL_DEVICE_EXPORT void metal_device_synchronize() {
  @autoreleasepool {
    metal_device::SynchronizeAll();
  }
}

namespace metal_device {
namespace {

const char* Failure(Device& device) {
  std::string message;
  if (GlobalStreamOptions().synchronous && !Forked()) {
    return TakeError(device, &message) ? Hold(std::move(message)) : nullptr;
  }
  return PeekError(device, &message) ? Hold(DescribeFailure(message)) : nullptr;
}

}  // namespace
}  // namespace metal_device

// The check of kernels after they have encoded: null, or why the op fails. Where every op is waited
// for, the failure is this op's and the device goes on; else it is an earlier one's, and stays.
METAL_DEVICE_EXPORT const char* metal_device_failure_on(const void* stream) {
  using namespace metal_device;
  id object = (id) const_cast<void*>(stream);
  static const Class ours = [MetalDeviceStream class];
  const bool is_ours = [object isKindOfClass:ours];
  if (is_ours) [(MetalDeviceStream*)object reap];
  if (Devices().size() == 1) return Failure(*Devices()[0]);
  return is_ours ? Failure(*[(MetalDeviceStream*)object device]) : nullptr;
}

// As kernels ask that were compiled when there was one device: of any.
METAL_DEVICE_EXPORT const char* metal_device_failure() {
  using namespace metal_device;
  ReapAll();
  for (Device* device : Devices()) {
    if (const char* why = Failure(*device)) return why;
  }
  return nullptr;
}

// The first failure of some device since the last metal_device_take_error(), or null.
METAL_DEVICE_EXPORT const char* metal_device_peek_error() {
  using namespace metal_device;
  ReapAll();
  std::string message;
  for (Device* device : Devices()) {
    if (PeekError(*device, &message)) return Hold(std::move(message));
  }
  return nullptr;
}

// Forgets those of all devices, and returns the first.
METAL_DEVICE_EXPORT const char* metal_device_take_error() {
  using namespace metal_device;
  ReapAll();
  std::string first, other;
  bool failed = false;
  for (Device* device : Devices()) {
    if (TakeError(*device, failed ? &other : &first)) failed = true;
  }
  return failed ? Hold(std::move(first)) : nullptr;
}
