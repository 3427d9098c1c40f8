// Compute pipelines, their descriptors and reflection.
#include <string.h>

#include <algorithm>

#include "hostmetal/src/errors.h"
#include "hostmetal/src/function_table.h"
#include "hostmetal/src/pipeline.h"
#include "hostmetal/src/struct_type.h"
#include "hostmetal/src/texture.h"

using hostmetal::Failure;

namespace {

MTLDataType DataType(const char* name) { return hostmetal::ScalarType(name); }

const metallib_argument& Info(const void* info) {
  return *static_cast<const metallib_argument*>(info);
}

// The two enums have the same values.
NSUInteger Kind(const metallib_argument& a) {
  switch (a.kind) {
    case METALLIB_THREADGROUP:
      return MTLBindingTypeThreadgroupMemory;
    case METALLIB_TEXTURE:
      return MTLBindingTypeTexture;
    case METALLIB_SAMPLER:
      return MTLBindingTypeSampler;
    case METALLIB_TABLE:
      return MTLBindingTypeVisibleFunctionTable;
    case METALLIB_TENSOR:
      return MTLBindingTypeTensor;
    default:
      return MTLBindingTypeBuffer;
  }
}

MTLBindingAccess Access(const metallib_argument& a) {
  if (std::string(a.type_name).find("access::write>") != std::string::npos) {
    return MTLBindingAccessWriteOnly;
  }
  return a.flags & METALLIB_ARG_WRITTEN ? MTLBindingAccessReadWrite : MTLBindingAccessReadOnly;
}

bool IsDepth(const metallib_argument& a) { return std::string(a.type_name).rfind("depth", 0) == 0; }

// An array of textures has an entry for each, all of one name; Apple's reflection has one for all.
NSUInteger ArrayLength(const metallib_kernel& kernel, uint32_t first) {
  const metallib_argument* a = &kernel.arguments[first];
  uint32_t count = 1;
  if (a->kind != METALLIB_TEXTURE || !*a->name) return count;
  while (first + count < kernel.n_arguments && a[count].kind == METALLIB_TEXTURE &&
         strcmp(a[count].name, a->name) == 0) {
    ++count;
  }
  return count;
}

MTLStructType* StructType(const metallib_argument& a) {
  auto type = hostmetal::StructOf(a);
  return type ? [hostmetal::NewStructType(std::move(type)) autorelease] : nil;
}

MTLPointerType* PointerType(const metallib_argument& a) {
  if (a.kind != METALLIB_DEVICE && a.kind != METALLIB_CONSTANT) return nil;
  auto pointer = std::make_shared<hostmetal::Type>();
  pointer->data_type = MTLDataTypePointer;
  pointer->written = a.flags & METALLIB_ARG_WRITTEN;
  pointer->size = a.pointee_size;
  pointer->alignment = a.pointee_alignment;
  pointer->element = hostmetal::TypeOf(a);
  return [hostmetal::NewPointerType(std::move(pointer)) autorelease];
}

}  // namespace

// One face of a binding for the protocols; MTLArgument is the other.
@interface HMBinding : HMObject <MTLBufferBinding, MTLThreadgroupBinding, MTLTextureBinding> {
 @public
  const metallib_argument* _info;
  id _owner;
  NSUInteger _length;  // of an array of textures
}
@end

