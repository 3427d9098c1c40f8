// MTLBinaryArchive: functions by their library's identity, and code of those that were compiled from
// source.
#include "hostmetal/src/binary_archive.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <mutex>

#include "hostmetal/src/archive_file.h"
#include "hostmetal/src/errors.h"

NSErrorDomain const MTLBinaryArchiveDomain = @"MTLBinaryArchiveDomain";

namespace hostmetal {

struct ArchiveState {
  std::mutex mutex;
  std::vector<ArchiveEntry> entries;
  // The modules of archived code that pipelines took: one for all pipelines.
  std::map<std::shared_ptr<const std::string>, std::shared_ptr<Module>> loaded;

  const ArchiveEntry* Find(const ArchiveEntry& wanted) const {
    for (const ArchiveEntry& entry : entries) {
      if (entry.function == wanted.function && entry.library == wanted.library &&
          entry.constants == wanted.constants) {
        return &entry;
      }
    }
    return nullptr;
  }
};

namespace {

ArchiveEntry EntryOf(HMFunction* function) {
  const auto& values = *function->_constants;
  return {
      (*function->_module)->Identity(), function->_entry->name,
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]),
      nullptr};
}

const metallib_kernel* KernelNamed(const Module& module, const std::string& name) {
  for (const metallib_kernel* kernel : module.kernels()) {
    if (name == kernel->name) return kernel;
  }
  return nullptr;
}

BOOL Refused(NSError** error, MTLBinaryArchiveError code, const std::string& message) {
  Refuse(error, MTLBinaryArchiveDomain, int(code), message);
  return NO;
}

// Under another name first: a process that reads the file meanwhile has the old one, or none.
std::string WriteFile(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + "." + std::to_string(getpid()) + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (file && rename(unfinished.c_str(), path.c_str()) == 0) return "";
  const std::string why = strerror(errno);
  unlink(unfinished.c_str());
  return why;
}

}  // namespace

bool TakeFromArchives(NSArray<id<MTLBinaryArchive>>* archives, HMFunction* function, Kernel* kernel,
                      std::string* why) {
  const ArchiveEntry wanted = EntryOf(function);
  for (HMBinaryArchive* archive in archives) {
    if (![archive isKindOfClass:HM_CLASS(HMBinaryArchive)] ||
        archive->_device != function->_device) {
      *why = "; one of them is not of this device";
      continue;
    }
    ArchiveState& state = *archive->_state;
    std::lock_guard<std::mutex> lock(state.mutex);
    const ArchiveEntry* found = state.Find(wanted);
    if (!found) continue;
    if (!(kernel->entry->flags & METALLIB_KERNEL_ABSENT)) return true;
    if (!found->code) continue;
    auto& module = state.loaded[found->code];
    Failure failure;
    if (!module) {
      module = function->_device->_driver->LoadData(*found->code, "archive.metallib",
                                                    function->_device->_checked, &failure);
    }
    const metallib_kernel* entry = module ? KernelNamed(*module, wanted.function) : nullptr;
    if (!entry || entry->flags & METALLIB_KERNEL_ABSENT) {
      *why = "; what one of them has of it is of no use here: " + failure.message;
      continue;
    }
    kernel->module = module;
    kernel->entry = entry;
    return true;
  }
  return false;
}

}  // namespace hostmetal

using hostmetal::ArchiveEntry;
using hostmetal::Refused;
using hostmetal::ToString;

