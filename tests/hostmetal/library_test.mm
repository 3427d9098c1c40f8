// Libraries, functions, function constants and pipelines.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::FixturePath;
using harness::Library;
using harness::Message;
using harness::Size;
using harness::Validating;

namespace {

NSString* Path(const char* name) {
  return [NSString stringWithUTF8String:FixturePath(name).c_str()];
}

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Loads and expects the error; the library must be nil.
NSError* LoadError(NSString* path) {
  NSError* error = nil;
  CHECK([Device() newLibraryWithFile:path error:&error] == nil);
  CHECK_EQ(harness::Text([error domain]), "MTLLibraryErrorDomain");
  return error;
}

}  // namespace

TEST(library_lists_its_functions) {
  CHECK([[Library() functionNames] containsObject:@"add"]);
  CHECK([[Library() functionNames] count] >= 15);
  CHECK(Library().device == Device());
  id<MTLFunction> add = [[Library() newFunctionWithName:@"add"] autorelease];
  CHECK_EQ(harness::Text(add.name), "add");
  CHECK_EQ(add.functionType, MTLFunctionTypeKernel);
  CHECK(add.device == Device());
  CHECK([Library() newFunctionWithName:@"no_such_function"] == nil);
}

TEST(library_from_url_with_and_without_scheme) {
  char* absolute = realpath(FixturePath("fixture.metallib").c_str(), nullptr);
  NSString* path = [NSString stringWithUTF8String:absolute];
  free(absolute);
  NSError* error = nil;
  id<MTLLibrary> plain = [Device() newLibraryWithURL:[NSURL URLWithString:path] error:&error];
  CHECK(plain != nil);
  id<MTLLibrary> file = [Device() newLibraryWithURL:[NSURL fileURLWithPath:path] error:&error];
  CHECK(file != nil);
  CHECK([Device() newLibraryWithURL:nil error:&error] == nil);
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorFileNotFound));
  [plain release];
  [file release];
}

// The processor's own version of a kernel, unless the variable says otherwise; checked kernels have one.
TEST(library_takes_code_for_wide_vectors) {
  std::string bytes = Read(FixturePath("fixture.metallib"));
  auto version = [&] {
    NSError* error = nil;
    dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, nil);
    id<MTLLibrary> library = [[Device() newLibraryWithData:data error:&error] autorelease];
    dispatch_release(data);
    id<MTLFunction> function = [[library newFunctionWithName:@"version"] autorelease];
    id<MTLComputePipelineState> pipeline =
        [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
    id<MTLBuffer> out = Buffer(4);
    error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:out offset:0 atIndex:0];
      [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
    });
    CHECK(error == nil);
    return *Contents<uint32_t>(out);
  };
  const bool wide = __builtin_cpu_supports("x86-64-v4") && !Validating();
  const char* asked = getenv("HOSTMETAL_WIDE");
  std::string before = asked ? asked : "";
  setenv("HOSTMETAL_WIDE", "0", 1);
  CHECK_EQ(version(), 1u);
  setenv("HOSTMETAL_WIDE", "1", 1);
  CHECK_EQ(version(), wide ? 2u : 1u);
  before.empty() ? unsetenv("HOSTMETAL_WIDE") : setenv("HOSTMETAL_WIDE", before.c_str(), 1);
}

TEST(library_from_data) {
  std::string bytes = Read(FixturePath("fixture.metallib"));
  dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, nil);
  NSError* error = nil;
  id<MTLLibrary> library = [Device() newLibraryWithData:data error:&error];
  CHECK([[library functionNames] containsObject:@"noop"]);
  [library release];
  dispatch_release(data);
  data = dispatch_data_create("junk", 4, nil, nil);
  CHECK([Device() newLibraryWithData:data error:&error] == nil);
  CHECK_CONTAINS(Message(error), "not a compiled Metal library");
  dispatch_release(data);
}

