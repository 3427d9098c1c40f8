// MTLArgumentEncoder: writes the contents of a shader's struct of pointers, textures and samplers.
#include <string.h>

#include <algorithm>
#include <map>

#include "hostmetal/src/argument_encoder.h"
#include "hostmetal/src/errors.h"
#include "hostmetal/src/texture.h"

using hostmetal::Member;
using hostmetal::Type;
using TypePointer = std::shared_ptr<const Type>;

namespace {

// The argument of an index, and its place.
struct Place {
  size_t offset;
  TypePointer type;
};
using Places = std::map<NSUInteger, Place>;

void AddPlaces(const TypePointer& type, size_t offset, NSUInteger index, Places* places) {
  if (type->data_type == MTLDataTypeStruct) {
    for (const Member& m : type->members) {
      AddPlaces(m.type, offset + m.offset, index + m.index, places);
    }
  } else if (type->data_type == MTLDataTypeArray) {
    const size_t each = type->element->Indices();
    for (size_t i = 0; i < type->length; ++i) {
      AddPlaces(type->element, offset + i * type->stride, index + i * each, places);
    }
  } else {
    places->insert({index, {offset, type}});
  }
}

void Complain(const char* method, const std::string& what) {
  fprintf(stderr, "[MTLArgumentEncoder %s] %s\n", method, what.c_str());
}

const char* Kind(MTLDataType type) {
  switch (type) {
    case MTLDataTypePointer:
      return "a pointer";
    case MTLDataTypeTexture:
      return "a texture";
    case MTLDataTypeSampler:
      return "a sampler";
    default:
      return "a constant";
  }
}

}  // namespace

@implementation MTLArgumentDescriptor
+ (MTLArgumentDescriptor*)argumentDescriptor {
  return [[[self alloc] init] autorelease];
}
- (id)init {
  self = [super init];
  if (self) _textureType = MTLTextureType2D;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLArgumentDescriptor* copy = [[MTLArgumentDescriptor alloc] init];
  [copy setDataType:_dataType];
  [copy setIndex:_index];
  [copy setArrayLength:_arrayLength];
  [copy setAccess:_access];
  [copy setTextureType:_textureType];
  [copy setConstantBlockAlignment:_constantBlockAlignment];
  return copy;
}
@synthesize dataType = _dataType;
@synthesize index = _index;
@synthesize arrayLength = _arrayLength;
@synthesize access = _access;
@synthesize textureType = _textureType;
@synthesize constantBlockAlignment = _constantBlockAlignment;
@end

@interface HMArgumentEncoder : HMLabelled <MTLArgumentEncoder> {
 @public
  HMDevice* _device;
  Places* _places;
  NSUInteger _length, _alignment;
  HMBuffer* _target;
  NSUInteger _offset;
}
@end

@implementation HMArgumentEncoder
- (void)dealloc {
  delete _places;
  [_target release];
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSUInteger)encodedLength {
  return _length;
}
- (NSUInteger)alignment {
  return _alignment;
}

- (void)setArgumentBuffer:(id<MTLBuffer>)object offset:(NSUInteger)offset {
  auto* buffer = (HMBuffer*)object;
  [_target autorelease];
  _target = nil;
  if (!buffer) return;
  if (![buffer isKindOfClass:HM_CLASS(HMBuffer)] || buffer->_device != _device) {
    return Complain("setArgumentBuffer:offset:", "the buffer is not of this device");
  }
  if (!buffer->_allocation.host) {
    return Complain("setArgumentBuffer:offset:",
                    "the buffer's memory is the device's own; make it with "
                    "MTLResourceStorageModeShared");
  }
  if (offset % _alignment || offset > buffer->_length || _length > buffer->_length - offset) {
    return Complain("setArgumentBuffer:offset:",
                    "offset " + std::to_string(offset) + " of a buffer of " +
                        std::to_string(buffer->_length) + " bytes; " + std::to_string(_length) +
                        " bytes are needed, at a multiple of " + std::to_string(_alignment));
  }
  _target = [buffer retain];
  _offset = offset;
}
- (void)setArgumentBuffer:(id<MTLBuffer>)buffer
              startOffset:(NSUInteger)start
             arrayElement:(NSUInteger)element {
  [self setArgumentBuffer:buffer offset:start + element * _length];
}

// Where the argument lies; nullptr after a complaint.
- (char*)at:(NSUInteger)index kind:(MTLDataType)kind method:(const char*)method {
  auto found = _places->find(index);
  if (found == _places->end()) {
    Complain(method, "there is no argument " + std::to_string(index));
    return nullptr;
  }
  const MTLDataType type = found->second.type->data_type;
  if (strcmp(Kind(type), Kind(kind))) {
    Complain(method,
             "argument " + std::to_string(index) + " is " + Kind(type) + ", not " + Kind(kind));
    return nullptr;
  }
  if (!_target) {
    Complain(method, "no argument buffer is set; call setArgumentBuffer:offset:");
    return nullptr;
  }
  return static_cast<char*>(_target->_allocation.host) + _offset + found->second.offset;
}

