// MTLDevice.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostmetal/include/hostmetal.h"
#include "hostmetal/src/argument_encoder.h"
#include "hostmetal/src/binary_archive.h"
#include "hostmetal/src/buffer.h"
#include "hostmetal/src/command_buffer.h"
#include "hostmetal/src/counters.h"
#include "hostmetal/src/errors.h"
#include "hostmetal/src/event.h"
#include "hostmetal/src/function_table.h"
#include "hostmetal/src/indirect_command_buffer.h"
#include "hostmetal/src/library.h"
#include "hostmetal/src/on_demand.h"
#include "hostmetal/src/pipeline.h"
#include "hostmetal/src/queue.h"
#include "hostmetal/src/residency_set.h"
#include "hostmetal/src/tensor.h"
#include "hostmetal/src/texture.h"

using hostmetal::Failure;
using hostmetal::NoError;
using hostmetal::Refuse;
using hostmetal::ToString;

@interface HMDevice (Hostmetal)
- (id)initWithDriver:(hostmetal::Driver*)driver;
@end

namespace {

HMDevice* DeviceOf(hostmetal::Driver* driver) {
  static std::mutex mutex;
  static auto* devices = new std::map<hostmetal::Driver*, HMDevice*>;
  std::lock_guard<std::mutex> lock(mutex);
  HMDevice*& device = (*devices)[driver];
  if (!device) device = [[[HMDevice alloc] initWithDriver:driver] hm_immortal];
  return device;
}

// "12" -> 12; false for anything else, and for more than four digits.
bool ReadNumber(const std::string& text, size_t* number) {
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != text.npos) {
    return false;
  }
  *number = size_t(atoi(text.c_str()));
  return true;
}

std::string Environment(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

// The devices that HOSTMETAL_DEVICE and HOSTMETAL_DEVICES name: cpu, which is the default,
// cuda:<number> or cuda, and the number of them from there on: one, or for cuda all.
struct Chosen {
  std::vector<hostmetal::Driver*> drivers;  // none: the reason was printed
  size_t processors = 1;                    // how many devices the processor is
};

Chosen Choose() {
  Chosen chosen;
  const std::string wanted = Environment("HOSTMETAL_DEVICE");
  const std::string several = Environment("HOSTMETAL_DEVICES");
  const bool cpu = wanted.empty() || wanted == "cpu", all_gpus = wanted == "cuda";
  size_t first = 0, count = 1;
  std::string wrong;
  if (!cpu && !all_gpus && !(wanted.rfind("cuda:", 0) == 0 && ReadNumber(wanted.substr(5), &first)))
    wrong = "HOSTMETAL_DEVICE is '" + wanted + "'; expected cpu or cuda:0";
  if (!several.empty() && !(ReadNumber(several, &count) && count >= 1 && count <= 64))
    wrong = "HOSTMETAL_DEVICES is '" + several + "'; expected a number from 1 to 64";
  if (wrong.empty()) wrong = hostmetal::ReadTimeout();
  if (wrong.empty()) wrong = hostmetal::ReadChecks();
  if (wrong.empty() && !cpu && hostmetal::ChecksKernels())
    wrong = "HOSTMETAL_CHECK and HOSTMETAL_SCHEDULE are the processor's; unset HOSTMETAL_DEVICE, "
            "which is '" +
            wanted + "'";
  if (wrong.empty() && cpu) {
    chosen.processors = count;
    chosen.drivers = hostmetal::CpuDrivers(count);
  } else if (wrong.empty()) {
    std::string why;
    const auto& gpus = hostmetal::CudaDrivers(&why);
    if (all_gpus && several.empty()) count = std::max<size_t>(1, gpus.size());
    if (first + count <= gpus.size()) {
      const auto begin = gpus.begin() + ptrdiff_t(first);
      chosen.drivers.assign(begin, begin + ptrdiff_t(count));
    } else {
      wrong = "HOSTMETAL_DEVICE is '" + wanted + "'" +
              (several.empty() ? "" : " and HOSTMETAL_DEVICES '" + several + "'") + ", but " +
              (gpus.empty() ? why : std::to_string(gpus.size()) + " NVIDIA GPUs are usable");
    }
  }
  if (!wrong.empty()) {
    fprintf(stderr, "[MTLCreateSystemDefaultDevice] %s\n", wrong.c_str());
  }
  return chosen;
}

const Chosen& TheChosen() {
  static const Chosen* chosen = new Chosen(Choose());
  return *chosen;
}

NSArray<id<MTLDevice>>* ToArray(const std::vector<hostmetal::Driver*>& drivers) {
  NSMutableArray* all = [[NSMutableArray alloc] init];
  for (hostmetal::Driver* driver : drivers) [all addObject:DeviceOf(driver)];
  return all;
}

}  // namespace

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
  const auto& drivers = TheChosen().drivers;
  return drivers.empty() ? nil : [DeviceOf(drivers[0]) retain];
}

