// Data types, and reflection of a kernel's arguments.
#ifndef HOSTMETAL_MTLARGUMENT_H_
#define HOSTMETAL_MTLARGUMENT_H_

#import <Metal/MTLDefines.h>
#import <Metal/MTLTexture.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MTLDataType) {
  MTLDataTypeNone = 0,
  MTLDataTypeStruct = 1,
  MTLDataTypeArray = 2,
  MTLDataTypeFloat = 3,
  MTLDataTypeFloat2 = 4,
  MTLDataTypeFloat3 = 5,
  MTLDataTypeFloat4 = 6,
  MTLDataTypeFloat2x2 = 7,
  MTLDataTypeFloat2x3 = 8,
  MTLDataTypeFloat2x4 = 9,
  MTLDataTypeFloat3x2 = 10,
  MTLDataTypeFloat3x3 = 11,
  MTLDataTypeFloat3x4 = 12,
  MTLDataTypeFloat4x2 = 13,
  MTLDataTypeFloat4x3 = 14,
  MTLDataTypeFloat4x4 = 15,
  MTLDataTypeHalf = 16,
  MTLDataTypeHalf2 = 17,
  MTLDataTypeHalf3 = 18,
  MTLDataTypeHalf4 = 19,
  MTLDataTypeHalf2x2 = 20,
  MTLDataTypeHalf2x3 = 21,
  MTLDataTypeHalf2x4 = 22,
  MTLDataTypeHalf3x2 = 23,
  MTLDataTypeHalf3x3 = 24,
  MTLDataTypeHalf3x4 = 25,
  MTLDataTypeHalf4x2 = 26,
  MTLDataTypeHalf4x3 = 27,
  MTLDataTypeHalf4x4 = 28,
  MTLDataTypeInt = 29,
  MTLDataTypeInt2 = 30,
  MTLDataTypeInt3 = 31,
  MTLDataTypeInt4 = 32,
  MTLDataTypeUInt = 33,
  MTLDataTypeUInt2 = 34,
  MTLDataTypeUInt3 = 35,
  MTLDataTypeUInt4 = 36,
  MTLDataTypeShort = 37,
  MTLDataTypeShort2 = 38,
  MTLDataTypeShort3 = 39,
  MTLDataTypeShort4 = 40,
  MTLDataTypeUShort = 41,
  MTLDataTypeUShort2 = 42,
  MTLDataTypeUShort3 = 43,
  MTLDataTypeUShort4 = 44,
  MTLDataTypeChar = 45,
  MTLDataTypeChar2 = 46,
  MTLDataTypeChar3 = 47,
  MTLDataTypeChar4 = 48,
  MTLDataTypeUChar = 49,
  MTLDataTypeUChar2 = 50,
  MTLDataTypeUChar3 = 51,
  MTLDataTypeUChar4 = 52,
  MTLDataTypeBool = 53,
  MTLDataTypeBool2 = 54,
  MTLDataTypeBool3 = 55,
  MTLDataTypeBool4 = 56,
  MTLDataTypeTexture = 58,
  MTLDataTypeSampler = 59,
  MTLDataTypePointer = 60,
  MTLDataTypeLong = 81,
  MTLDataTypeLong2 = 82,
  MTLDataTypeLong3 = 83,
  MTLDataTypeLong4 = 84,
  MTLDataTypeULong = 85,
  MTLDataTypeULong2 = 86,
  MTLDataTypeULong3 = 87,
  MTLDataTypeULong4 = 88,
  MTLDataTypeBFloat = 121,
  MTLDataTypeBFloat2 = 122,
  MTLDataTypeBFloat3 = 123,
  MTLDataTypeBFloat4 = 124,
};

typedef NS_ENUM(NSInteger, MTLBindingType) {
  MTLBindingTypeBuffer = 0,
  MTLBindingTypeThreadgroupMemory = 1,
  MTLBindingTypeTexture = 2,
  MTLBindingTypeSampler = 3,
  MTLBindingTypeVisibleFunctionTable = 24,
  MTLBindingTypeTensor = 37,
};

typedef NS_ENUM(NSUInteger, MTLArgumentType) {
  MTLArgumentTypeBuffer = 0,
  MTLArgumentTypeThreadgroupMemory = 1,
  MTLArgumentTypeTexture = 2,
  MTLArgumentTypeSampler = 3,
  MTLArgumentTypeVisibleFunctionTable = 24,
};

typedef NS_ENUM(NSUInteger, MTLBindingAccess) {
  MTLBindingAccessReadOnly = 0,
  MTLBindingAccessReadWrite = 1,
  MTLBindingAccessWriteOnly = 2,
  MTLArgumentAccessReadOnly = 0,
  MTLArgumentAccessReadWrite = 1,
  MTLArgumentAccessWriteOnly = 2,
};
typedef MTLBindingAccess MTLArgumentAccess;

