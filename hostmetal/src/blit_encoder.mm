// MTLBlitCommandEncoder.
#include "hostmetal/src/blit_encoder.h"

#include <string.h>

#include "hostmetal/src/counters.h"
#include "hostmetal/src/indirect_command_buffer.h"
#include "hostmetal/src/mipmaps.h"
#include "hostmetal/src/texture.h"

using hostmetal::Command;
using hostmetal::CommandType;
using hostmetal::kInvalidResource;

namespace {

std::string Number(uint64_t n) { return std::to_string(n); }
std::string Words(MTLSize s) {
  return Number(s.width) + " x " + Number(s.height) + " x " + Number(s.depth);
}

}  // namespace

@implementation HMBlitCommandEncoder

- (void)synchronizeResource:(id<MTLResource>)resource {
  // Host and device memory are one; the resource still has to live until here.
  if ([self isOpen:"synchronizeResource"]) _buffer->_state->Use(resource);
}

- (void)optimizeContentsForGPUAccess:(id<MTLTexture>)texture {
  if ([self isOpen:"optimizeContentsForGPUAccess"]) _buffer->_state->Use(texture);
}
- (void)optimizeContentsForGPUAccess:(id<MTLTexture>)texture
                               slice:(NSUInteger)slice
                               level:(NSUInteger)level {
  [self optimizeContentsForGPUAccess:texture];
}
- (void)optimizeContentsForCPUAccess:(id<MTLTexture>)texture {
  if ([self isOpen:"optimizeContentsForCPUAccess"]) _buffer->_state->Use(texture);
}
- (void)optimizeContentsForCPUAccess:(id<MTLTexture>)texture
                               slice:(NSUInteger)slice
                               level:(NSUInteger)level {
  [self optimizeContentsForCPUAccess:texture];
}

- (void)generateMipmapsForTexture:(id<MTLTexture>)object {
  const char* method = "generateMipmapsForTexture";
  if (![self isOpen:method]) return;
  HMTexture* texture = [self useTexture:object method:method];
  if (!texture) return;
  const std::string wrong = hostmetal::EncodeMipmaps(self, texture);
  if (!wrong.empty()) [self fail:kInvalidResource message:std::string("[") + method + "] " + wrong];
}

- (void)fillBuffer:(id<MTLBuffer>)object range:(NSRange)range value:(uint8_t)value {
  if (![self isOpen:"fillBuffer"]) return;
  HMBuffer* buffer = [self use:object
                        offset:range.location
                        length:range.length
                        method:"fillBuffer"];
  if (!buffer) return;
  Command& command = _buffer->_state->list.Add(CommandType::kFill);
  command.destination = static_cast<char*>(buffer->_allocation.device) + range.location;
  command.bytes = range.length;
  command.value = value;
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  if (![self isOpen:"copyFromBuffer"]) return;
  HMBuffer* source = [self use:sourceBuffer
                        offset:sourceOffset
                        length:size
                        method:"copyFromBuffer: source"];
  if (!source) return;
  HMBuffer* destination = [self use:destinationBuffer
                             offset:destinationOffset
                             length:size
                             method:"copyFromBuffer: destination"];
  if (!destination) return;
  Command& command = _buffer->_state->list.Add(CommandType::kCopy);
  command.source = static_cast<const char*>(source->_allocation.device) + sourceOffset;
  command.destination = static_cast<char*>(destination->_allocation.device) + destinationOffset;
  command.bytes = size;
}

// ---- textures

- (HMTexture*)useTexture:(id<MTLTexture>)object method:(const char*)method {
  auto* texture = (HMTexture*)object;
  if (![texture isKindOfClass:HM_CLASS(HMTexture)] ||
      texture->_device != _buffer->_queue->_device) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the texture is nil or not of this device"];
    return nil;
  }
  _buffer->_state->Use(texture);
  return texture;
}

- (void)addBox:(const HMPixels&)pixels
            to:(void*)to
          from:(const void*)from
           row:(size_t)sourceRow
         image:(size_t)sourceImage
         toRow:(size_t)row
       toImage:(size_t)image {
  hostmetal::CommandList& list = _buffer->_state->list;
  auto* box = static_cast<hostmetal::CopyBox*>(list.arena.Allocate(sizeof(hostmetal::CopyBox)));
  *box = {pixels.rows, pixels.images, sourceRow, sourceImage, row, image};
  Command& command = list.Add(CommandType::kCopyBox);
  command.destination = to;
  command.source = from;
  command.bytes = pixels.row_bytes;
  command.box = box;
}