@implementation HMBinding
- (void)dealloc {
  [_owner release];
  [super dealloc];
}
- (NSString*)name {
  return [NSString stringWithUTF8String:_info->name];
}
- (MTLBindingType)type {
  return MTLBindingType(Kind(*_info));
}
- (MTLBindingAccess)access {
  return Access(*_info);
}
- (NSUInteger)index {
  return _info->index;
}
- (BOOL)isUsed {
  return !(_info->flags & METALLIB_ARG_UNUSED);
}
- (BOOL)isArgument {
  return YES;
}
- (NSUInteger)bufferAlignment {
  return _info->pointee_alignment;
}
- (NSUInteger)bufferDataSize {
  return _info->pointee_size;
}
// Apple's protocol has no such method: kernels/runtime/layout.mm asks whether this one has.
- (BOOL)isReference {
  return (_info->flags & METALLIB_ARG_REFERENCE) != 0;
}
- (MTLDataType)bufferDataType {
  return hostmetal::TypeOf(*_info)->data_type;
}
- (MTLStructType*)bufferStructType {
  return StructType(*_info);
}
- (MTLPointerType*)bufferPointerType {
  return PointerType(*_info);
}
- (NSUInteger)threadgroupMemoryAlignment {
  return _info->pointee_alignment;
}
- (NSUInteger)threadgroupMemoryDataSize {
  return _info->pointee_size;
}
- (MTLTextureType)textureType {
  return hostmetal::TextureType(_info->type_name);
}
- (MTLDataType)textureDataType {
  return DataType(hostmetal::TextureComponent(_info->type_name).c_str());
}
- (BOOL)isDepthTexture {
  return IsDepth(*_info);
}
- (NSUInteger)arrayLength {
  return _length;
}
@end

@implementation MTLArgument
- (id)initWithInfo:(const metallib_argument*)info owner:(id)owner {
  self = [super init];
  if (self) {
    _info = info;
    _owner = [owner retain];
  }
  return self;
}
- (void)dealloc {
  [_owner release];
  [super dealloc];
}
- (NSString*)name {
  return [NSString stringWithUTF8String:Info(_info).name];
}
- (MTLArgumentType)type {
  return MTLArgumentType(Kind(Info(_info)));
}
- (MTLArgumentAccess)access {
  return Access(Info(_info));
}
- (NSUInteger)index {
  return Info(_info).index;
}
- (BOOL)isActive {
  return !(Info(_info).flags & METALLIB_ARG_UNUSED);
}
- (NSUInteger)bufferAlignment {
  return Info(_info).pointee_alignment;
}
- (NSUInteger)bufferDataSize {
  return Info(_info).pointee_size;
}
- (MTLDataType)bufferDataType {
  return hostmetal::TypeOf(Info(_info))->data_type;
}
- (MTLStructType*)bufferStructType {
  return StructType(Info(_info));
}
- (MTLPointerType*)bufferPointerType {
  return PointerType(Info(_info));
}
- (NSUInteger)threadgroupMemoryAlignment {
  return Info(_info).pointee_alignment;
}
- (NSUInteger)threadgroupMemoryDataSize {
  return Info(_info).pointee_size;
}
- (MTLTextureType)textureType {
  return hostmetal::TextureType(Info(_info).type_name);
}
- (MTLDataType)textureDataType {
  return DataType(hostmetal::TextureComponent(Info(_info).type_name).c_str());
}
- (BOOL)isDepthTexture {
  return IsDepth(Info(_info));
}
- (NSUInteger)arrayLength {
  return 1;
}
@end

@interface HMTextureArrayArgument : MTLArgument {
 @public
  NSUInteger _length;
}
@end

@implementation HMTextureArrayArgument
- (NSUInteger)arrayLength {
  return _length;
}
@end

@implementation MTLComputePipelineReflection
- (id)initWithPipeline:(HMComputePipelineState*)pipeline {
  self = [super init];
  if (self) {
    const metallib_kernel* entry = pipeline->_kernel->entry;
    NSMutableArray* arguments = [[NSMutableArray alloc] init];
    NSMutableArray* bindings = [[NSMutableArray alloc] init];
    NSUInteger length = 1;
    for (uint32_t i = 0; i < entry->n_arguments; i += uint32_t(length)) {
      length = ArrayLength(*entry, i);
      HMTextureArrayArgument* argument =
          [[HMTextureArrayArgument alloc] initWithInfo:&entry->arguments[i] owner:pipeline];
      argument->_length = length;
      [arguments addObject:argument];
      [argument release];
      HMBinding* binding = [[HMBinding alloc] init];
      binding->_info = &entry->arguments[i];
      binding->_owner = [pipeline retain];
      binding->_length = length;
      [bindings addObject:binding];
      [binding release];
    }
    _arguments = arguments;
    _bindings = bindings;
  }
  return self;
}
- (void)dealloc {
  [_arguments release];
  [_bindings release];
  [super dealloc];
}
- (NSArray*)arguments {
  return _arguments;
}
- (NSArray*)bindings {
  return _bindings;
}
@end