TEST(bad_libraries_are_errors) {
  CHECK_EQ([LoadError(@"/nowhere/x.metallib") code], NSInteger(MTLLibraryErrorFileNotFound));
  CHECK_CONTAINS(Message(LoadError(@"/nowhere/x.metallib")), "does not exist");
  CHECK_CONTAINS(Message(LoadError(@"/tmp")), "not a file");
  // It has no writer, and no reader that waits.
  std::string pipe = FixturePath("pipe.metallib");
  unlink(pipe.c_str());
  CHECK_EQ(mkfifo(pipe.c_str(), 0600), 0);
  CHECK_CONTAINS(Message(LoadError(Path("pipe.metallib"))), "not a file");
  unlink(pipe.c_str());
  CHECK_CONTAINS(Message(LoadError(Path("old_abi.metallib"))), "compile it again");
  NSError* unsupported = LoadError(Path("unsupported.metallib"));
  CHECK_EQ([unsupported code], NSInteger(MTLLibraryErrorUnsupported));
  CHECK_CONTAINS(Message(unsupported), "this processor does not support");
  std::string apple = FixturePath("apple.metallib"), text = FixturePath("text.metallib");
  std::ofstream(apple) << "MTLB and so on";
  std::ofstream(text) << "#!/bin/sh";
  CHECK_CONTAINS(Message(LoadError(Path("apple.metallib"))), "macOS library");
  CHECK_CONTAINS(Message(LoadError(Path("text.metallib"))), "not a compiled Metal library");
  unlink(apple.c_str());
  unlink(text.c_str());
  // The error argument is optional.
  CHECK([Device() newLibraryWithFile:@"/nowhere/x.metallib" error:nullptr] == nil);
}

// Broken libraries, and the bytes that are wrong in them.
TEST(what_is_no_library_is_refused_before_it_is_loaded) {
  std::string good = Read(FixturePath("fixture.metallib"));
  auto with = [&](size_t at, std::string bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  std::string plain = good.substr(0, good.size() - 16);
  struct Case {
    const char* part;
    std::string bytes;
  } cases[] = {
      {"not a compiled Metal library", ""},
      {"not a compiled Metal library", "\177EL"},
      {"cut off", "\177ELF"},
      {"another processor (ELF machine 62, class 1", with(4, "\1")},
      {"another processor", with(5, "\2")},
      {"another processor (ELF machine 40,", with(18, "\50")},
      {"an ELF file of type 1, not a library", with(16, "\1")},
      {"an ELF file of type 2, not a library", with(16, "\2")},
      {"code that runs when it is loaded", Read(FixturePath("loud.metallib"))},
      {"cut off", plain},
      {"cut off", plain + std::string("MSL1CRC\0abcdefgh", 16)},
      {"cut off", with(32, "\377\377\377\377\377\377\377")},  // program headers
      {"cut off", with(40, "\377\377\377\377\377\377\377")},  // section headers
      {"cut off", with(56, "\377\377")},
      {"cut off", with(60, "\377\377")},
      {"is a program", Read("/proc/self/exe")},
  };
  std::string path = FixturePath("wrong.metallib");
  for (const Case& c : cases) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << c.bytes;
    NSError* error = LoadError(Path("wrong.metallib"));
    CHECK_EQ([error code], NSInteger(MTLLibraryErrorInternal));
    CHECK_CONTAINS(Message(error), c.part);
    CHECK_CONTAINS(Message(error), "wrong.metallib' ");
  }
  unlink(path.c_str());
  CHECK(getenv("HOSTMETAL_FIXTURE_RAN") == nullptr);
}

TEST(shared_objects_are_not_loaded_to_look_into_them) {
  // One of the system's, with constructors.
  for (const char* name : {"libgnustep-base.so.1.28", "libstdc++.so.6", "libm.so.6"}) {
    std::string path = std::string("/usr/lib/x86_64-linux-gnu/") + name;
    if (access(path.c_str(), R_OK) != 0) continue;
    CHECK_CONTAINS(Message(LoadError([NSString stringWithUTF8String:path.c_str()])),
                   "is a shared object but not a Metal library");
  }
}

