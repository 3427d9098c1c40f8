// MTLTensor, its descriptor and its extents.
#include "hostmetal/src/tensor.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "hostmetal/src/errors.h"

NSErrorDomain const MTLTensorDomain = @"MTLTensorDomain";

namespace {

constexpr NSUInteger kAlignment = 128;

std::string Number(int64_t n) { return std::to_string(n); }

size_t Bytes(MTLTensorDataType type) {
  switch (type) {
    case MTLTensorDataTypeFloat32:
    case MTLTensorDataTypeInt32:
    case MTLTensorDataTypeUInt32:
      return 4;
    case MTLTensorDataTypeFloat16:
    case MTLTensorDataTypeBFloat16:
    case MTLTensorDataTypeInt16:
    case MTLTensorDataTypeUInt16:
      return 2;
    case MTLTensorDataTypeInt8:
    case MTLTensorDataTypeUInt8:
      return 1;
    default:
      return 0;
  }
}

void Complain(const char* method, const std::string& what) {
  fprintf(stderr, "[MTLTensor %s] %s\n", method, what.c_str());
}

// The contents of a descriptor; a sentence where it describes no tensor. `bytes`: from the first element to the end of the last.
std::string Read(MTLTensorDescriptor* descriptor, bool strided, metallib_tensor* out,
                 uint64_t* bytes) {
  *out = {};
  MTLTensorExtents* sizes = [descriptor dimensions];
  MTLTensorExtents* strides = strided ? [descriptor strides] : nil;
  const NSUInteger rank = [sizes rank];
  const size_t element = Bytes([descriptor dataType]);
  if (!element) {
    return "dataType is " + Number([descriptor dataType]) +
           "; floats of 16 and 32 bits, bfloats and integers of 8 to 32 bits are there";
  }
  if (!rank) return "dimensions has rank 0; give it 1 to 16 dimensions";
  if (strides && [strides rank] != rank) {
    return "strides has rank " + Number([strides rank]) + ", and dimensions " + Number(rank);
  }
  out->data_type = uint32_t([descriptor dataType]);
  out->rank = uint32_t(rank);
  uint64_t last = 0, packed = 1;
  for (NSUInteger i = 0; i < rank; ++i) {
    const int64_t size = [sizes extentAtDimensionIndex:i];
    const int64_t stride = strides ? [strides extentAtDimensionIndex:i] : int64_t(packed);
    if (size < 1)
      return "dimension " + Number(i) + " is " + Number(size) + "; at least 1 is needed";
    const int64_t least = i ? out->strides[i - 1] * out->extents[i - 1] : 1;
    if (i ? stride < least : stride != 1) {
      return "stride " + Number(i) + " is " + Number(stride) + "; " +
             (i ? "at least " + Number(least) + ", the stride times the size before it," : "1") +
             " is needed";
    }
    uint64_t more;
    if (__builtin_mul_overflow(uint64_t(size - 1), uint64_t(stride), &more) ||
        __builtin_add_overflow(last, more, &last) || last > UINT64_MAX / 16 ||
        __builtin_mul_overflow(packed, uint64_t(size), &packed) || packed > INT64_MAX / 16) {
      return "dimensions and strides are of more bytes than there are";
    }
    out->extents[i] = size;
    out->strides[i] = stride;
  }
  *bytes = (last + 1) * element;
  return "";
}

MTLTensorExtents* Extents(uint32_t rank, const int64_t* values) {
  NSInteger all[MTL_TENSOR_MAX_RANK];
  for (uint32_t i = 0; i < rank; ++i) all[i] = values[i];
  return [[[MTLTensorExtents alloc] initWithRank:rank values:all] autorelease];
}

}  // namespace

@implementation MTLTensorExtents
- (instancetype)initWithRank:(NSUInteger)rank values:(const NSInteger*)values {
  self = [super init];
  if (self && rank > MTL_TENSOR_MAX_RANK) {
    [self release];
    return nil;
  }
  if (self) {
    _rank = rank;
    for (NSUInteger i = 0; i < rank; ++i) _values[i] = values ? values[i] : 0;
  }
  return self;
}
- (id)copyWithZone:(NSZone*)zone {  // it never changes
  return [self retain];
}
- (NSUInteger)rank {
  return _rank;
}
- (NSInteger)extentAtDimensionIndex:(NSUInteger)dimensionIndex {
  return dimensionIndex < _rank ? _values[dimensionIndex] : -1;
}
- (BOOL)isEqual:(id)object {
  if (![object isKindOfClass:HM_CLASS(MTLTensorExtents)]) return NO;
  auto* other = (MTLTensorExtents*)object;
  return _rank == other->_rank && std::equal(_values, _values + _rank, other->_values);
}
- (NSUInteger)hash {
  NSUInteger sum = _rank;
  for (NSUInteger i = 0; i < _rank; ++i) sum = sum * 31 + NSUInteger(_values[i]);
  return sum;
}
@end