@implementation MTLPipelineBufferDescriptor
@synthesize mutability = _mutability;
- (id)copyWithZone:(NSZone*)zone {
  MTLPipelineBufferDescriptor* copy = [[MTLPipelineBufferDescriptor alloc] init];
  [copy setMutability:_mutability];
  return copy;
}
@end

@implementation MTLPipelineBufferDescriptorArray
- (id)init {
  self = [super init];
  if (self) _descriptors = [[NSMutableDictionary alloc] init];
  return self;
}
- (void)dealloc {
  [_descriptors release];
  [super dealloc];
}
- (MTLPipelineBufferDescriptor*)objectAtIndexedSubscript:(NSUInteger)index {
  NSNumber* key = [NSNumber numberWithUnsignedInteger:index];
  MTLPipelineBufferDescriptor* known = [_descriptors objectForKey:key];
  if (!known) {
    known = [[[MTLPipelineBufferDescriptor alloc] init] autorelease];
    [_descriptors setObject:known forKey:key];
  }
  return known;
}
- (void)setObject:(MTLPipelineBufferDescriptor*)buffer atIndexedSubscript:(NSUInteger)index {
  NSNumber* key = [NSNumber numberWithUnsignedInteger:index];
  if (buffer) {
    [_descriptors setObject:buffer forKey:key];
  } else {
    [_descriptors removeObjectForKey:key];
  }
}
@end

@implementation MTLComputePipelineDescriptor
@synthesize label = _label;
@synthesize computeFunction = _computeFunction;
@synthesize threadGroupSizeIsMultipleOfThreadExecutionWidth =
    _threadGroupSizeIsMultipleOfThreadExecutionWidth;
@synthesize maxTotalThreadsPerThreadgroup = _maxTotalThreadsPerThreadgroup;
@synthesize binaryArchives = _binaryArchives;
@synthesize linkedFunctions = _linkedFunctions;
@synthesize supportAddingBinaryFunctions = _supportAddingBinaryFunctions;
@synthesize preloadedLibraries = _preloadedLibraries;
- (NSArray*)insertLibraries {
  return _preloadedLibraries;
}
- (void)setInsertLibraries:(NSArray*)libraries {
  [self setPreloadedLibraries:libraries];
}
@synthesize maxCallStackDepth = _maxCallStackDepth;
@synthesize supportIndirectCommandBuffers = _supportIndirectCommandBuffers;
- (void)dealloc {
  [_linkedFunctions release];
  [_binaryArchives release];
  [_preloadedLibraries release];
  [_buffers release];
  [_label release];
  [_computeFunction release];
  [super dealloc];
}
- (MTLPipelineBufferDescriptorArray*)buffers {
  if (!_buffers) _buffers = [[MTLPipelineBufferDescriptorArray alloc] init];
  return _buffers;
}
- (void)reset {
  [_buffers release];
  _buffers = nil;
  [self setLabel:nil];
  [self setComputeFunction:nil];
  [self setBinaryArchives:nil];
  [self setLinkedFunctions:nil];
  _supportAddingBinaryFunctions = NO;
  [self setPreloadedLibraries:nil];
  _maxCallStackDepth = 0;
  _supportIndirectCommandBuffers = NO;
  _threadGroupSizeIsMultipleOfThreadExecutionWidth = NO;
  _maxTotalThreadsPerThreadgroup = 0;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLComputePipelineDescriptor* copy = [[MTLComputePipelineDescriptor alloc] init];
  [copy setLabel:_label];
  [copy setComputeFunction:_computeFunction];
  [copy setThreadGroupSizeIsMultipleOfThreadExecutionWidth:
            _threadGroupSizeIsMultipleOfThreadExecutionWidth];
  [copy setMaxTotalThreadsPerThreadgroup:_maxTotalThreadsPerThreadgroup];
  [copy setBinaryArchives:_binaryArchives];
  [copy setPreloadedLibraries:_preloadedLibraries];
  [copy setLinkedFunctions:_linkedFunctions];
  [copy setSupportAddingBinaryFunctions:_supportAddingBinaryFunctions];
  [copy setMaxCallStackDepth:_maxCallStackDepth];
  [copy setSupportIndirectCommandBuffers:_supportIndirectCommandBuffers];
  copy->_buffers = [_buffers retain];
  return copy;
}
@end

