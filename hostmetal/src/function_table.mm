// Visible functions: which a pipeline has, and the tables through which its kernel calls them.
#include "hostmetal/src/function_table.h"

#include "hostmetal/src/errors.h"

@implementation MTLLinkedFunctions
+ (MTLLinkedFunctions*)linkedFunctions {
  return [[[self alloc] init] autorelease];
}
- (void)dealloc {
  [_functions release];
  [_binaryFunctions release];
  [_privateFunctions release];
  [_groups release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLLinkedFunctions* copy = [[MTLLinkedFunctions alloc] init];
  [copy setFunctions:_functions];
  [copy setBinaryFunctions:_binaryFunctions];
  [copy setPrivateFunctions:_privateFunctions];
  [copy setGroups:_groups];
  return copy;
}
@synthesize functions = _functions;
@synthesize binaryFunctions = _binaryFunctions;
@synthesize privateFunctions = _privateFunctions;
@synthesize groups = _groups;
@end

@implementation MTLVisibleFunctionTableDescriptor
+ (MTLVisibleFunctionTableDescriptor*)visibleFunctionTableDescriptor {
  return [[[self alloc] init] autorelease];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLVisibleFunctionTableDescriptor* copy = [[MTLVisibleFunctionTableDescriptor alloc] init];
  [copy setFunctionCount:_functionCount];
  return copy;
}
@synthesize functionCount = _functionCount;
@end

@implementation HMFunctionHandle
- (void)dealloc {
  delete _function;
  [super dealloc];
}
- (MTLFunctionType)functionType {
  return MTLFunctionTypeVisible;
}
- (NSString*)name {
  return [NSString stringWithUTF8String:_function->entry->name];
}
- (id<MTLDevice>)device {
  return _device;
}
@end

namespace {

using Address = decltype(metallib_kernel::run);

void Complain(const std::string& what) {
  fprintf(stderr, "[MTLVisibleFunctionTable] %s\n", what.c_str());
}

}  // namespace

@implementation HMVisibleFunctionTable

+ (HMVisibleFunctionTable*)newFor:(HMComputePipelineState*)pipeline
                       descriptor:(MTLVisibleFunctionTableDescriptor*)descriptor {
  constexpr NSUInteger kMost = 1 << 20;
  const NSUInteger count = [descriptor functionCount];
  if (count == 0 || count > kMost) {
    Complain("functionCount is " + std::to_string(count) + "; 1 to " + std::to_string(kMost) +
             " are allowed");
    return nil;
  }
  hostmetal::Allocation allocation;
  const size_t bytes = count * sizeof(Address);
  HMDevice* device = pipeline->_device;
  if (!device->_driver->Allocate(bytes, true, hostmetal::Storage::kShared, &allocation)) return nil;
  device->_allocated.fetch_add(allocation.size, std::memory_order_relaxed);
  HMVisibleFunctionTable* table = [[HMVisibleFunctionTable alloc] init];
  table->_device = device;
  table->_allocation = allocation;
  table->_length = bytes;
  table->_pipeline = [pipeline retain];
  return table;
}
- (void)dealloc {
  [_pipeline release];
  [super dealloc];
}

- (void)setFunction:(id<MTLFunctionHandle>)given atIndex:(NSUInteger)index {
  auto* handle = (HMFunctionHandle*)given;
  const NSUInteger count = _length / sizeof(Address);
  if (index >= count) {
    return Complain("index " + std::to_string(index) + "; the table has " + std::to_string(count) +
                    " entries");
  }
  if (handle &&
      (![handle isKindOfClass:HM_CLASS(HMFunctionHandle)] || handle->_pipeline != _pipeline)) {
    return Complain("the function is no handle of the pipeline that made the table");
  }
  static_cast<Address*>(_allocation.host)[index] = handle ? handle->_function->entry->run : nullptr;
}
- (void)setFunctions:(const id<MTLFunctionHandle>[])functions withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setFunction:functions[i] atIndex:range.location + i];
  }
}

@end

namespace hostmetal {

NSArray<id<MTLFunction>>* TableFunctions(MTLLinkedFunctions* linked) {
  NSMutableArray* all = [NSMutableArray array];
  if ([linked functions]) [all addObjectsFromArray:[linked functions]];
  if ([linked binaryFunctions]) [all addObjectsFromArray:[linked binaryFunctions]];
  return all;
}

Failure Link(HMComputePipelineState* pipeline, NSArray<id<MTLFunction>>* functions,
             NSMutableArray* handles) {
  HMDevice* device = pipeline->_device;
  for (HMFunction* function in functions) {
    const std::string method = "[newComputePipelineState] linkedFunctions: ";
    if (![function isKindOfClass:HM_CLASS(HMFunction)] || function->_device != device) {
      return {kLibraryInternal, method + "one is not of this device"};
    }
    const std::string name = std::string("'") + function->_entry->name + "' ";
    if (!(function->_entry->flags & METALLIB_KERNEL_VISIBLE)) {
      return {kLibraryInternal,
              method + name + "is a kernel; only [[visible]] functions are linked"};
    }
    if (!device->_driver->info().unified_memory) {
      return {kLibraryUnsupported, method + name +
                                       "cannot be linked on a GPU "
                                       "(supportsFunctionPointers is NO)"};
    }
    HMFunctionHandle* handle = [[[HMFunctionHandle alloc] init] autorelease];
    handle->_device = device;
    handle->_pipeline = pipeline;
    handle->_function = new Kernel;
    handle->_function->module = *function->_module;
    handle->_function->entry = function->_entry;
    if (function->_entry->flags & METALLIB_KERNEL_ABSENT) {
      if (Failure failure = handle->_function->module->Complete(handle->_function)) return failure;
    }
    // A checked function knows its launch by the state that its own library keeps.
    if (device->_checked && handle->_function->module != pipeline->_kernel->module) {
      return {
          kLibraryUnsupported,
          method + name +
              "and the kernel have their code in two libraries, where "
              "METAL_DEVICE_WRAPPER_TYPE=1 and HOSTMETAL_CHECK cannot check it; compile them in "
              "one, of at most 16 functions"};
    }
    [handles addObject:handle];
  }
  return {};
}

}  // namespace hostmetal