// Between a buffer and a texture; `toTexture` says which way.
- (void)copy:(const char*)method
       buffer:(id<MTLBuffer>)bufferObject
       offset:(NSUInteger)offset
          row:(NSUInteger)rowStride
        image:(NSUInteger)imageStride
      texture:(id<MTLTexture>)textureObject
        slice:(NSUInteger)slice
        level:(NSUInteger)level
       region:(MTLRegion)region
    toTexture:(BOOL)toTexture
      options:(MTLBlitOption)options {
  if (![self isOpen:method]) return;
  HMTexture* texture = [self useTexture:textureObject method:method];
  if (!texture) return;
  HMPixels p;
  std::string what;
  if (options != MTLBlitOptionNone) {
    what = "options is " + Number(options) + "; no texture here has depth or stencil";
  } else if ([texture locate:region
                       level:level
                       slice:slice
                   rowStride:rowStride
                 imageStride:imageStride
                      pixels:&p
                        what:&what]) {
    NSUInteger length = 0;
    if (p.rows && p.images && p.row_bytes) {
      length = (p.images - 1) * p.image_stride + (p.rows - 1) * p.row_stride + p.row_bytes;
    }
    HMBuffer* buffer = [self use:bufferObject offset:offset length:length method:method];
    if (!buffer || !length) return;
    char* bytes = static_cast<char*>(buffer->_allocation.device) + offset;
    if (toTexture) {
      [self addBox:p
                to:p.texture
              from:bytes
               row:p.row_stride
             image:p.image_stride
             toRow:p.texture_row
           toImage:p.texture_image];
    } else {
      [self addBox:p
                to:bytes
              from:p.texture
               row:p.texture_row
             image:p.texture_image
             toRow:p.row_stride
           toImage:p.image_stride];
    }
    return;
  }
  [self fail:kInvalidResource message:std::string("[") + method + "] " + what];
}

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin
                options:(MTLBlitOption)options {
  [self copy:"copyFromBuffer:toTexture"
         buffer:sourceBuffer
         offset:sourceOffset
            row:sourceBytesPerRow
          image:sourceBytesPerImage
        texture:destinationTexture
          slice:destinationSlice
          level:destinationLevel
         region:{destinationOrigin, sourceSize}
      toTexture:YES
        options:options];
}
- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
           sourceOffset:(NSUInteger)sourceOffset
      sourceBytesPerRow:(NSUInteger)sourceBytesPerRow
    sourceBytesPerImage:(NSUInteger)sourceBytesPerImage
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  [self copyFromBuffer:sourceBuffer
             sourceOffset:sourceOffset
        sourceBytesPerRow:sourceBytesPerRow
      sourceBytesPerImage:sourceBytesPerImage
               sourceSize:sourceSize
                toTexture:destinationTexture
         destinationSlice:destinationSlice
         destinationLevel:destinationLevel
        destinationOrigin:destinationOrigin
                  options:MTLBlitOptionNone];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage
                     options:(MTLBlitOption)options {
  [self copy:"copyFromTexture:toBuffer"
         buffer:destinationBuffer
         offset:destinationOffset
            row:destinationBytesPerRow
          image:destinationBytesPerImage
        texture:sourceTexture
          slice:sourceSlice
          level:sourceLevel
         region:{sourceOrigin, sourceSize}
      toTexture:NO
        options:options];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
                 sourceSlice:(NSUInteger)sourceSlice
                 sourceLevel:(NSUInteger)sourceLevel
                sourceOrigin:(MTLOrigin)sourceOrigin
                  sourceSize:(MTLSize)sourceSize
                    toBuffer:(id<MTLBuffer>)destinationBuffer
           destinationOffset:(NSUInteger)destinationOffset
      destinationBytesPerRow:(NSUInteger)destinationBytesPerRow
    destinationBytesPerImage:(NSUInteger)destinationBytesPerImage {
  [self copyFromTexture:sourceTexture
                   sourceSlice:sourceSlice
                   sourceLevel:sourceLevel
                  sourceOrigin:sourceOrigin
                    sourceSize:sourceSize
                      toBuffer:destinationBuffer
             destinationOffset:destinationOffset
        destinationBytesPerRow:destinationBytesPerRow
      destinationBytesPerImage:destinationBytesPerImage
                       options:MTLBlitOptionNone];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
           sourceOrigin:(MTLOrigin)sourceOrigin
             sourceSize:(MTLSize)sourceSize
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
      destinationOrigin:(MTLOrigin)destinationOrigin {
  const char* method = "copyFromTexture:toTexture";
  if (![self isOpen:method]) return;
  HMTexture* source = [self useTexture:sourceTexture method:method];
  HMTexture* destination = source ? [self useTexture:destinationTexture method:method] : nil;
  if (!destination) return;
  HMPixels from, to;
  std::string what = "the textures' pixels have " + Number(source->_layout.pixel_bytes) + " and " +
                     Number(destination->_layout.pixel_bytes) + " bytes";
  if (source->_layout.pixel_bytes != destination->_layout.pixel_bytes ||
      ![source locate:{sourceOrigin, sourceSize}
                level:sourceLevel
                slice:sourceSlice
            rowStride:0
          imageStride:0
               pixels:&from
                 what:&what] ||
      ![destination locate:{destinationOrigin, sourceSize}
                     level:destinationLevel
                     slice:destinationSlice
                 rowStride:0
               imageStride:0
                    pixels:&to
                      what:&what]) {
    [self fail:kInvalidResource message:std::string("[") + method + "] " + what];
    return;
  }
  [self addBox:from
            to:to.texture
          from:from.texture
           row:from.texture_row
         image:from.texture_image
         toRow:to.texture_row
       toImage:to.texture_image];
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture
            sourceSlice:(NSUInteger)sourceSlice
            sourceLevel:(NSUInteger)sourceLevel
              toTexture:(id<MTLTexture>)destinationTexture
       destinationSlice:(NSUInteger)destinationSlice
       destinationLevel:(NSUInteger)destinationLevel
             sliceCount:(NSUInteger)sliceCount
             levelCount:(NSUInteger)levelCount {
  const char* method = "copyFromTexture:toTexture";
  if (![self isOpen:method]) return;
  HMTexture* source = [self useTexture:sourceTexture method:method];
  HMTexture* destination = source ? [self useTexture:destinationTexture method:method] : nil;
  if (!destination) return;
  const metallib_texture& have = source->_layout;
  if (levelCount > have.levels || sliceCount > have.array_length) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] " + Number(levelCount) + " levels of " +
                Number(sliceCount) + " slices of a texture with " + Number(have.levels) +
                " levels and " + Number(have.array_length) + " slices"];
    return;
  }
  for (NSUInteger i = 0; i < levelCount; ++i) {
    const MTLSize size = hostmetal::SizeAt(source->_layout, sourceLevel + i);
    const MTLSize other = hostmetal::SizeAt(destination->_layout, destinationLevel + i);
    if (memcmp(&size, &other, sizeof size) != 0) {
      [self fail:kInvalidResource
          message:std::string("[") + method + "] level " + Number(sourceLevel + i) + " is " +
                  Words(size) + " and level " + Number(destinationLevel + i) +
                  " of the destination " + Words(other)];
      return;
    }
    for (NSUInteger slice = 0; slice < sliceCount; ++slice) {
      [self copyFromTexture:source
                sourceSlice:sourceSlice + slice
                sourceLevel:sourceLevel + i
               sourceOrigin:MTLOriginMake(0, 0, 0)
                 sourceSize:size
                  toTexture:destination
           destinationSlice:destinationSlice + slice
           destinationLevel:destinationLevel + i
          destinationOrigin:MTLOriginMake(0, 0, 0)];
    }
  }
}
- (void)copyFromTexture:(id<MTLTexture>)sourceTexture toTexture:(id<MTLTexture>)destinationTexture {
  const char* method = "copyFromTexture:toTexture";
  if (![self isOpen:method]) return;
  HMTexture* source = [self useTexture:sourceTexture method:method];
  HMTexture* destination = source ? [self useTexture:destinationTexture method:method] : nil;
  if (!destination) return;
  const metallib_texture &a = source->_layout, &b = destination->_layout;
  if (a.width != b.width || a.height != b.height || a.depth != b.depth || a.levels != b.levels ||
      a.array_length != b.array_length) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the textures differ in size, levels or slices"];
    return;
  }
  [self copyFromTexture:source
            sourceSlice:0
            sourceLevel:0
              toTexture:destination
       destinationSlice:0
       destinationLevel:0
             sliceCount:a.array_length
             levelCount:a.levels];
}
- (void)synchronizeTexture:(id<MTLTexture>)texture slice:(NSUInteger)slice level:(NSUInteger)level {
  if ([self isOpen:"synchronizeTexture"]) [self useTexture:texture method:"synchronizeTexture"];
}