NSArray<id<MTLDevice>>* hostmetal_devices(void) { return ToArray(TheChosen().drivers); }

bool hostmetal_share_memory(NSUInteger device, NSUInteger length, void* name, uint64_t* address) {
  const auto& drivers = TheChosen().drivers;
  void* found = nullptr;
  if (device >= drivers.size() || length == 0 ||
      !drivers[device]->Share(length, static_cast<hostmetal::SharedName*>(name), &found)) {
    return false;
  }
  *address = reinterpret_cast<uint64_t>(found);
  return true;
}

bool hostmetal_open_memory(NSUInteger device, const void* name, uint64_t* address) {
  const auto& drivers = TheChosen().drivers;
  void* found = nullptr;
  if (device >= drivers.size() ||
      !drivers[device]->OpenShared(*static_cast<const hostmetal::SharedName*>(name), &found)) {
    return false;
  }
  *address = reinterpret_cast<uint64_t>(found);
  return true;
}

id<MTLDevice> hostmetal_processor(void) {
  return DeviceOf(hostmetal::CpuDrivers(TheChosen().processors)[0]);
}

bool hostmetal_wide_vectors(void) {
  return hostmetal::CpuDrivers(TheChosen().processors)[0]->info().wide_vectors;
}

NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  std::vector<hostmetal::Driver*> all = hostmetal::CudaDrivers(nullptr);
  const auto& processors = hostmetal::CpuDrivers(TheChosen().processors);
  all.insert(all.end(), processors.begin(), processors.end());
  return ToArray(all);
}

NSErrorDomain const MTLDynamicLibraryDomain = @"MTLDynamicLibraryDomain";

MTLDeviceNotificationName const MTLDeviceWasAddedNotification = @"MTLDeviceWasAddedNotification";
MTLDeviceNotificationName const MTLDeviceRemovalRequestedNotification =
    @"MTLDeviceRemovalRequestedNotification";
MTLDeviceNotificationName const MTLDeviceWasRemovedNotification =
    @"MTLDeviceWasRemovedNotification";

NSArray<id<MTLDevice>>* MTLCopyAllDevicesWithObserver(id<NSObject>* observer,
                                                      MTLDeviceNotificationHandler handler) {
  // An observer is an object of its own, which the handler's captures live as long as; retained, as
  // programs give it back to MTLRemoveDeviceObserver after their pool is gone.
  *observer = [handler copy];
  return MTLCopyAllDevices();
}

void MTLRemoveDeviceObserver(id<NSObject> observer) { [observer release]; }

namespace {

// Directory of the running program, with a slash at the end.
std::string ProgramDirectory() {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) return "./";
  std::string program(path, size_t(n));
  return program.substr(0, program.rfind('/') + 1);
}

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

}  // namespace

@implementation HMDevice

- (id)initWithDriver:(hostmetal::Driver*)driver {
  self = [super init];
  if (self) {
    _driver = driver;
    const char* wrapper = getenv("METAL_DEVICE_WRAPPER_TYPE");
    _validate = wrapper && atoi(wrapper) != 0;
    _checked = _validate || hostmetal::ChecksKernels();
    _onlySamplesStages = Environment("HOSTMETAL_COUNTERS") == "stages";
  }
  return self;
}

- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLDevice %@>", [self name]];
}

- (NSString*)name {
  return hostmetal::ToNSString(_driver->info().name);
}
- (uint64_t)registryID {
  return _driver->info().registry_id;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(METALLIB_MAX_THREADS, METALLIB_MAX_THREADS, METALLIB_MAX_THREADS);
}
- (BOOL)hasUnifiedMemory {
  return _driver->info().unified_memory;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return _driver->info().memory_bytes / 4 * 3;
}
- (NSUInteger)currentAllocatedSize {
  return _allocated.load(std::memory_order_relaxed);
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return _driver->info().threadgroup_bytes;
}
- (NSUInteger)maxBufferLength {
  return _driver->info().memory_bytes;
}