- (void)set:(uint64_t)value
    atIndex:(NSUInteger)index
       kind:(MTLDataType)kind
     method:(const char*)method {
  if (char* at = [self at:index kind:kind method:method]) memcpy(at, &value, sizeof value);
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (buffer && offset > [buffer length]) {
    return Complain("setBuffer:offset:atIndex:", "offset " + std::to_string(offset) +
                                                     " of a buffer of " +
                                                     std::to_string([buffer length]) + " bytes");
  }
  [self set:buffer ? [buffer gpuAddress] + offset : 0
      atIndex:index
         kind:MTLDataTypePointer
       method:"setBuffer:offset:atIndex:"];
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
  }
}
- (void)setTexture:(id<MTLTexture>)texture atIndex:(NSUInteger)index {
  [self set:texture ? [texture gpuResourceID]._impl : 0
      atIndex:index
         kind:MTLDataTypeTexture
       method:"setTexture:atIndex:"];
}
- (void)setTextures:(const id<MTLTexture>[])textures withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setTexture:textures[i] atIndex:range.location + i];
  }
}
- (void)setSamplerState:(id<MTLSamplerState>)sampler atIndex:(NSUInteger)index {
  [self set:sampler ? [sampler gpuResourceID]._impl : 0
      atIndex:index
         kind:MTLDataTypeSampler
       method:"setSamplerState:atIndex:"];
}
- (void)setSamplerStates:(const id<MTLSamplerState>[])samplers withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setSamplerState:samplers[i] atIndex:range.location + i];
  }
}
- (void*)constantDataAtIndex:(NSUInteger)index {
  return [self at:index kind:MTLDataTypeFloat method:"constantDataAtIndex:"];
}

- (id<MTLArgumentEncoder>)newArgumentEncoderForBufferAtIndex:(NSUInteger)index {
  auto found = _places->find(index);
  if (found == _places->end() || found->second.type->data_type != MTLDataTypePointer ||
      found->second.type->element->data_type != MTLDataTypeStruct) {
    Complain("newArgumentEncoderForBufferAtIndex:",
             "argument " + std::to_string(index) + " is no pointer to a struct");
    return nil;
  }
  const Type& pointer = *found->second.type;
  return hostmetal::NewArgumentEncoder(_device, pointer.element, pointer.size, pointer.alignment);
}
@end

namespace hostmetal {

id<MTLArgumentEncoder> NewArgumentEncoder(HMDevice* device, const TypePointer& type, size_t size,
                                          size_t alignment) {
  HMArgumentEncoder* encoder = [[HMArgumentEncoder alloc] init];
  encoder->_device = device;
  encoder->_places = new Places;
  AddPlaces(type, 0, 0, encoder->_places);
  encoder->_length = size;
  encoder->_alignment = std::max<size_t>(alignment, 1);
  return encoder;
}

id<MTLArgumentEncoder> NewArgumentEncoder(HMDevice* device, NSArray* arguments) {
  std::map<NSUInteger, MTLArgumentDescriptor*> by_index;
  for (MTLArgumentDescriptor* argument in arguments) {
    const bool fresh = by_index.insert({[argument index], argument}).second;
    if (!fresh || !SizeInStruct([argument dataType])) {
      fprintf(stderr, "[newArgumentEncoderWithArguments:] argument %lu %s\n",
              (unsigned long)[argument index],
              fresh ? "has a type that cannot be there" : "is there twice");
      return nil;
    }
  }
  // As the compiler lays out a struct whose members stand in the order of their indices.
  auto type = std::make_shared<Type>();
  type->data_type = MTLDataTypeStruct;
  size_t end = 0, whole = 8;
  for (auto [index, argument] : by_index) {
    auto element = std::make_shared<Type>();
    element->data_type = [argument dataType];
    element->element =
        element->data_type == MTLDataTypePointer ? std::make_shared<Type>() : nullptr;
    const size_t size = SizeInStruct(element->data_type);
    size_t alignment = std::min<size_t>(size, 32);
    for (auto [first, two] : {std::pair{MTLDataTypeFloat2x2, 8}, {MTLDataTypeHalf2x2, 4}}) {
      const MTLDataType t = element->data_type;
      if (t >= first && t < first + 9) alignment = size_t((t - first) % 3 ? 2 * two : two);
    }
    alignment = std::max<size_t>(alignment, [argument constantBlockAlignment]);
    Member member;
    member.index = index;
    member.offset = (end + alignment - 1) / alignment * alignment;
    member.type = element;
    if (const size_t length = [argument arrayLength]) {
      auto array = std::make_shared<Type>();
      array->data_type = MTLDataTypeArray;
      array->length = length;
      array->stride = size;
      array->element = element;
      member.type = array;
    }
    end = member.offset + size * std::max<size_t>(1, [argument arrayLength]);
    whole = std::max(whole, alignment);
    type->members.push_back(std::move(member));
  }
  return NewArgumentEncoder(device, type, (end + whole - 1) / whole * whole, whole);
}

}  // namespace hostmetal