// ---- indirect command buffers

// The commands of a buffer, which has the range; nullptr after an error.
- (hostmetal::IndirectCommands*)useCommands:(id<MTLIndirectCommandBuffer>)object
                                      range:(NSRange)range
                                     method:(const char*)method {
  HMIndirectCommandBuffer* buffer = [self useCommands:object method:method];
  if (!buffer) return nullptr;
  const std::string wrong = buffer->_commands->Outside(range);
  if (wrong.empty()) return buffer->_commands;
  [self fail:kInvalidResource message:std::string("[") + method + "] " + wrong];
  return nullptr;
}
- (void)resetCommandsInBuffer:(id<MTLIndirectCommandBuffer>)buffer withRange:(NSRange)range {
  const char* method = "resetCommandsInBuffer";
  if (![self isOpen:method]) return;
  auto* commands = [self useCommands:buffer range:range method:method];
  if (!commands) return;
  _buffer->_state->list.AddCall([=](hostmetal::CommandList&, hostmetal::Stream&) {
    commands->Reset(range);
    return hostmetal::Failure{};
  });
}
- (void)copyIndirectCommandBuffer:(id<MTLIndirectCommandBuffer>)source
                      sourceRange:(NSRange)range
                      destination:(id<MTLIndirectCommandBuffer>)destination
                 destinationIndex:(NSUInteger)index {
  const char* method = "copyIndirectCommandBuffer";
  if (![self isOpen:method]) return;
  auto* from = [self useCommands:source range:range method:method];
  if (!from) return;
  auto* to = [self useCommands:destination range:NSMakeRange(index, range.length) method:method];
  if (!to) return;
  if (!from->Alike(*to)) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] the two buffers' descriptors differ"];
    return;
  }
  _buffer->_state->list.AddCall([=](hostmetal::CommandList&, hostmetal::Stream&) {
    to->Put(index, from->Get(range));
    return hostmetal::Failure{};
  });
}
- (void)optimizeIndirectCommandBuffer:(id<MTLIndirectCommandBuffer>)buffer
                            withRange:(NSRange)range {
  const char* method = "optimizeIndirectCommandBuffer";
  if ([self isOpen:method]) [self useCommands:buffer range:range method:method];
}