- (MTLArchitecture*)architecture {
  static MTLArchitecture* architecture = [[MTLArchitecture alloc] init];
  return architecture;
}
- (BOOL)supportsFunctionPointers {
  return _driver->info().unified_memory;
}

- (void)sampleTimestamps:(MTLTimestamp*)cpu gpuTimestamp:(MTLTimestamp*)gpu {
  *cpu = *gpu = hostmetal::Now();
}

- (NSArray<id<MTLCounterSet>>*)counterSets {
  return hostmetal::CounterSets();
}
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)samplingPoint {
  switch (samplingPoint) {
    case MTLCounterSamplingPointAtStageBoundary:
      return YES;
    case MTLCounterSamplingPointAtDispatchBoundary:
    case MTLCounterSamplingPointAtBlitBoundary:
      return !_onlySamplesStages;
    default:
      return NO;
  }
}
- (id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:
                                  (MTLCounterSampleBufferDescriptor*)descriptor
                                                             error:(NSError**)error {
  return [HMCounterSampleBuffer newOn:self descriptor:descriptor error:error];
}

- (MTLArgumentBuffersTier)argumentBuffersSupport {
  return MTLArgumentBuffersTier2;
}
- (NSUInteger)maxArgumentBufferSamplerCount {
  return 1024;
}
- (id<MTLArgumentEncoder>)newArgumentEncoderWithArguments:(NSArray*)arguments {
  return hostmetal::NewArgumentEncoder(self, arguments);
}
- (id<MTLArgumentEncoder>)newArgumentEncoderWithBufferBinding:(id<MTLBufferBinding>)binding {
  auto type = hostmetal::StructOf([binding bufferStructType]);
  return type ? hostmetal::NewArgumentEncoder(self, type, [binding bufferDataSize],
                                              [binding bufferAlignment])
              : nil;
}

- (id<MTLLogState>)newLogStateWithDescriptor:(MTLLogStateDescriptor*)descriptor
                                       error:(NSError**)error {
  return [HMLogState newOn:self descriptor:descriptor error:error];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError**)error {
  return [[HMResidencySet alloc] initWithDevice:self descriptor:descriptor];
}

// ---- buffers

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                             options:(MTLResourceOptions)options
                              zeroed:(BOOL)zeroed {
  uint64_t limit = _driver->info().memory_bytes;
  if (length == 0 || length > limit ||
      hostmetal::StorageMode(options) == MTLStorageModeMemoryless ||
      _allocated.load(std::memory_order_relaxed) > limit - length) {
    return nil;
  }
  hostmetal::Allocation allocation;
  if (!_driver->Allocate(length, zeroed, hostmetal::StorageOf(options), &allocation)) return nil;
  HMBuffer* buffer = [[HMBuffer alloc] init];
  buffer->_device = self;
  buffer->_allocation = allocation;
  buffer->_length = length;
  buffer->_options = options;
  _allocated.fetch_add(allocation.size, std::memory_order_relaxed);
  return buffer;
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  return [self newBufferWithLength:length options:options zeroed:YES];
}

- (id<MTLBuffer>)newBufferWithBytes:(const void*)pointer
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
  if (!pointer) return nil;
  auto* buffer = (HMBuffer*)[self newBufferWithLength:length options:options zeroed:NO];
  if (!buffer) return nil;
  if (buffer->_allocation.host) {
    memcpy(buffer->_allocation.host, pointer, length);
  } else if (!_driver->Transfer(buffer->_allocation.device, pointer, length)) {
    [buffer release];
    return nil;
  }
  return buffer;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  auto page = NSUInteger(getpagesize());
  if (!pointer || length == 0 || reinterpret_cast<uintptr_t>(pointer) % page || length % page) {
    return nil;
  }
  HMBuffer* buffer = [self newBufferOver:pointer length:length options:options];
  if (buffer) buffer->_deallocator = Block_copy(deallocator);
  return buffer;
}

- (HMBuffer*)newBufferOver:(void*)pointer
                    length:(NSUInteger)length
                   options:(MTLResourceOptions)options {
  hostmetal::Allocation allocation;
  if (!_driver->Borrow(pointer, length, &allocation)) return nil;
  HMBuffer* buffer = [[HMBuffer alloc] init];
  buffer->_device = self;
  buffer->_allocation = allocation;
  buffer->_length = length;
  buffer->_options = options;
  buffer->_borrowed = YES;
  _allocated.fetch_add(length, std::memory_order_relaxed);
  return buffer;
}