TEST(damaged_libraries_are_refused) {
  std::string good = Read(FixturePath("fixture.metallib"));
  uint32_t random = 1;
  auto next = [&](size_t below) {
    random = random * 1664525 + 1013904223;
    return size_t(random >> 8) % below;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    if (i % 3 == 0) bytes.resize(next(good.size()));
    for (size_t n = i % 3 == 0 ? next(3) : 1 + next(4); n && !bytes.empty(); --n) {
      bytes[next(bytes.size())] ^= char(1 << next(8));
    }
    if (bytes == good) continue;  // the same bit twice
    dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, nil);
    NSError* error = nil;
    CHECK([Device() newLibraryWithData:data error:&error] == nil);
    CHECK(error != nil);
    dispatch_release(data);
  }
}

TEST(rebuilt_library_is_loaded_anew) {
  std::string path = FixturePath("rebuilt.metallib");
  NSString* name = Path("rebuilt.metallib");
  std::ofstream(path, std::ios::binary) << Read(FixturePath("fixture.metallib"));
  id<MTLLibrary> old = [Device() newLibraryWithFile:name error:nullptr];
  CHECK([[old functionNames] containsObject:@"add"]);
  // The same inode gets other contents, as a compiler that truncates its output does it.
  std::ofstream(path, std::ios::binary | std::ios::trunc) << Read(FixturePath("other.metallib"));
  id<MTLLibrary> rebuilt = [Device() newLibraryWithFile:name error:nullptr];
  CHECK([[rebuilt functionNames] containsObject:@"other"]);
  CHECK(![[rebuilt functionNames] containsObject:@"add"]);
  // And the old one still runs.
  id<MTLFunction> add = [old newFunctionWithName:@"add"];
  CHECK(add != nil);
  [add release];
  [old release];
  [rebuilt release];
  unlink(path.c_str());
}

TEST(default_library_is_found_beside_the_program) {
  CHECK([Device() newDefaultLibrary] == nil);
  char program[4096];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program);
  std::string folder(program, size_t(n));
  std::string path = folder.substr(0, folder.rfind('/')) + "/default.metallib";
  std::ofstream(path, std::ios::binary) << Read(FixturePath("fixture.metallib"));
  id<MTLLibrary> library = [Device() newDefaultLibrary];
  CHECK([[library functionNames] containsObject:@"add"]);
  [library release];
  unlink(path.c_str());
  NSError* error = nil;
  CHECK([Device() newDefaultLibraryWithBundle:[NSBundle mainBundle] error:&error] == nil);
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorFileNotFound));
}

TEST(pipeline_reports_limits) {
  id<MTLComputePipelineState> add = harness::Pipeline("add");
  CHECK_EQ(add.threadExecutionWidth, NSUInteger(32));
  CHECK_EQ(add.maxTotalThreadsPerThreadgroup, NSUInteger(1024));
  CHECK_EQ(add.staticThreadgroupMemoryLength, NSUInteger(0));
  CHECK(add.device == Device());
  id<MTLComputePipelineState> describe = harness::Pipeline("describe");
  CHECK_EQ(describe.maxTotalThreadsPerThreadgroup, NSUInteger(256));
  CHECK_EQ(describe.staticThreadgroupMemoryLength, NSUInteger(1024));
}

