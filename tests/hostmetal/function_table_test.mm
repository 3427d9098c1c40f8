// Visible functions, linked to pipelines and called through tables.
#include <math.h>

#include "tests/hostmetal/harness.h"

using harness::Buffer;
using harness::Contents;
using harness::Device;
using harness::Message;
using harness::Size;
using harness::Text;

namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "[[visible]] float twice(float x) { return 2 * x; }\n"
     "[[visible]] float next(float x) { return x + 1; }\n"
     "[[visible]] void store(device float* x, constant float& by, uint i) { x[i] = by * i; }\n"
     "kernel void apply(device float* x [[buffer(0)]],\n"
     "                  visible_function_table<float(float)> table [[buffer(1)]],\n"
     "                  uint i [[thread_position_in_grid]]) {\n"
     "  x[i] = table[i % table.size()](x[i]);\n"
     "}\n"
     "kernel void meet(device float* x [[buffer(0)]],\n"
     "                 visible_function_table<float(float)> table [[buffer(1)]],\n"
     "                 uint i [[thread_position_in_threadgroup]]) {\n"
     "  threadgroup float y[64];\n"
     "  y[i] = x[i];\n"
     "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "  x[i] = table[i % 2](y[63 - i]) + simd_sum(1.0f);\n"
     "}\n"
     "kernel void stores(device float* x [[buffer(0)]], constant float& by [[buffer(1)]],\n"
     "                   visible_function_table<void(device float*, constant float&, uint)> table "
     "[[buffer(2)]],\n"
     "                   uint i [[thread_position_in_grid]]) {\n"
     "  if (!is_null_visible_function_table(table)) table[0](x, by, i);\n"
     "}\n";

id<MTLLibrary> LibraryOf(NSString* source) {
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:source options:nil
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  return library;
}

id<MTLFunction> Function(id<MTLLibrary> library, NSString* name) {
  id<MTLFunction> function = [[library newFunctionWithName:name] autorelease];
  CHECK(function != nil);
  return function;
}

id<MTLComputePipelineState> Linked(id<MTLFunction> kernel, NSArray* functions,
                                   NSError** error = nullptr) {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  descriptor.computeFunction = kernel;
  MTLLinkedFunctions* linked = [MTLLinkedFunctions linkedFunctions];
  linked.functions = functions;
  descriptor.linkedFunctions = linked;
  NSError* own = nil;
  id<MTLComputePipelineState> state =
      [[Device() newComputePipelineStateWithDescriptor:[[descriptor copy] autorelease]
                                               options:MTLPipelineOptionNone
                                            reflection:nullptr
                                                 error:error ? error : &own] autorelease];
  CHECK_EQ(Message(own), "(nil)");
  return state;
}

id<MTLVisibleFunctionTable> Table(id<MTLComputePipelineState> pipeline, NSUInteger count) {
  MTLVisibleFunctionTableDescriptor* descriptor =
      [MTLVisibleFunctionTableDescriptor visibleFunctionTableDescriptor];
  descriptor.functionCount = count;
  return [[pipeline newVisibleFunctionTableWithDescriptor:descriptor] autorelease];
}

NSError* RunOver(id<MTLBuffer> x, id<MTLComputePipelineState> pipeline, id table) {
  for (int i = 0; i < 64; ++i) Contents<float>(x)[i] = float(i);
  return harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:x offset:0 atIndex:0];
    if (table) [encoder setVisibleFunctionTable:table atBufferIndex:1];
    [encoder dispatchThreads:Size(64) threadsPerThreadgroup:Size(64)];
  });
}

}  // namespace

TEST(function_tables_call_what_was_set) {
  CHECK_EQ(bool(Device().supportsFunctionPointers), bool(Device().hasUnifiedMemory));
  if (!Device().supportsFunctionPointers) return;
  id<MTLLibrary> library = LibraryOf(kSource);
  id<MTLFunction> twice = Function(library, @"twice"), next = Function(library, @"next");
  CHECK_EQ(twice.functionType, MTLFunctionTypeVisible);
  CHECK_EQ(Function(library, @"apply").functionType, MTLFunctionTypeKernel);
  id<MTLBuffer> x = Buffer(64 * sizeof(float));
  for (NSString *name in [NSArray arrayWithObjects:@"apply", @"meet", nil]) {
    const bool meets = [name isEqual:@"meet"];
    id<MTLComputePipelineState> pipeline =
        Linked(Function(library, name), [NSArray arrayWithObjects:twice, next, nil]);
    id<MTLFunctionHandle> handles[] = {[pipeline functionHandleWithFunction:twice],
                                       [pipeline functionHandleWithFunction:next]};
    CHECK_EQ(Text(handles[0].name), "twice");
    CHECK_EQ(handles[0].functionType, MTLFunctionTypeVisible);
    CHECK(handles[0].device == Device());
    CHECK([pipeline functionHandleWithFunction:Function(library, @"store")] == nil);
    id<MTLVisibleFunctionTable> table = Table(pipeline, 2);
    [table setFunctions:handles withRange:NSMakeRange(0, 2)];
    CHECK_EQ(Message(RunOver(x, pipeline, table)), "(nil)");
    for (int i = 0; i < 64; ++i) {
      const float in = float(meets ? 63 - i : i);
      CHECK_EQ(Contents<float>(x)[i], (i % 2 ? in + 1 : 2 * in) + (meets ? 32 : 0));
    }
    // The same pipeline with the table turned around.
    [table setFunction:handles[1] atIndex:0];
    [table setFunction:handles[0] atIndex:1];
    CHECK_EQ(Message(RunOver(x, pipeline, table)), "(nil)");
    CHECK_EQ(Contents<float>(x)[3], meets ? 152.0f : 6.0f);
  }
}