- (id<MTLTensor>)newTensorWithDescriptor:(MTLTensorDescriptor*)descriptor error:(NSError**)error {
  return [HMTensor newForDevice:self descriptor:descriptor buffer:nil offset:0 error:error];
}
- (MTLSizeAndAlign)tensorSizeAndAlignWithDescriptor:(MTLTensorDescriptor*)descriptor {
  return [HMTensor sizeAndAlign:descriptor];
}

- (id<MTLHeap>)newHeapWithDescriptor:(MTLHeapDescriptor*)descriptor {
  NSUInteger size = [self heapBufferSizeAndAlignWithLength:[descriptor size] options:0].size;
  uint64_t limit = _driver->info().memory_bytes;
  if (size == 0 || size > limit || _allocated.load(std::memory_order_relaxed) > limit - size) {
    return nil;
  }
  hostmetal::Allocation allocation;
  hostmetal::Storage storage = hostmetal::StorageOf([descriptor resourceOptions]);
  if (!_driver->Allocate(size, true, storage, &allocation)) return nil;
  _allocated.fetch_add(allocation.size, std::memory_order_relaxed);
  return [[HMHeap alloc] initWithDevice:self allocation:allocation descriptor:descriptor];
}

- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(NSUInteger)length
                                            options:(MTLResourceOptions)options {
  constexpr NSUInteger kAlignment = 256;
  if (length > NSUIntegerMax - kAlignment) return {0, kAlignment};
  return {(length + kAlignment - 1) / kAlignment * kAlignment, kAlignment};
}

- (MTLSizeAndAlign)heapTextureSizeAndAlignWithDescriptor:(MTLTextureDescriptor*)descriptor {
  return [self heapBufferSizeAndAlignWithLength:hostmetal::TextureBytes(descriptor) options:0];
}

// ---- textures

- (id<MTLTexture>)newTextureWithDescriptor:(MTLTextureDescriptor*)descriptor {
  return [HMTexture newOn:self descriptor:descriptor];
}
- (id<MTLSamplerState>)newSamplerStateWithDescriptor:(MTLSamplerDescriptor*)descriptor {
  if (!descriptor) return nil;
  return [[HMSamplerState alloc] initWithDevice:self descriptor:descriptor];
}
- (NSUInteger)minimumLinearTextureAlignmentForPixelFormat:(MTLPixelFormat)format {
  return 16;
}
- (NSUInteger)minimumTextureBufferAlignmentForPixelFormat:(MTLPixelFormat)format {
  return 16;
}

// ---- libraries

- (id<MTLLibrary>)newDefaultLibrary {
  std::string directory = ProgramDirectory();
  for (const char* place :
       {"default.metallib", "Resources/default.metallib", "../Resources/default.metallib"}) {
    std::string path = directory + place;
    if (Exists(path)) return [self newLibraryWithFile:hostmetal::ToNSString(path) error:nullptr];
  }
  return [self newDefaultLibraryWithBundle:[NSBundle mainBundle] error:nullptr];
}

- (id<MTLLibrary>)newDefaultLibraryWithBundle:(NSBundle*)bundle error:(NSError**)error {
  NSMutableArray* places = [NSMutableArray array];
  if ([bundle resourcePath]) [places addObject:[bundle resourcePath]];
  if ([bundle bundlePath]) [places addObject:[bundle bundlePath]];
  for (NSString* place in places) {
    NSString* path = [place stringByAppendingPathComponent:@"default.metallib"];
    if (Exists(ToString(path))) return [self newLibraryWithFile:path error:error];
  }
  return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorFileNotFound,
                "[newDefaultLibrary] no default.metallib in " +
                    ToString([places componentsJoinedByString:@", "]));
}

- (id<MTLLibrary>)newLibraryWithFile:(NSString*)filepath error:(NSError**)error {
  NoError(error);
  if (!filepath) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorFileNotFound,
                  "[newLibraryWithFile] the path is nil");
  }
  Failure failure;
  auto module = _driver->LoadFile([filepath fileSystemRepresentation], _checked, &failure);
  if (!module) return Refuse(error, MTLLibraryErrorDomain, failure.code, failure.message);
  module = hostmetal::WithDeferredCode(_driver, std::move(module), _checked);
  return [[HMLibrary alloc] initWithDevice:self module:std::move(module)];
}