TEST(pipeline_from_descriptor) {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = [[Library() newFunctionWithName:@"add"] autorelease];
  descriptor.label = @"adder";
  descriptor.maxTotalThreadsPerThreadgroup = 64;
  NSError* error = nil;
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithDescriptor:descriptor
                                               options:MTLPipelineOptionNone
                                            reflection:nullptr
                                                 error:&error] autorelease];
  CHECK_EQ(state.maxTotalThreadsPerThreadgroup, NSUInteger(64));
  CHECK_EQ(harness::Text(state.label), "adder");
  MTLComputePipelineDescriptor* copy = [[descriptor copy] autorelease];
  CHECK_EQ(copy.maxTotalThreadsPerThreadgroup, NSUInteger(64));
  CHECK(copy.computeFunction == descriptor.computeFunction);
  [descriptor reset];
  CHECK(descriptor.computeFunction == nil);
  CHECK([Device() newComputePipelineStateWithDescriptor:descriptor
                                                options:0
                                             reflection:nullptr
                                                  error:&error] == nil);
  CHECK_CONTAINS(Message(error), "function is nil");
  copy.maxTotalThreadsPerThreadgroup = 4096;
  CHECK([Device() newComputePipelineStateWithDescriptor:copy
                                                options:0
                                             reflection:nullptr
                                                  error:&error] == nil);
  CHECK_CONTAINS(Message(error), "the limit is 1024");
}

TEST(pipeline_of_nil_function_is_an_error) {
  NSError* error = nil;
  CHECK([Device() newComputePipelineStateWithFunction:nil error:&error] == nil);
  CHECK_CONTAINS(Message(error), "function is nil");
  id<MTLFunction> greedy = [[Library() newFunctionWithName:@"greedy"] autorelease];
  CHECK([Device() newComputePipelineStateWithFunction:greedy error:&error] == nil);
  CHECK_CONTAINS(Message(error), "40000 bytes of threadgroup memory");
}

TEST(reflection_lists_the_arguments) {
  MTLComputePipelineReflection* reflection = nil;
  id<MTLFunction> function = [[Library() newFunctionWithName:@"describe"] autorelease];
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithFunction:function
                                             options:MTLPipelineOptionArgumentInfo
                                          reflection:&reflection
                                               error:nullptr] autorelease];
  CHECK(state != nil);
  CHECK_EQ([reflection.arguments count], NSUInteger(3));
  MTLArgument* out = [reflection.arguments objectAtIndex:0];
  CHECK_EQ(harness::Text(out.name), "out");
  CHECK_EQ(out.type, MTLArgumentTypeBuffer);
  CHECK_EQ(out.access, MTLArgumentAccessReadWrite);
  CHECK_EQ(out.bufferDataType, MTLDataTypeUInt);
  CHECK_EQ(out.bufferDataSize, NSUInteger(4));
  id<MTLBinding> shared = [reflection.bindings objectAtIndex:2];
  CHECK_EQ(shared.type, MTLBindingTypeThreadgroupMemory);
  CHECK_EQ(shared.index, NSUInteger(1));
  CHECK(shared.isUsed);
  function = [[Library() newFunctionWithName:@"add"] autorelease];
  [[Device() newComputePipelineStateWithFunction:function
                                         options:MTLPipelineOptionBindingInfo
                                      reflection:&reflection
                                           error:nullptr] autorelease];
  CHECK_EQ([[reflection.arguments objectAtIndex:2] bufferDataType], MTLDataTypeFloat4);
  CHECK_EQ([[reflection.arguments objectAtIndex:0] access], MTLArgumentAccessReadOnly);
}