// ---- counters

- (void)sampleCountersInBuffer:(id<MTLCounterSampleBuffer>)samples
                 atSampleIndex:(NSUInteger)index
                   withBarrier:(BOOL)barrier {
  hostmetal::EncodeSample(self, samples, index);
}
- (void)resolveCounters:(id<MTLCounterSampleBuffer>)object
                inRange:(NSRange)range
      destinationBuffer:(id<MTLBuffer>)destinationBuffer
      destinationOffset:(NSUInteger)destinationOffset {
  const char* method = "resolveCounters";
  if (![self isOpen:method]) return;
  auto* samples = (HMCounterSampleBuffer*)object;
  if (![samples isKindOfClass:HM_CLASS(HMCounterSampleBuffer)] ||
      samples->_device != _buffer->_queue->_device || range.location > samples->_count ||
      range.length > samples->_count - range.location) {
    [self fail:kInvalidResource
        message:std::string("[") + method + "] samples " + Number(range.location) + " to " +
                Number(range.location + range.length) +
                "; the sample buffer is nil, not of this device or shorter"];
    return;
  }
  const size_t bytes = range.length * sizeof(MTLCounterResultTimestamp);
  HMBuffer* buffer = [self use:destinationBuffer
                        offset:destinationOffset
                        length:bytes
                        method:method];
  if (!buffer || !bytes) return;
  hostmetal::CommandList& list = _buffer->_state->list;
  _buffer->_state->Use(samples);
  auto* times = static_cast<uint64_t*>(list.arena.Allocate(bytes));
  char* destination = static_cast<char*>(buffer->_allocation.device) + destinationOffset;
  list.AddCall([=](hostmetal::CommandList&, hostmetal::Stream& stream) {
    // A GPU's samples are there when the earlier work is done.
    if (hostmetal::Failure failure = stream.Finish()) return failure;
    for (NSUInteger i = 0; i < range.length; ++i) {
      times[i] = samples->_slots[range.location + i].load(std::memory_order_relaxed);
    }
    return stream.Copy(destination, times, bytes);
  });
}

@end