@implementation MTLTensorDescriptor
- (id)init {
  self = [super init];
  if (self) {
    const NSInteger one = 1;
    _dimensions = [[MTLTensorExtents alloc] initWithRank:1 values:&one];
    _dataType = MTLTensorDataTypeFloat32;
    _usage = MTLTensorUsageCompute | MTLTensorUsageRender;
  }
  return self;
}
- (void)dealloc {
  [_dimensions release];
  [_strides release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLTensorDescriptor* copy = [[MTLTensorDescriptor alloc] init];
  [copy setDimensions:_dimensions];
  [copy setStrides:_strides];
  copy->_dataType = _dataType;
  copy->_usage = _usage;
  copy->_resourceOptions = _resourceOptions;
  return copy;
}
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_resourceOptions);
}
- (void)setStorageMode:(MTLStorageMode)mode {
  _resourceOptions = hostmetal::WithStorageMode(_resourceOptions, mode);
}
- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_resourceOptions);
}
- (void)setCpuCacheMode:(MTLCPUCacheMode)mode {
  _resourceOptions = hostmetal::WithCpuCacheMode(_resourceOptions, mode);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return hostmetal::HazardTrackingMode(_resourceOptions);
}
- (void)setHazardTrackingMode:(MTLHazardTrackingMode)mode {
  _resourceOptions = hostmetal::WithHazardTrackingMode(_resourceOptions, mode);
}
@synthesize dimensions = _dimensions;
@synthesize strides = _strides;
@synthesize dataType = _dataType;
@synthesize usage = _usage;
@synthesize resourceOptions = _resourceOptions;
@end

@implementation HMTensor

+ (id<MTLTensor>)newForDevice:(HMDevice*)device
                   descriptor:(MTLTensorDescriptor*)descriptor
                       buffer:(HMBuffer*)buffer
                       offset:(NSUInteger)offset
                        error:(NSError**)error {
  hostmetal::NoError(error);
  const BOOL over = buffer != nil;
  const std::string method =
      buffer ? "[newTensorWithDescriptor:offset:error:] " : "[newTensorWithDescriptor:error:] ";
  const auto refuse = [&](const std::string& what) {
    return hostmetal::Refuse(error, MTLTensorDomain, MTLTensorErrorInvalidDescriptor,
                             method + what);
  };
  if (!descriptor) return refuse("descriptor is nil");
  if (!device->_driver->CompilerTarget().empty()) {
    return refuse("tensors of Metal 4 run on processors here, and this device is a GPU; set "
                  "HOSTMETAL_DEVICE=cpu");
  }
  metallib_tensor described;
  uint64_t bytes = 0;
  std::string wrong = Read(descriptor, buffer != nil, &described, &bytes);
  if (!wrong.empty()) return refuse(wrong);
  if (buffer) {
    const size_t element = Bytes([descriptor dataType]);
    if (offset % element) {
      return refuse("offset " + Number(offset) + " is no multiple of an element's " +
                    Number(element) + " bytes");
    }
    if (offset > buffer->_length || bytes > buffer->_length - offset) {
      return refuse("the tensor takes " + Number(bytes) + " bytes at offset " + Number(offset) +
                    ", and the buffer has " + Number(buffer->_length));
    }
    if ([descriptor usage] & MTLTensorUsageMachineLearning &&
        (offset || (described.rank > 1 && uint64_t(described.strides[1]) * element % 64))) {
      return refuse(
          "usage has MTLTensorUsageMachineLearning: the offset is 0 and a row a multiple of 64 "
          "bytes then");
    }
    [buffer retain];
  } else {
    buffer = (HMBuffer*)[device newBufferWithLength:bytes options:[descriptor resourceOptions]];
    if (!buffer) {
      return hostmetal::Refuse(
          error, MTLTensorDomain, MTLTensorErrorInternalError,
          method + "there is no memory for " + Number(int64_t(bytes)) + " bytes");
    }
  }
  HMTensor* tensor = [[HMTensor alloc] init];
  tensor->_memory = buffer;
  tensor->_over = over;
  tensor->_described = described;
  tensor->_described.address = static_cast<char*>(buffer->_allocation.device) + offset;
  tensor->_usage = [descriptor usage];
  tensor->_offset = offset;
  return tensor;
}

+ (MTLSizeAndAlign)sizeAndAlign:(MTLTensorDescriptor*)descriptor {
  metallib_tensor described;
  uint64_t bytes = 0;
  if (!Read(descriptor, false, &described, &bytes).empty()) return {0, 0};
  return {NSUInteger((bytes + kAlignment - 1) / kAlignment * kAlignment), kAlignment};
}