- (id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(NSError**)error {
  // Apple's samples pass [NSURL URLWithString:path]: no scheme, the path is all there is.
  NSString* path = [url path];
  if (![path length]) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorFileNotFound,
                  "[newLibraryWithURL] the URL " + ToString([url description]) + " has no path");
  }
  return [self newLibraryWithFile:path error:error];
}

- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError**)error {
  NoError(error);
  const void* bytes = nullptr;
  size_t size = 0;
  if (!data) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  "[newLibraryWithData] the data is nil");
  }
  dispatch_data_t map = dispatch_data_create_map(data, &bytes, &size);
  Failure failure;
  auto module = _driver->LoadData({static_cast<const char*>(bytes), size}, "data.metallib",
                                  _checked, &failure);
  [map release];
  if (!module) return Refuse(error, MTLLibraryErrorDomain, failure.code, failure.message);
  module = hostmetal::WithDeferredCode(_driver, std::move(module), _checked);
  return [[HMLibrary alloc] initWithDevice:self module:std::move(module)];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError**)error {
  NoError(error);
  if (!source) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  "[newLibraryWithSource] the source is nil");
  }
  // Without options nothing is said about fast math: exact is allowed where Apple's default would
  // be fast.
  if ([options libraryType] != MTLLibraryTypeExecutable) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorUnsupported,
                  "[newLibraryWithSource] libraryType is MTLLibraryTypeDynamic; this device has no "
                  "dynamic libraries (supportsDynamicLibraries)");
  }
  if ([[options libraries] count]) {
    return Refuse(
        error, MTLLibraryErrorDomain, MTLLibraryErrorUnsupported,
        "[newLibraryWithSource] libraries has dynamic libraries, which this device has not "
        "(supportsDynamicLibraries)");
  }
  hostmetal::CompileJob job;
  job.gpu = _driver->CompilerTarget();
  job.wide = _driver->info().wide_vectors;
  job.source = ToString(source);
  if (options) {
    job.math = [options fastMathEnabled] ? "-ffast-math" : "-fno-fast-math";
    // 0: allocated and never initialised, which VkFFT does.
    if (const NSUInteger version = [options languageVersion]) {
      job.standard =
          "metal" + std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
    }
    NSDictionary* macros = [options preprocessorMacros];
    for (NSString* name in [[macros allKeys] sortedArrayUsingSelector:@selector(compare:)]) {
      job.macros.emplace_back(ToString(name), ToString([[macros objectForKey:name] description]));
    }
  }
  job.checked = _checked;
  job.logging = [options enableLogging];
  Failure failure;
  auto module = hostmetal::CompileModule(_driver, std::move(job), &failure);
  if (!module) return Refuse(error, MTLLibraryErrorDomain, failure.code, failure.message);
  HMLibrary* library = [[HMLibrary alloc] initWithDevice:self module:std::move(module)];
  library->_state->max_threads = [options maxTotalThreadsPerThreadgroup];
  return library;
}

- (void)newLibraryWithSource:(NSString*)source
                     options:(MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)handler {
  NSString* text = [[source copy] autorelease];
  MTLCompileOptions* wanted = [[options copy] autorelease];
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    id<MTLLibrary> library = [self newLibraryWithSource:text options:wanted error:&error];
    handler([library autorelease], error);
  });
}

// ---- pipelines

