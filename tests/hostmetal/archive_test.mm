// Binary archives: pipelines that are compiled once, kept in a file, and found there.
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Size;
using harness::Text;

namespace {

// A folder that is gone with the object.
class Folder {
 public:
  Folder() {
    path_ = Text([NSTemporaryDirectory() stringByAppendingPathComponent:@"archive-test-XXXXXX"]);
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() {
    [[NSFileManager defaultManager] removeItemAtPath:[NSString stringWithUTF8String:path_.c_str()]
                                               error:nullptr];
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

// An environment variable, as it was when the object is gone.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* before = getenv(name);
    there_ = before != nullptr;
    if (before) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() {
    if (there_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  bool there_;
  std::string before_;
};

NSURL* UrlOf(const std::string& path) {
  return [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()]];
}

// So many kernels that each is compiled when a pipeline asks for it.
id<MTLLibrary> ManyKernels() {
  NSMutableString* source = [NSMutableString stringWithString:@"#include <metal_stdlib>\n"];
  for (int i = 0; i < 20; ++i) {
    [source appendFormat:@"kernel void k%d(device uint* x, uint i [[thread_position_in_grid]]) "
                          "{ x[i] = i + %d; }\n",
                         i, i];
  }
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:source options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  return library;
}

MTLComputePipelineDescriptor* DescriptorOf(id<MTLLibrary> library, NSString* name,
                                           id<MTLBinaryArchive> archive = nil) {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = [[library newFunctionWithName:name] autorelease];
  CHECK(descriptor.computeFunction != nil);
  if (archive) descriptor.binaryArchives = [NSArray arrayWithObject:archive];
  return descriptor;
}

id<MTLComputePipelineState> PipelineOf(MTLComputePipelineDescriptor* descriptor,
                                       MTLPipelineOption options, NSError** error) {
  return [[Device() newComputePipelineStateWithDescriptor:descriptor
                                                  options:options
                                               reflection:nullptr
                                                    error:error] autorelease];
}

id<MTLBinaryArchive> Archive(const std::string& path, NSError** error) {
  MTLBinaryArchiveDescriptor* descriptor = [[[MTLBinaryArchiveDescriptor alloc] init] autorelease];
  if (!path.empty()) descriptor.url = UrlOf(path);
  return [[Device() newBinaryArchiveWithDescriptor:descriptor error:error] autorelease];
}

uint32_t First(id<MTLComputePipelineState> pipeline) {
  id<MTLBuffer> x = Buffer(64);
  NSError* error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:x offset:0 atIndex:0];
    [encoder dispatchThreads:Size(4) threadsPerThreadgroup:Size(4)];
  });
  CHECK_EQ(Message(error), "(nil)");
  return Contents<uint32_t>(x)[0];
}

}  // namespace

TEST(archive_spares_the_compilation) {
  if (!Device().hasUnifiedMemory) return;
  Folder folder;
  const std::string file = folder / "pipelines.archive";
  NSError* error = nil;
  {
    Variable cache("METAL_OPS_CACHE", (folder / "cache").c_str());
    id<MTLBinaryArchive> archive = Archive("", &error);
    CHECK_EQ(Message(error), "(nil)");
    CHECK(archive.device == Device());
    id<MTLLibrary> library = ManyKernels();
    for (int turn = 0; turn < 2; ++turn) {  // once more changes nothing
      CHECK([archive addComputePipelineFunctionsWithDescriptor:DescriptorOf(library, @"k3")
                                                         error:&error]);
    }
    CHECK([archive serializeToURL:UrlOf(file) error:&error]);
    CHECK_EQ(Message(error), "(nil)");
  }
  // Nothing is left of the compiled code except the archive; and then there is no compiler.
  Variable cache("METAL_OPS_CACHE", (folder / "empty").c_str());
  id<MTLLibrary> library = ManyKernels();
  Variable compiler("HOSTMETAL_COMPILER", "/nowhere");
  id<MTLBinaryArchive> archive = Archive(file, &error);
  CHECK_EQ(Message(error), "(nil)");
  CHECK(PipelineOf(DescriptorOf(library, @"k3"), MTLPipelineOptionNone, &error) == nil);
  CHECK_CONTAINS(Message(error), "no shader compiler at '/nowhere'");
  for (MTLPipelineOption option :
       {MTLPipelineOptionNone, MTLPipelineOptionFailOnBinaryArchiveMiss}) {
    error = nil;
    id<MTLComputePipelineState> found =
        PipelineOf(DescriptorOf(library, @"k3", archive), option, &error);
    CHECK_EQ(Message(error), "(nil)");
    CHECK_EQ(First(found), 3u);
  }
  CHECK(PipelineOf(DescriptorOf(library, @"k4", archive), MTLPipelineOptionNone, &error) == nil);
  CHECK_EQ(Text([error domain]), Text(MTLLibraryErrorDomain));
  CHECK(PipelineOf(DescriptorOf(library, @"k4", archive), MTLPipelineOptionFailOnBinaryArchiveMiss,
                   &error) == nil);
  CHECK_EQ(Text([error domain]), Text(MTLBinaryArchiveDomain));
  CHECK_CONTAINS(Message(error), "function 'k4' is in none of 1 binaryArchives; add it with "
                                 "addComputePipelineFunctionsWithDescriptor:error:");
  CHECK(![archive addComputePipelineFunctionsWithDescriptor:DescriptorOf(library, @"k4")
                                                      error:&error]);
  CHECK_EQ([error code], NSInteger(MTLBinaryArchiveErrorCompilationFailure));
}