TEST(function_tables_pass_pointers) {
  if (!Device().supportsFunctionPointers) return;
  id<MTLLibrary> library = LibraryOf(kSource);
  id<MTLFunction> store = Function(library, @"store");
  id<MTLComputePipelineState> plain = Linked(Function(library, @"stores"), nil);
  id<MTLComputePipelineState> pipeline =
      [[plain newComputePipelineStateWithAdditionalBinaryFunctions:[NSArray arrayWithObject:store]
                                                             error:nullptr] autorelease];
  id<MTLVisibleFunctionTable> table = Table(pipeline, 1);
  [table setFunction:[pipeline functionHandleWithFunction:store] atIndex:0];
  id<MTLBuffer> x = Buffer(64 * sizeof(float));
  float by = 3;
  for (NSUInteger threads : {64u, 65u}) {
    NSError* error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
      [encoder setComputePipelineState:pipeline];
      [encoder setBuffer:x offset:0 atIndex:0];
      [encoder setBytes:&by length:sizeof by atIndex:1];
      [encoder setVisibleFunctionTables:&table withBufferRange:NSMakeRange(2, 1)];
      [encoder dispatchThreads:Size(threads) threadsPerThreadgroup:Size(32)];
    });
    CHECK_EQ(Contents<float>(x)[63], 189.0f);
    if (harness::Validating() && threads == 65) {
      CHECK_CONTAINS(Message(error), "write of 4 bytes at offset 256");
    } else {
      CHECK_EQ(Message(error), "(nil)");
    }
  }
}

TEST(function_tables_of_other_libraries) {
  if (!Device().supportsFunctionPointers) return;
  id<MTLLibrary> library = LibraryOf(kSource);
  id<MTLLibrary> other = LibraryOf(@"#include <metal_stdlib>\n"
                                    "[[visible]] float root(float x) { return metal::sqrt(x); }\n");
  id<MTLFunction> root = Function(other, @"root");
  NSError* error = nil;
  id<MTLComputePipelineState> pipeline =
      Linked(Function(library, @"apply"), [NSArray arrayWithObject:root], &error);
  if (harness::Validating()) {
    CHECK(pipeline == nil);
    CHECK_CONTAINS(Message(error), "'root' and the kernel have their code in two libraries");
    return;
  }
  id<MTLVisibleFunctionTable> table = Table(pipeline, 1);
  [table setFunction:[pipeline functionHandleWithFunction:root] atIndex:0];
  id<MTLBuffer> x = Buffer(64 * sizeof(float));
  CHECK_EQ(Message(RunOver(x, pipeline, table)), "(nil)");
  CHECK_EQ(Contents<float>(x)[50], sqrtf(50));
}

TEST(function_tables_refuse_what_does_not_fit) {
  if (!Device().supportsFunctionPointers) return;
  id<MTLLibrary> library = LibraryOf(kSource);
  id<MTLFunction> twice = Function(library, @"twice"), apply = Function(library, @"apply");
  NSError* error = nil;
  CHECK([Device() newComputePipelineStateWithFunction:twice error:&error] == nil);
  CHECK_CONTAINS(Message(error), "function 'twice' is a visible one");
  CHECK(Linked(apply, [NSArray arrayWithObject:apply], &error) == nil);
  CHECK_CONTAINS(Message(error), "'apply' is a kernel; only [[visible]] functions are linked");
  CHECK_EQ(Text([error domain]), Text(MTLLibraryErrorDomain));
  id<MTLComputePipelineState> pipeline = Linked(apply, [NSArray arrayWithObject:twice]);
  id<MTLComputePipelineState> second = Linked(apply, [NSArray arrayWithObject:twice]);
  CHECK(Table(pipeline, 0) == nil);
  id<MTLBuffer> x = Buffer(64 * sizeof(float));
  CHECK_CONTAINS(Message(RunOver(x, pipeline, nil)), "buffer(1) 'table' is not bound");
  CHECK_CONTAINS(Message(RunOver(x, pipeline, x)),
                 "[setVisibleFunctionTable] index 1 gets no table");
  id<MTLVisibleFunctionTable> table = Table(pipeline, 1);
  // A handle of another pipeline, and an index past the end: reported, and not set.
  [table setFunction:[second functionHandleWithFunction:twice] atIndex:0];
  [table setFunction:[pipeline functionHandleWithFunction:twice] atIndex:1];
  error = RunOver(x, pipeline, table);  // nothing was set, so that the call faults
  CHECK_EQ([error code], NSInteger(MTLCommandBufferErrorPageFault));
  error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:x offset:0 atIndex:0];
    [encoder setBuffer:x offset:0 atIndex:1];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
  CHECK_CONTAINS(Message(error),
                 "buffer(1) 'table' is a table of functions, and a buffer is bound");
  [table setFunction:[pipeline functionHandleWithFunction:twice] atIndex:0];
  error = harness::Run([&](id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:pipeline];
    [encoder setVisibleFunctionTable:table atBufferIndex:0];
    [encoder setVisibleFunctionTable:table atBufferIndex:1];
    [encoder dispatchThreads:Size(1) threadsPerThreadgroup:Size(1)];
  });
  CHECK_CONTAINS(Message(error), "buffer(0) 'x' is no table of functions, but one is bound");
}
