// MTLStructType and its members.
#include "hostmetal/src/struct_type.h"

#include <string.h>

#include <algorithm>

#include "hostmetal/src/errors.h"
#include "hostmetal/src/library.h"
#include "hostmetal/src/texture.h"

namespace hostmetal {
namespace {

using TypePointer = std::shared_ptr<const Type>;

// Reads the text from front to back. The compiler wrote it, and the file's checksum was right.
class Reader {
 public:
  explicit Reader(const char* at) : at_(at) {}

  TypePointer ReadType() {
    auto type = std::make_shared<Type>();
    switch (*at_) {
      case '{':
        ++at_;
        type->data_type = MTLDataTypeStruct;
        while (*at_ && *at_ != '}') {
          Member member;
          member.name = Until(',');
          member.offset = Number(',');
          member.index = Number(':');
          member.type = ReadType();
          type->members.push_back(std::move(member));
        }
        if (*at_) ++at_;
        break;
      case '[':
        ++at_;
        type->data_type = MTLDataTypeArray;
        type->length = Number(',');
        type->stride = Number(':');
        type->element = ReadType();
        break;
      case '*':
        type->data_type = MTLDataTypePointer;
        type->written = at_[1] == 'w';
        at_ += 2;
        type->size = Number(',');
        type->alignment = Number(':');
        type->element = ReadType();
        break;
      case 't':
        ++at_;
        type->data_type = MTLDataTypeTexture;
        type->texture = Until(';');
        break;
      case 's':
        ++at_;
        type->data_type = MTLDataTypeSampler;
        break;
      case '?':
        ++at_;
        break;
      default: {
        char* end;
        type->data_type = MTLDataType(strtoul(at_, &end, 10));
        at_ = end;
      }
    }
    return type;
  }

 private:
  std::string Until(char stop) {
    const char* end = strchrnul(at_, stop);
    std::string text(at_, end);
    at_ = *end ? end + 1 : end;
    return text;
  }
  size_t Number(char stop) { return strtoul(Until(stop).c_str(), nullptr, 10); }

  const char* at_;
};

}  // namespace

size_t Type::Indices() const {
  if (data_type == MTLDataTypeArray) return length * element->Indices();
  if (data_type != MTLDataTypeStruct) return 1;
  size_t end = 1;
  for (const Member& m : members) end = std::max(end, m.index + m.type->Indices());
  return end;
}

TypePointer TypeOf(const metallib_argument& argument) {
  if (argument.flags & METALLIB_ARG_MEMBERS) {
    return Reader(argument.name + strlen(argument.name) + 1).ReadType();
  }
  auto named = std::make_shared<Type>();
  named->data_type = ScalarType(argument.type_name);
  return named;
}

TypePointer StructOf(const metallib_argument& argument) {
  if (!(argument.flags & METALLIB_ARG_MEMBERS)) return nullptr;
  TypePointer type = TypeOf(argument);
  return type->data_type == MTLDataTypeStruct ? type : nullptr;
}

MTLDataType ScalarType(const std::string& name) {
  struct Scalar {
    const char* name;
    NSUInteger type;
  };
  static constexpr Scalar kScalars[] = {
      {"float", MTLDataTypeFloat},   {"half", MTLDataTypeHalf}, {"bfloat", MTLDataTypeBFloat},
      {"int", MTLDataTypeInt},       {"uint", MTLDataTypeUInt}, {"short", MTLDataTypeShort},
      {"ushort", MTLDataTypeUShort}, {"char", MTLDataTypeChar}, {"uchar", MTLDataTypeUChar},
      {"bool", MTLDataTypeBool},     {"long", MTLDataTypeLong}, {"ulong", MTLDataTypeULong},
  };
  std::string text = name;
  for (const char* prefix : {"metal::", "packed_", "atomic_", "atomic<", "metal::"}) {
    if (text.rfind(prefix, 0) == 0) text = text.substr(strlen(prefix));
  }
  if (!text.empty() && text.back() == '>') text.pop_back();
  for (const Scalar& s : kScalars) {
    if (text == s.name) return MTLDataType(s.type);
    size_t n = strlen(s.name);
    if (text.size() == n + 1 && text.compare(0, n, s.name) == 0 && text[n] >= '2' &&
        text[n] <= '4') {
      return MTLDataType(s.type + NSUInteger(text[n] - '1'));
    }
  }
  return MTLDataTypeStruct;
}

size_t SizeInStruct(MTLDataType type) {
  if (size_t size = ConstantSize(type)) return size;
  switch (type) {
    case MTLDataTypePointer:
    case MTLDataTypeTexture:
    case MTLDataTypeSampler:
      return 8;
    case MTLDataTypeLong3:
    case MTLDataTypeLong4:
    case MTLDataTypeULong3:
    case MTLDataTypeULong4:
      return 32;
    default:
      break;
  }
  // Matrices, as many columns as rows from 2x2 to 4x4; a column of 3 takes the room of 4.
  for (auto [first, bytes] : {std::pair{MTLDataTypeFloat2x2, 4}, {MTLDataTypeHalf2x2, 2}}) {
    if (type < first || type >= first + 9) continue;
    const size_t columns = (type - first) / 3 + 2, rows = (type - first) % 3 + 2;
    return columns * (rows == 2 ? 2 : 4) * size_t(bytes);
  }
  return 0;
}

}  // namespace hostmetal