TEST(archive_tells_functions_apart) {
  if (!Device().hasUnifiedMemory) return;
  Folder folder;
  const std::string file = folder / "pipelines.archive";
  NSError* error = nil;
  id<MTLBinaryArchive> archive = Archive("", &error);
  auto constants = [&](float factor) {
    MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    [values setConstantValue:&factor type:MTLDataTypeFloat atIndex:0];
    MTLComputePipelineDescriptor* descriptor =
        [[[MTLComputePipelineDescriptor alloc] init] autorelease];
    descriptor.computeFunction = [[harness::Library() newFunctionWithName:@"constants"
                                                           constantValues:values
                                                                    error:nullptr] autorelease];
    return descriptor;
  };
  CHECK([archive addComputePipelineFunctionsWithDescriptor:constants(2) error:&error]);
  MTLFunctionDescriptor* add = [MTLFunctionDescriptor functionDescriptor];
  add.name = @"add";
  CHECK([archive addFunctionWithDescriptor:add library:harness::Library() error:&error]);
  CHECK([archive serializeToURL:UrlOf(file) error:&error]);
  archive = Archive(file, &error);
  auto found = [&](MTLComputePipelineDescriptor* descriptor) {
    descriptor.binaryArchives = [NSArray arrayWithObjects:Archive("", nullptr), archive, nil];
    return PipelineOf([[descriptor copy] autorelease], MTLPipelineOptionFailOnBinaryArchiveMiss,
                      &error) != nil;
  };
  CHECK(found(constants(2)));
  CHECK(!found(constants(3)));
  CHECK(found(DescriptorOf(harness::Library(), @"add")));
  CHECK(!found(DescriptorOf(harness::Library(), @"noop")));
  // One of the same name in another library.
  id<MTLLibrary> other = [[Device()
      newLibraryWithFile:[NSString
                             stringWithUTF8String:harness::FixturePath("other.metallib").c_str()]
                   error:&error] autorelease];
  CHECK(other != nil);
  CHECK(!found(DescriptorOf(other, [[other functionNames] objectAtIndex:0])));
}

TEST(archive_refuses_what_is_none) {
  Folder folder;
  const std::string file = folder / "pipelines.archive";
  NSError* error = nil;
  auto refused = [&](const char* part) {
    error = nil;
    CHECK(Archive(file, &error) == nil);
    CHECK_EQ(Text([error domain]), "MTLBinaryArchiveDomain");
    CHECK_EQ([error code], NSInteger(MTLBinaryArchiveErrorInvalidFile));
    CHECK_CONTAINS(Message(error), part);
  };
  refused("cannot be read");
  std::ofstream(file) << "something else";
  refused("is no binary archive of hostmetal");
  id<MTLBinaryArchive> archive = Archive("", &error);
  if (Device().hasUnifiedMemory) {
    CHECK([archive
        addComputePipelineFunctionsWithDescriptor:DescriptorOf(harness::Library(), @"add")
                                            error:&error]);
  }
  CHECK([archive serializeToURL:UrlOf(file) error:&error]);
  CHECK(Archive(file, &error) != nil);
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  for (size_t at : {size_t(8), size_t(12), whole.size() / 2, whole.size() - 1}) {
    std::string bytes = whole;
    bytes[at] ^= 1;
    std::ofstream(file, std::ios::binary) << bytes;
    refused("is damaged, or was not written to its end");
  }
  for (size_t size : {size_t(8), size_t(20), whole.size() - 1}) {
    std::ofstream(file, std::ios::binary) << whole.substr(0, size);
    refused("is damaged, or was not written to its end");
  }
  CHECK(![archive serializeToURL:UrlOf(folder / "nowhere/file") error:&error]);
  CHECK_EQ([error code], NSInteger(MTLBinaryArchiveErrorInvalidFile));
  CHECK_CONTAINS(Message(error), "cannot be written: No such file");
  MTLComputePipelineDescriptor* empty = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  CHECK(![archive addComputePipelineFunctionsWithDescriptor:empty error:&error]);
  CHECK_EQ([error code], NSInteger(MTLBinaryArchiveErrorUnexpectedElement));
  CHECK_CONTAINS(Message(error), "the function is nil or not of this device");
  MTLFunctionDescriptor* missing = [MTLFunctionDescriptor functionDescriptor];
  missing.name = @"missing";
  CHECK(![archive addFunctionWithDescriptor:missing library:harness::Library() error:&error]);
  CHECK_CONTAINS(Message(error), "has no function 'missing'");
}