TEST(function_constants_by_index_name_and_range) {
  id<MTLFunction> bare = [[Library() newFunctionWithName:@"constants"] autorelease];
  CHECK_EQ([bare.functionConstantsDictionary count], NSUInteger(2));
  MTLFunctionConstant* factor = [bare.functionConstantsDictionary objectForKey:@"factor"];
  CHECK_EQ(factor.type, MTLDataTypeFloat);
  CHECK_EQ(factor.index, NSUInteger(0));
  CHECK(factor.required);
  NSError* error = nil;
  CHECK([Device() newComputePipelineStateWithFunction:bare error:&error] == nil);
  CHECK_CONTAINS(Message(error), "needs function constant 0 ('factor')");

  float two = 2;
  int32_t five = 5;
  struct {
    bool by_name, with_offset;
    float expected;
  } cases[] = {{false, false, -2}, {true, false, -2}, {false, true, 10}, {true, true, 10}};
  for (const auto& c : cases) {
    MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
    if (c.by_name) {
      [values setConstantValue:&two type:MTLDataTypeFloat withName:@"factor"];
    } else {
      [values setConstantValues:&two type:MTLDataTypeFloat withRange:NSMakeRange(0, 1)];
    }
    if (c.with_offset) [values setConstantValue:&five type:MTLDataTypeInt atIndex:7];
    id<MTLFunction> function = [[Library() newFunctionWithName:@"constants"
                                                constantValues:[[values copy] autorelease]
                                                         error:&error] autorelease];
    id<MTLComputePipelineState> state =
        [[Device() newComputePipelineStateWithFunction:function error:&error] autorelease];
    id<MTLBuffer> out = harness::Buffer(64);
    id<MTLCommandQueue> queue = [[Device() newCommandQueue] autorelease];
    id<MTLCommandBuffer> commands = queue.commandBuffer;
    id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
    [encoder setComputePipelineState:state];
    [encoder setBuffer:out offset:0 atIndex:0];
    [encoder dispatchThreads:MTLSizeMake(16, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK_EQ(harness::Contents<float>(out)[15], c.expected);
  }
}

TEST(function_constant_errors) {
  NSError* error = nil;
  MTLFunctionConstantValues* values = [[[MTLFunctionConstantValues alloc] init] autorelease];
  CHECK([Library() newFunctionWithName:@"constants" constantValues:values error:&error] == nil);
  CHECK_CONTAINS(Message(error), "'factor'");
  int32_t wrong = 1;
  [values setConstantValue:&wrong type:MTLDataTypeInt atIndex:0];
  CHECK([Library() newFunctionWithName:@"constants" constantValues:values error:&error] == nil);
  CHECK_CONTAINS(Message(error), "has MTLDataType 3, the value given has 29");
  [values reset];
  CHECK([Library() newFunctionWithName:@"nothing" constantValues:values error:&error] == nil);
  CHECK_EQ([error code], NSInteger(MTLLibraryErrorFunctionNotFound));
  CHECK_CONTAINS(Message(error), "no function 'nothing'; it has: add");
}

TEST(asynchronous_variants_call_back) {
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  __block NSUInteger width = 0;
  __block NSInteger code = 0;
  @autoreleasepool {
    id<MTLFunction> add = [[Library() newFunctionWithName:@"add"] autorelease];
    [Device() newComputePipelineStateWithFunction:add
                                completionHandler:^(id<MTLComputePipelineState> s, NSError* e) {
                                  width = s.threadExecutionWidth;
                                  dispatch_semaphore_signal(done);
                                }];
    [Library() newFunctionWithName:@"missing"
                    constantValues:[[[MTLFunctionConstantValues alloc] init] autorelease]
                 completionHandler:^(id<MTLFunction> f, NSError* e) {
                   code = f ? 0 : [e code];
                   dispatch_semaphore_signal(done);
                 }];
  }
  dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
  dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
  CHECK_EQ(width, NSUInteger(32));
  CHECK_EQ(code, NSInteger(MTLLibraryErrorFunctionNotFound));
  dispatch_release(done);
}

TEST(compile_options_defaults) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  CHECK(options.fastMathEnabled);
  CHECK_EQ(options.languageVersion, MTLLanguageVersion3_1);
  CHECK(options.preprocessorMacros == nil);
  options.preprocessorMacros = [NSDictionary dictionaryWithObject:@"4" forKey:@"N"];
  options.fastMathEnabled = NO;
  MTLCompileOptions* copy = [[options copy] autorelease];
  CHECK(!copy.fastMathEnabled);
  CHECK_EQ([copy.preprocessorMacros count], NSUInteger(1));
}