- (id<MTLDevice>)device {
  return _memory->_device;
}
- (MTLResourceID)gpuResourceID {
  return {reinterpret_cast<uint64_t>(&_described)};
}
- (id<MTLBuffer>)buffer {
  return _over ? _memory : nil;
}
- (NSUInteger)bufferOffset {
  return _offset;
}
- (MTLTensorExtents*)strides {
  return _over ? Extents(_described.rank, _described.strides) : nil;
}
- (MTLTensorExtents*)dimensions {
  return Extents(_described.rank, _described.extents);
}
- (MTLTensorDataType)dataType {
  return MTLTensorDataType(_described.data_type);
}
- (MTLTensorUsage)usage {
  return _usage;
}

// Copies a slice, in rows of the innermost dimension.
- (void)copy:(const char*)method
      origin:(MTLTensorExtents*)origin
       sizes:(MTLTensorExtents*)sizes
       bytes:(char*)bytes
     strides:(MTLTensorExtents*)strides
     replace:(BOOL)replace {
  const uint32_t rank = _described.rank;
  if ([self storageMode] == MTLStorageModePrivate) {
    return Complain(method,
                    "the storage mode is private; make the tensor with MTLStorageModeShared");
  }
  if (!bytes || [origin rank] != rank || [sizes rank] != rank || [strides rank] != rank) {
    return Complain(
        method, "bytes, origin, dimensions and strides of rank " + Number(rank) + " are needed");
  }
  int64_t size[MTL_TENSOR_MAX_RANK], stride[MTL_TENSOR_MAX_RANK], at[MTL_TENSOR_MAX_RANK] = {};
  char* first = static_cast<char*>(_described.address);
  const size_t element = Bytes([self dataType]);
  for (uint32_t i = 0; i < rank; ++i) {
    const int64_t from = [origin extentAtDimensionIndex:i];
    size[i] = [sizes extentAtDimensionIndex:i];
    stride[i] = [strides extentAtDimensionIndex:i];
    if (from < 0 || size[i] < 0 || from > _described.extents[i] ||
        size[i] > _described.extents[i] - from) {
      return Complain(method, "dimension " + Number(i) + ": " + Number(size[i]) +
                                  " elements from " + Number(from) + " of " +
                                  Number(_described.extents[i]));
    }
    if (stride[i] < (i ? stride[i - 1] * size[i - 1] : 1)) {
      return Complain(method, "stride " + Number(i) + " is " + Number(stride[i]) +
                                  ", less than the elements before it take");
    }
    if (!size[i]) return;
    first += from * _described.strides[i] * int64_t(element);
  }
  while (true) {
    char* own = first;
    char* other = bytes;
    for (uint32_t i = 1; i < rank; ++i) {
      own += at[i] * _described.strides[i] * int64_t(element);
      other += at[i] * stride[i] * int64_t(element);
    }
    for (int64_t n = 0; n < size[0]; ++n) {
      char* here = own + n * int64_t(element);
      char* there = other + n * stride[0] * int64_t(element);
      replace ? memcpy(here, there, element) : memcpy(there, here, element);
    }
    uint32_t i = 1;
    while (i < rank && ++at[i] == size[i]) at[i++] = 0;
    if (i >= rank) return;
  }
}
- (void)replaceSliceOrigin:(MTLTensorExtents*)sliceOrigin
           sliceDimensions:(MTLTensorExtents*)sliceDimensions
                 withBytes:(const void*)bytes
                   strides:(MTLTensorExtents*)strides {
  [self copy:"replaceSliceOrigin:sliceDimensions:withBytes:strides:"
       origin:sliceOrigin
        sizes:sliceDimensions
        bytes:static_cast<char*>(const_cast<void*>(bytes))
      strides:strides
      replace:YES];
}
- (void)getBytes:(void*)bytes
            strides:(MTLTensorExtents*)strides
    fromSliceOrigin:(MTLTensorExtents*)sliceOrigin
    sliceDimensions:(MTLTensorExtents*)sliceDimensions {
  [self copy:"getBytes:strides:fromSliceOrigin:sliceDimensions:"
       origin:sliceOrigin
        sizes:sliceDimensions
        bytes:static_cast<char*>(bytes)
      strides:strides
      replace:NO];
}

// A resource's own facts are its memory's.
- (MTLStorageMode)storageMode {
  return [_memory storageMode];
}
- (MTLCPUCacheMode)cpuCacheMode {
  return [_memory cpuCacheMode];
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  return [_memory hazardTrackingMode];
}
- (MTLResourceOptions)resourceOptions {
  return [_memory resourceOptions];
}
- (NSUInteger)allocatedSize {
  return _over ? 0 : [_memory allocatedSize];
}

@end