@implementation MTLBinaryArchiveDescriptor
- (void)dealloc {
  [_url release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLBinaryArchiveDescriptor* copy = [[MTLBinaryArchiveDescriptor alloc] init];
  [copy setUrl:_url];
  return copy;
}
@synthesize url = _url;
@end

@implementation HMBinaryArchive

+ (HMBinaryArchive*)newOn:(HMDevice*)device
               descriptor:(MTLBinaryArchiveDescriptor*)descriptor
                    error:(NSError**)error {
  HMBinaryArchive* archive = [[HMBinaryArchive alloc] init];
  archive->_device = device;
  archive->_state = new hostmetal::ArchiveState;
  if (![descriptor url] || [archive read:[descriptor url] error:error]) return archive;
  [archive release];
  return nil;
}
- (void)dealloc {
  delete _state;
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}

- (BOOL)read:(NSURL*)url error:(NSError**)error {
  const std::string method = "[newBinaryArchiveWithDescriptor] ";
  const std::string path = [[url path] length] ? [[url path] fileSystemRepresentation] : "";
  if (path.empty()) {
    return Refused(error, MTLBinaryArchiveErrorInvalidFile, method + "the url has no path");
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::string wrong = file.good() || file.eof() ? "" : "cannot be read";
  if (wrong.empty()) wrong = hostmetal::ReadArchive(bytes, &_state->entries);
  return wrong.empty() ||
         Refused(error, MTLBinaryArchiveErrorInvalidFile, method + "'" + path + "' " + wrong);
}

- (BOOL)add:(id<MTLFunction>)given method:(const std::string&)method error:(NSError**)error {
  auto* function = (HMFunction*)given;
  if (![function isKindOfClass:HM_CLASS(HMFunction)] || function->_device != _device) {
    return Refused(error, MTLBinaryArchiveErrorUnexpectedElement,
                   method + "the function is nil or not of this device");
  }
  ArchiveEntry entry = hostmetal::EntryOf(function);
  if (entry.library.empty()) {
    return Refused(error, MTLBinaryArchiveErrorUnexpectedElement,
                   method + "function '" + entry.function +
                       "' runs on a GPU; archives have code of the processor alone");
  }
  std::lock_guard<std::mutex> lock(_state->mutex);
  if (_state->Find(entry)) return YES;
  hostmetal::Kernel kernel;
  kernel.module = *function->_module;
  kernel.entry = function->_entry;
  if (kernel.entry->flags & METALLIB_KERNEL_ABSENT) {
    if (hostmetal::Failure failure = kernel.module->Complete(&kernel)) {
      return Refused(error, MTLBinaryArchiveErrorCompilationFailure, failure.message);
    }
  }
  if ((*function->_module)->FromSource()) {
    std::string code = kernel.module->Bytes();
    for (const ArchiveEntry& other : _state->entries) {
      if (other.code && *other.code == code) entry.code = other.code;
    }
    if (!entry.code) entry.code = std::make_shared<const std::string>(std::move(code));
  }
  _state->entries.push_back(std::move(entry));
  return YES;
}

- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError**)error {
  return [self add:[descriptor computeFunction]
            method:"[addComputePipelineFunctionsWithDescriptor] "
             error:error];
}

- (BOOL)addFunctionWithDescriptor:(MTLFunctionDescriptor*)descriptor
                          library:(id<MTLLibrary>)library
                            error:(NSError**)error {
  const std::string method = "[addFunctionWithDescriptor] ";
  NSError* why = nil;
  id<MTLFunction> function = [[library newFunctionWithDescriptor:descriptor
                                                           error:&why] autorelease];
  if (!function) {
    return Refused(
        error, MTLBinaryArchiveErrorUnexpectedElement,
        method + (library ? ToString([why localizedDescription]) : "the library is nil"));
  }
  return [self add:function method:method error:error];
}

- (BOOL)serializeToURL:(NSURL*)url error:(NSError**)error {
  const std::string path = [[url path] length] ? [[url path] fileSystemRepresentation] : "";
  std::string bytes;
  {
    std::lock_guard<std::mutex> lock(_state->mutex);
    bytes = hostmetal::WriteArchive(_state->entries);
  }
  const std::string wrong = path.empty() ? "no path" : hostmetal::WriteFile(path, bytes);
  return wrong.empty() || Refused(error, MTLBinaryArchiveErrorInvalidFile,
                                  "[serializeToURL] '" + path + "' cannot be written: " + wrong);
}

@end