@implementation HMComputePipelineState
- (id)initWithFunction:(HMFunction*)function
            maxThreads:(NSUInteger)maxThreads
       multipleOfWidth:(BOOL)multipleOfWidth
                 label:(NSString*)label {
  self = [super init];
  if (self) {
    const metallib_kernel* entry = function->_entry;
    _device = function->_device;
    _pipelineLabel = [label copy];
    _multipleOfWidth = multipleOfWidth;
    _kernel = new hostmetal::Kernel;
    _kernelFunction = [function retain];
    _kernel->module = *function->_module;
    _kernel->entry = entry;
    _kernel->constants = *function->_constants;
    _kernel->max_threads = std::min<uint32_t>(entry->max_total_threads, METALLIB_MAX_THREADS);
    if (maxThreads) {
      _kernel->max_threads = std::min<uint32_t>(_kernel->max_threads, uint32_t(maxThreads));
    }
    for (uint32_t i = 0; i < entry->n_arguments; ++i) {
      const metallib_argument& a = entry->arguments[i];
      if (a.kind != METALLIB_THREADGROUP) {
        _bindingCount = std::max(_bindingCount, hostmetal::Slot(a) + 1);
      }
    }
  }
  return self;
}
- (void)dealloc {
  [_handles release];
  [_linked release];
  [_kernelFunction release];
  delete _kernel;
  [_pipelineLabel release];
  [super dealloc];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLComputePipelineState '%s'>", _kernel->entry->name];
}
- (NSString*)label {
  return _pipelineLabel;
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return _kernel->max_threads;
}
- (NSUInteger)threadExecutionWidth {
  return METALLIB_SIMD_WIDTH;
}
- (BOOL)supportIndirectCommandBuffers {
  return _indirect;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return _kernel->entry->static_threadgroup_bytes;
}
- (Failure)link:(NSArray*)functions {
  _linked = [functions copy];
  _handles = [[NSMutableArray alloc] init];
  return hostmetal::Link(self, _linked, _handles);
}
- (id<MTLFunctionHandle>)functionHandleWithFunction:(id<MTLFunction>)given {
  auto* function = (HMFunction*)given;
  for (NSUInteger i = 0; i < [_linked count]; ++i) {
    auto* linked = (HMFunction*)[_linked objectAtIndex:i];
    if (linked == function ||
        ([function isKindOfClass:HM_CLASS(HMFunction)] && linked->_entry == function->_entry)) {
      return [_handles objectAtIndex:i];
    }
  }
  return nil;
}
- (id<MTLVisibleFunctionTable>)newVisibleFunctionTableWithDescriptor:
    (MTLVisibleFunctionTableDescriptor*)descriptor {
  return [HMVisibleFunctionTable newFor:self descriptor:descriptor];
}
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithAdditionalBinaryFunctions:(NSArray<id<MTLFunction>>*)functions
                                                   error:(NSError**)error {
  MTLComputePipelineDescriptor* descriptor =
      [[[MTLComputePipelineDescriptor alloc] init] autorelease];
  MTLLinkedFunctions* all = [MTLLinkedFunctions linkedFunctions];
  [all setFunctions:_linked ? [_linked arrayByAddingObjectsFromArray:functions] : functions];
  [descriptor setComputeFunction:_kernelFunction];
  [descriptor setLabel:_pipelineLabel];
  [descriptor setLinkedFunctions:all];
  [descriptor setMaxTotalThreadsPerThreadgroup:_kernel->max_threads];
  [descriptor setThreadGroupSizeIsMultipleOfThreadExecutionWidth:_multipleOfWidth];
  [descriptor setSupportIndirectCommandBuffers:_indirect];
  return [_device newComputePipelineStateWithDescriptor:descriptor
                                                options:MTLPipelineOptionNone
                                             reflection:nullptr
                                                  error:error];
}
@end