@class MTLArrayType;
@class MTLPointerType;
@class MTLStructType;
@class MTLTextureReferenceType;

// The members of the struct that a buffer holds: hostmetal/src/struct_type.mm.
MTL_EXPORT
@interface MTLType : NSObject {
 @protected
  const void* _layout;  // held
}
@property(readonly) MTLDataType dataType;
@end

MTL_EXPORT
@interface MTLStructMember : NSObject {
 @private
  const void* _member;  // held
}
@property(readonly) NSString* name;
@property(readonly) NSUInteger offset;
@property(readonly) MTLDataType dataType;
- (nullable MTLStructType*)structType;
- (nullable MTLArrayType*)arrayType;
- (nullable MTLTextureReferenceType*)textureReferenceType;
- (nullable MTLPointerType*)pointerType;
// In an argument buffer.
@property(readonly) NSUInteger argumentIndex;
@end

MTL_EXPORT
@interface MTLStructType : MTLType
@property(readonly) NSArray<MTLStructMember*>* members;
- (nullable MTLStructMember*)memberByName:(NSString*)name;
@end

MTL_EXPORT
@interface MTLArrayType : MTLType
@property(readonly) MTLDataType elementType;
@property(readonly) NSUInteger arrayLength;
@property(readonly) NSUInteger stride;
@property(readonly) NSUInteger argumentIndexStride;
- (nullable MTLStructType*)elementStructType;
- (nullable MTLArrayType*)elementArrayType;
- (nullable MTLTextureReferenceType*)elementTextureReferenceType;
- (nullable MTLPointerType*)elementPointerType;
@end

MTL_EXPORT
@interface MTLPointerType : MTLType
@property(readonly) MTLDataType elementType;
@property(readonly) MTLBindingAccess access;
@property(readonly) NSUInteger alignment;
@property(readonly) NSUInteger dataSize;
// YES where a pointer, a texture or a sampler lies there.
@property(readonly) BOOL elementIsArgumentBuffer;
- (nullable MTLStructType*)elementStructType;
- (nullable MTLArrayType*)elementArrayType;
@end

MTL_EXPORT
@interface MTLTextureReferenceType : MTLType
@property(readonly) MTLDataType textureDataType;
@property(readonly) MTLTextureType textureType;
@property(readonly) MTLBindingAccess access;
@property(readonly) BOOL isDepthTexture;
@end

@protocol MTLBinding <NSObject>
@property(readonly) NSString* name;
@property(readonly) MTLBindingType type;
@property(readonly) MTLBindingAccess access;
@property(readonly) NSUInteger index;
@property(readonly, getter=isUsed) BOOL used;
@property(readonly, getter=isArgument) BOOL argument;
@end

@protocol MTLBufferBinding <MTLBinding>
@property(readonly) NSUInteger bufferAlignment;
@property(readonly) NSUInteger bufferDataSize;
@property(readonly) MTLDataType bufferDataType;
@property(nullable, readonly) MTLStructType* bufferStructType;
@property(nullable, readonly) MTLPointerType* bufferPointerType;
@end

@protocol MTLThreadgroupBinding <MTLBinding>
@property(readonly) NSUInteger threadgroupMemoryAlignment;
@property(readonly) NSUInteger threadgroupMemoryDataSize;
@end

@protocol MTLTextureBinding <MTLBinding>
@property(readonly) MTLTextureType textureType;
// The type of one component: float, half, int ...
@property(readonly) MTLDataType textureDataType;
@property(readonly, getter=isDepthTexture) BOOL depthTexture;
@property(readonly) NSUInteger arrayLength;
@end

// The older face of the same facts.
MTL_EXPORT
@interface MTLArgument : NSObject {
 @private
  const void* _info;
  id _owner;
}
@property(readonly) NSString* name;
@property(readonly) MTLArgumentType type;
@property(readonly) MTLArgumentAccess access;
@property(readonly) NSUInteger index;
@property(readonly, getter=isActive) BOOL active;
@property(readonly) NSUInteger bufferAlignment;
@property(readonly) NSUInteger bufferDataSize;
@property(readonly) MTLDataType bufferDataType;
@property(nullable, readonly) MTLStructType* bufferStructType;
@property(nullable, readonly) MTLPointerType* bufferPointerType;
@property(readonly) NSUInteger threadgroupMemoryAlignment;
@property(readonly) NSUInteger threadgroupMemoryDataSize;
@property(readonly) MTLTextureType textureType;
@property(readonly) MTLDataType textureDataType;
@property(readonly) BOOL isDepthTexture;
@property(readonly) NSUInteger arrayLength;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLARGUMENT_H_
