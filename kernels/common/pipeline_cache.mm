// Compiled compute pipelines: see pipeline_cache.h.

#include "kernels/common/pipeline_cache.h"

#import <Foundation/Foundation.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "kernels/common/platform.h"

namespace metal_ops {
namespace {

template <typename T>
uint32_t Bits(T value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

const char* Text(NSError* error) {
  NSString* text = [error localizedDescription];
  return text == nil ? "no reason given" : [text UTF8String];
}

Status DefaultLibraryPath(std::string* path) {
  std::string self;
  RETURN_IF_ERROR(LibraryPath(&self));
  const size_t slash = self.rfind('/') + 1;
  const std::string folder = self.substr(0, slash);
  const std::string stem = self.substr(slash, self.rfind('.') - slash);
  for (const std::string& name : {stem, std::string("metal_ops")}) {
    *path = folder + name + ".metallib";
    if (access(path->c_str(), R_OK) == 0) return Status();
  }
  return NotFound(
      "there is no shader library beside ", self, " (looked for ", stem,
      ".metallib and metal_ops.metallib); build it with 'make build', or with 'python -m "
      "metal_ops build --shaders ...'");
}

using PipelineKey = std::tuple<const void*, std::string, std::string, std::string>;
using LibraryKey = std::pair<const void*, std::string>;

// Objects in it are retained for ever: the process's pipelines, a few dozen.
struct Cache {
  std::mutex mutex;
  std::map<LibraryKey, id<MTLLibrary>> libraries;
  std::map<PipelineKey, id<MTLComputePipelineState>> pipelines;
};

Cache& GetCache() {
  static Cache* cache = new Cache();
  return *cache;
}

// Holds cache.mutex.
Status GetLibrary(Cache& cache, id<MTLDevice> device, const std::string& path,
                  id<MTLLibrary>* library) {
  id<MTLLibrary>& entry = cache.libraries[{device, path}];
  if (entry == nil) {
    NSError* error = nil;
    NSURL* url = [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()]];
    entry = [device newLibraryWithURL:url error:&error];
    if (entry == nil) {
      cache.libraries.erase({device, path});
      return NotFound("cannot load the shader library ", path, ": ", Text(error),
                      "; rebuild it with 'make build'");
    }
  }
  *library = entry;
  return Status();
}

}  // namespace

Constants& Constants::Bool(int index, bool value) {
  entries_.push_back({index, MTLDataTypeBool, Bits(value)});
  return *this;
}

Constants& Constants::Int(int index, int32_t value) {
  entries_.push_back({index, MTLDataTypeInt, Bits(value)});
  return *this;
}

Constants& Constants::UInt(int index, uint32_t value) {
  entries_.push_back({index, MTLDataTypeUInt, Bits(value)});
  return *this;
}

Constants& Constants::Float(int index, float value) {
  entries_.push_back({index, MTLDataTypeFloat, Bits(value)});
  return *this;
}

std::string Constants::Key() const {
  std::string key;
  for (const Entry& e : entries_) {
    key += StrCat(e.index, ':', static_cast<NSUInteger>(e.type), ':', e.bits, ';');
  }
  return key;
}

MTLFunctionConstantValues* Constants::Values() const {
  MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  for (const Entry& e : entries_) {
    [values setConstantValue:&e.bits type:e.type atIndex:static_cast<NSUInteger>(e.index)];
  }
  return values;
}

Status GetPipeline(id<MTLDevice> device, const Function& function,
                   id<MTLComputePipelineState>* pipeline) {
  std::string path = function.library;
  if (path.empty()) {
    static std::string found;
    static const Status status = DefaultLibraryPath(&found);
    RETURN_IF_ERROR(status);
    path = found;
  }

  Cache& cache = GetCache();
  const PipelineKey key(device, path, function.name, function.constants.Key());
  std::lock_guard<std::mutex> lock(cache.mutex);
  if (const auto it = cache.pipelines.find(key); it != cache.pipelines.end()) {
    *pipeline = it->second;
    return Status();
  }

  id<MTLLibrary> library = nil;
  RETURN_IF_ERROR(GetLibrary(cache, device, path, &library));
  NSString* name = [NSString stringWithUTF8String:function.name.c_str()];
  NSError* error = nil;
  id<MTLFunction> shader = function.constants.empty()
                               ? [library newFunctionWithName:name]
                               : [library newFunctionWithName:name
                                               constantValues:function.constants.Values()
                                                        error:&error];
  if (shader == nil) {
    return NotFound("the shader library ", path, " has no function '", function.name, "'",
                    error == nil ? "" : ": ", error == nil ? "" : Text(error),
                    "; it is older than the kernels, rebuild it with 'make build'");
  }
  id<MTLComputePipelineState> made = [device newComputePipelineStateWithFunction:shader
                                                                           error:&error];
  [shader release];
  if (made == nil) {
    return Internal("cannot build a compute pipeline for the shader '", function.name,
                    "': ", Text(error));
  }
  cache.pipelines[key] = made;
  *pipeline = made;
  return Status();
}

int64_t PipelinesBuilt() {
  Cache& cache = GetCache();
  std::lock_guard<std::mutex> lock(cache.mutex);
  return static_cast<int64_t>(cache.pipelines.size());
}

}  // namespace metal_ops

// For tests: a kernel that runs again must not build its pipelines again.
extern "C" __attribute__((visibility("default"))) int64_t metal_kernels_pipelines_built() {
  return metal_ops::PipelinesBuilt();
}