using hostmetal::Member;
using hostmetal::Type;
using TypePointer = std::shared_ptr<const Type>;

@interface MTLType (Hostmetal)
- (id)initWithType:(TypePointer)type;
- (const TypePointer&)hm_type;
@end

namespace {

// Each of these is nil where the type is another one.
id Made(Class made, MTLDataType wanted, const TypePointer& type) {
  if (type->data_type != wanted) return nil;
  return [[[made alloc] initWithType:type] autorelease];
}

MTLStructType* AsStruct(const TypePointer& type) {
  return Made([MTLStructType class], MTLDataTypeStruct, type);
}
MTLArrayType* AsArray(const TypePointer& type) {
  return Made([MTLArrayType class], MTLDataTypeArray, type);
}
MTLPointerType* AsPointer(const TypePointer& type) {
  return Made([MTLPointerType class], MTLDataTypePointer, type);
}
MTLTextureReferenceType* AsTexture(const TypePointer& type) {
  return Made([MTLTextureReferenceType class], MTLDataTypeTexture, type);
}

bool HoldsResources(const Type& type) {
  if (type.data_type == MTLDataTypeArray) return HoldsResources(*type.element);
  for (const Member& m : type.members) {
    if (HoldsResources(*m.type)) return true;
  }
  return type.data_type == MTLDataTypePointer || type.data_type == MTLDataTypeTexture ||
         type.data_type == MTLDataTypeSampler;
}

}  // namespace

namespace hostmetal {

TypePointer StructOf(MTLStructType* type) { return type ? [type hm_type] : nullptr; }

MTLStructType* NewStructType(TypePointer type) {
  return [[MTLStructType alloc] initWithType:std::move(type)];
}
MTLPointerType* NewPointerType(TypePointer type) {
  return [[MTLPointerType alloc] initWithType:std::move(type)];
}

}  // namespace hostmetal

@implementation MTLType
- (id)initWithType:(TypePointer)type {
  self = [super init];
  if (self) _layout = new TypePointer(std::move(type));
  return self;
}
- (void)dealloc {
  delete static_cast<const TypePointer*>(_layout);
  [super dealloc];
}
- (const TypePointer&)hm_type {
  return *static_cast<const TypePointer*>(_layout);
}
- (MTLDataType)dataType {
  return [self hm_type]->data_type;
}
@end

