// Fills argument buffers: structs of pointers, textures, samplers and constants in a buffer.
#ifndef HOSTMETAL_MTLARGUMENTENCODER_H_
#define HOSTMETAL_MTLARGUMENTENCODER_H_

#import <Metal/MTLArgument.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer;
@protocol MTLDevice;
@protocol MTLSamplerState;
@protocol MTLTexture;

// One member, for an encoder that is made without a function.
MTL_EXPORT
@interface MTLArgumentDescriptor : NSObject <NSCopying> {
 @private
  MTLDataType _dataType;
  NSUInteger _index;
  NSUInteger _arrayLength;
  MTLBindingAccess _access;
  MTLTextureType _textureType;
  NSUInteger _constantBlockAlignment;
}
+ (MTLArgumentDescriptor*)argumentDescriptor;
@property(nonatomic) MTLDataType dataType;
@property(nonatomic) NSUInteger index;
@property(nonatomic) NSUInteger arrayLength;
@property(nonatomic) MTLBindingAccess access;
@property(nonatomic) MTLTextureType textureType;
@property(nonatomic) NSUInteger constantBlockAlignment;
@end

// Layout and values are those of the struct in the shader: pointers are gpuAddress, textures and
// samplers gpuResourceID, 8 bytes each. The struct may as well be filled by hand.
@protocol MTLArgumentEncoder <NSObject>
@property(readonly) id<MTLDevice> device;
@property(nullable, copy, atomic) NSString* label;
@property(readonly) NSUInteger encodedLength;
@property(readonly) NSUInteger alignment;

- (void)setArgumentBuffer:(nullable id<MTLBuffer>)argumentBuffer offset:(NSUInteger)offset;
- (void)setArgumentBuffer:(nullable id<MTLBuffer>)argumentBuffer
              startOffset:(NSUInteger)startOffset
             arrayElement:(NSUInteger)arrayElement;
- (void)setBuffer:(nullable id<MTLBuffer>)buffer
           offset:(NSUInteger)offset
          atIndex:(NSUInteger)index;
- (void)setBuffers:(const id<MTLBuffer> _Nullable[_Nonnull])buffers
           offsets:(const NSUInteger[_Nonnull])offsets
         withRange:(NSRange)range;
- (void)setTexture:(nullable id<MTLTexture>)texture atIndex:(NSUInteger)index;
- (void)setTextures:(const id<MTLTexture> _Nullable[_Nonnull])textures withRange:(NSRange)range;
- (void)setSamplerState:(nullable id<MTLSamplerState>)sampler atIndex:(NSUInteger)index;
- (void)setSamplerStates:(const id<MTLSamplerState> _Nullable[_Nonnull])samplers
               withRange:(NSRange)range;
- (nullable void*)constantDataAtIndex:(NSUInteger)index NS_RETURNS_INNER_POINTER;
- (nullable id<MTLArgumentEncoder>)newArgumentEncoderForBufferAtIndex:(NSUInteger)index;
@end

NS_ASSUME_NONNULL_END

#endif  // HOSTMETAL_MTLARGUMENTENCODER_H_