- (id<MTLComputePipelineState>)newPipeline:(id<MTLFunction>)function
                                maxThreads:(NSUInteger)maxThreads
                           multipleOfWidth:(BOOL)multipleOfWidth
                                     label:(NSString*)label
                                  archives:(NSArray<id<MTLBinaryArchive>>*)archives
                                    linked:(MTLLinkedFunctions*)linked
                                   options:(MTLPipelineOption)options
                                reflection:(MTLAutoreleasedComputePipelineReflection*)reflection
                                     error:(NSError**)error {
  NoError(error);
  auto* made = (HMFunction*)function;
  if (![made isKindOfClass:[HMFunction class]] || made->_device != self) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  "[newComputePipelineState] the function is nil or not of this device");
  }
  const metallib_kernel* entry = made->_entry;
  if (entry->flags & METALLIB_KERNEL_VISIBLE) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  std::string("[newComputePipelineState] function '") + entry->name +
                      "' is a visible one, for tables of a kernel's pipeline, and no kernel");
  }
  for (uint32_t i = 0; i < entry->n_constants; ++i) {
    if (entry->constants[i].flags & METALLIB_CONSTANT_REQUIRED && !(*made->_constants)[i].defined) {
      return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                    std::string("[newComputePipelineState] function '") + entry->name +
                        "' needs function constant " + std::to_string(entry->constants[i].index) +
                        " ('" + entry->constants[i].name +
                        "'); make it with newFunctionWithName:constantValues:error:");
    }
  }
  if (entry->static_threadgroup_bytes > METALLIB_MAX_THREADGROUP_MEMORY) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  std::string("[newComputePipelineState] function '") + entry->name +
                      "' declares " + std::to_string(entry->static_threadgroup_bytes) +
                      " bytes of threadgroup memory; the limit is " +
                      std::to_string(METALLIB_MAX_THREADGROUP_MEMORY));
  }
  if (maxThreads > METALLIB_MAX_THREADS) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                  "[newComputePipelineState] maxTotalThreadsPerThreadgroup is " +
                      std::to_string(maxThreads) + "; the limit is " +
                      std::to_string(METALLIB_MAX_THREADS));
  }
  if (made->_maxThreads && (maxThreads == 0 || maxThreads > made->_maxThreads)) {
    maxThreads = made->_maxThreads;
  }
  HMComputePipelineState* state = [[HMComputePipelineState alloc] initWithFunction:made
                                                                        maxThreads:maxThreads
                                                                   multipleOfWidth:multipleOfWidth
                                                                             label:label];
  std::string why;
  const bool archived =
      [archives count] && hostmetal::TakeFromArchives(archives, made, state->_kernel, &why);
  if (!archived && options & MTLPipelineOptionFailOnBinaryArchiveMiss) {
    [state release];
    return Refuse(error, MTLBinaryArchiveDomain, MTLBinaryArchiveErrorUnexpectedElement,
                  std::string("[newComputePipelineState] function '") + entry->name +
                      "' is in none of " + std::to_string([archives count]) + " binaryArchives" +
                      why + "; add it with addComputePipelineFunctionsWithDescriptor:error:");
  }
  Failure failure;
  if (state->_kernel->entry->flags & METALLIB_KERNEL_ABSENT && _driver->CompilerTarget().empty()) {
    failure = state->_kernel->module->Complete(state->_kernel);
  }
  if (!failure) failure = _driver->Prepare(state->_kernel);
  if (!failure && linked) {
    failure = [state link:hostmetal::TableFunctions(linked)];
  }
  if (failure) {
    [state release];
    return Refuse(error, MTLLibraryErrorDomain, failure.code, failure.message);
  }
  if (reflection && (options & (MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo))) {
    *reflection = [[[MTLComputePipelineReflection alloc] initWithPipeline:state] autorelease];
  }
  return state;
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError**)error {
  return [self newComputePipelineStateWithFunction:function
                                           options:MTLPipelineOptionNone
                                        reflection:nullptr
                                             error:error];
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                options:(MTLPipelineOption)options
                             reflection:(MTLAutoreleasedComputePipelineReflection*)reflection
                                  error:(NSError**)error {
  return [self newPipeline:function
                maxThreads:0
           multipleOfWidth:NO
                     label:[function label]
                  archives:nil
                    linked:nil
                   options:options
                reflection:reflection
                     error:error];
}

- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)handler {
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    id<MTLComputePipelineState> state = [self newComputePipelineStateWithFunction:function
                                                                            error:&error];
    handler([state autorelease], error);
  });
}

- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                    options:(MTLPipelineOption)options
                          completionHandler:
                              (MTLNewComputePipelineStateWithReflectionCompletionHandler)handler {
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    MTLComputePipelineReflection* reflection = nil;
    id<MTLComputePipelineState> state = [self newComputePipelineStateWithFunction:function
                                                                          options:options
                                                                       reflection:&reflection
                                                                            error:&error];
    handler([state autorelease], reflection, error);
  });
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLAutoreleasedComputePipelineReflection*)reflection
                                    error:(NSError**)error {
  if ([[descriptor preloadedLibraries] count]) {
    return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorUnsupported,
                  "[newComputePipelineState] preloadedLibraries has dynamic libraries, which this "
                  "device has not (supportsDynamicLibraries)");
  }
  auto* made = (HMComputePipelineState*)[self
          newPipeline:[descriptor computeFunction]
           maxThreads:[descriptor maxTotalThreadsPerThreadgroup]
      multipleOfWidth:[descriptor threadGroupSizeIsMultipleOfThreadExecutionWidth]
                label:[descriptor label]
             archives:[descriptor binaryArchives]
               linked:[descriptor linkedFunctions]
              options:options
           reflection:reflection
                error:error];
  if (!made || ![descriptor supportIndirectCommandBuffers]) return made;
  made->_indirect = made->_bindingCount <= METALLIB_FIRST_TEXTURE;
  if (made->_indirect) return made;
  [made autorelease];
  return Refuse(error, MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                std::string("[newComputePipelineState] function '") + made->_kernel->entry->name +
                    "' takes textures or samplers, which commands of an indirect command buffer "
                    "cannot be given (supportIndirectCommandBuffers); put them in a struct that a "
                    "buffer holds");
}

- (void)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                      options:(MTLPipelineOption)options
                            completionHandler:
                                (MTLNewComputePipelineStateWithReflectionCompletionHandler)handler {
  MTLComputePipelineDescriptor* wanted = [[descriptor copy] autorelease];
  dispatch_async(dispatch_get_global_queue(0, 0), ^{
    NSError* error = nil;
    MTLComputePipelineReflection* reflection = nil;
    id<MTLComputePipelineState> state = [self newComputePipelineStateWithDescriptor:wanted
                                                                            options:options
                                                                         reflection:&reflection
                                                                              error:&error];
    handler([state autorelease], reflection, error);
  });
}

- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError**)error {
  return [HMBinaryArchive newOn:self descriptor:descriptor error:error];
}

- (id)refuseDynamicLibrary:(NSError**)error {
  return Refuse(error, MTLDynamicLibraryDomain, MTLDynamicLibraryErrorUnsupported,
                "[newDynamicLibrary] this device has no dynamic libraries "
                "(supportsDynamicLibraries); put the functions into the library that calls them");
}
- (id<MTLDynamicLibrary>)newDynamicLibrary:(id<MTLLibrary>)library error:(NSError**)error {
  return [self refuseDynamicLibrary:error];
}
- (id<MTLDynamicLibrary>)newDynamicLibraryWithURL:(NSURL*)url error:(NSError**)error {
  return [self refuseDynamicLibrary:error];
}

- (id<MTLIndirectCommandBuffer>)newIndirectCommandBufferWithDescriptor:
                                    (MTLIndirectCommandBufferDescriptor*)descriptor
                                                       maxCommandCount:(NSUInteger)count
                                                               options:(MTLResourceOptions)options {
  return [HMIndirectCommandBuffer newOn:self descriptor:descriptor count:count options:options];
}

// ---- queues, fences, events

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:64];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  if (count == 0) return nil;
  return [[HMCommandQueue alloc] initWithDevice:self maxCommandBufferCount:count];
}
- (id<MTLCommandQueue>)newCommandQueueWithDescriptor:(MTLCommandQueueDescriptor*)descriptor {
  if (!descriptor) return nil;
  auto* queue = (HMCommandQueue*)[self
      newCommandQueueWithMaxCommandBufferCount:[descriptor maxCommandBufferCount]];
  if (queue) {
    (*queue->_state)->log =
        hostmetal::LogStateOf(self, [descriptor logState], "MTLCommandQueueDescriptor");
  }
  return queue;
}
- (id<MTLFence>)newFence {
  HMFence* fence = [[HMFence alloc] init];
  fence->_device = self;
  return fence;
}
- (id<MTLEvent>)newEvent {
  return [[HMEvent alloc] initWithDevice:self];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return [[HMSharedEvent alloc] initWithDevice:nil];
}
- (id<MTLSharedEvent>)newSharedEventWithHandle:(MTLSharedEventHandle*)handle {
  return [[handle event] retain];
}

@end

@implementation HMFence
- (id<MTLDevice>)device {
  return _device;
}
@end

@implementation MTLArchitecture
- (id)init {
  self = [super init];
  if (self) {
#if defined(__x86_64__)
    _name = @"x86_64";
#else
    _name = @"arm64";
#endif
  }
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
- (NSString*)name {
  return _name;
}
@end