@interface MTLStructMember (Hostmetal)
- (id)initWithMember:(const Member&)member;
@end

@implementation MTLStructMember
- (id)initWithMember:(const Member&)member {
  self = [super init];
  if (self) _member = new Member(member);
  return self;
}
- (void)dealloc {
  delete static_cast<const Member*>(_member);
  [super dealloc];
}
- (const Member&)hm_member {
  return *static_cast<const Member*>(_member);
}
- (NSString*)name {
  return hostmetal::ToNSString([self hm_member].name);
}
- (NSUInteger)offset {
  return [self hm_member].offset;
}
- (MTLDataType)dataType {
  return [self hm_member].type->data_type;
}
- (NSUInteger)argumentIndex {
  return [self hm_member].index;
}
- (MTLStructType*)structType {
  return AsStruct([self hm_member].type);
}
- (MTLArrayType*)arrayType {
  return AsArray([self hm_member].type);
}
- (MTLTextureReferenceType*)textureReferenceType {
  return AsTexture([self hm_member].type);
}
- (MTLPointerType*)pointerType {
  return AsPointer([self hm_member].type);
}
@end

@implementation MTLStructType
- (NSArray*)members {
  NSMutableArray* all = [NSMutableArray array];
  for (const Member& member : [self hm_type]->members) {
    [all addObject:[[[MTLStructMember alloc] initWithMember:member] autorelease]];
  }
  return all;
}
- (MTLStructMember*)memberByName:(NSString*)name {
  for (MTLStructMember* member in [self members]) {
    if ([[member name] isEqualToString:name]) return member;
  }
  return nil;
}
@end

@implementation MTLArrayType
- (MTLDataType)elementType {
  return [self hm_type]->element -> data_type;
}
- (NSUInteger)arrayLength {
  return [self hm_type]->length;
}
- (NSUInteger)stride {
  return [self hm_type]->stride;
}
- (NSUInteger)argumentIndexStride {
  return [self hm_type]->element -> Indices();
}
- (MTLStructType*)elementStructType {
  return AsStruct([self hm_type]->element);
}
- (MTLArrayType*)elementArrayType {
  return AsArray([self hm_type]->element);
}
- (MTLTextureReferenceType*)elementTextureReferenceType {
  return AsTexture([self hm_type]->element);
}
- (MTLPointerType*)elementPointerType {
  return AsPointer([self hm_type]->element);
}
@end

@implementation MTLPointerType
- (MTLDataType)elementType {
  return [self hm_type]->element -> data_type;
}
- (MTLBindingAccess)access {
  return [self hm_type]->written ? MTLBindingAccessReadWrite : MTLBindingAccessReadOnly;
}
- (NSUInteger)alignment {
  return [self hm_type]->alignment;
}
- (NSUInteger)dataSize {
  return [self hm_type]->size;
}
- (BOOL)elementIsArgumentBuffer {
  return HoldsResources(*[self hm_type]->element);
}
- (MTLStructType*)elementStructType {
  return AsStruct([self hm_type]->element);
}
- (MTLArrayType*)elementArrayType {
  return AsArray([self hm_type]->element);
}
@end

@implementation MTLTextureReferenceType
- (MTLDataType)textureDataType {
  return hostmetal::ScalarType(hostmetal::TextureComponent([self hm_type]->texture.c_str()));
}
- (MTLTextureType)textureType {
  return hostmetal::TextureType([self hm_type]->texture.c_str());
}
- (MTLBindingAccess)access {
  const std::string& text = [self hm_type]->texture;
  const auto says = [&](const char* word) { return text.find(word) != std::string::npos; };
  return says("access::write>")        ? MTLBindingAccessWriteOnly
         : says("access::read_write>") ? MTLBindingAccessReadWrite
                                       : MTLBindingAccessReadOnly;
}
- (BOOL)isDepthTexture {
  return [self hm_type]->texture.rfind("depth", 0) == 0;
}
@end
