// MTLTexture, MTLSamplerState and their descriptors. All pixels lie in rows, level after level,
// slice after slice.
#include <string.h>

#include <algorithm>

#include "hostmetal/src/errors.h"
#include "hostmetal/src/texture.h"

namespace {

struct Format {
  MTLPixelFormat format;
  metallib_component component;
  uint32_t components;
  uint32_t flags;
};
constexpr Format kFormats[] = {
    {MTLPixelFormatA8Unorm, METALLIB_UNORM8, 1, METALLIB_TEXTURE_ALPHA_ONLY},
    {MTLPixelFormatR8Unorm, METALLIB_UNORM8, 1, 0},
    {MTLPixelFormatR8Unorm_sRGB, METALLIB_UNORM8, 1, METALLIB_TEXTURE_SRGB},
    {MTLPixelFormatR8Snorm, METALLIB_SNORM8, 1, 0},
    {MTLPixelFormatR8Uint, METALLIB_UINT8, 1, 0},
    {MTLPixelFormatR8Sint, METALLIB_SINT8, 1, 0},
    {MTLPixelFormatR16Unorm, METALLIB_UNORM16, 1, 0},
    {MTLPixelFormatR16Snorm, METALLIB_SNORM16, 1, 0},
    {MTLPixelFormatR16Uint, METALLIB_UINT16, 1, 0},
    {MTLPixelFormatR16Sint, METALLIB_SINT16, 1, 0},
    {MTLPixelFormatR16Float, METALLIB_FLOAT16, 1, 0},
    {MTLPixelFormatRG8Unorm, METALLIB_UNORM8, 2, 0},
    {MTLPixelFormatRG8Unorm_sRGB, METALLIB_UNORM8, 2, METALLIB_TEXTURE_SRGB},
    {MTLPixelFormatRG8Snorm, METALLIB_SNORM8, 2, 0},
    {MTLPixelFormatRG8Uint, METALLIB_UINT8, 2, 0},
    {MTLPixelFormatRG8Sint, METALLIB_SINT8, 2, 0},
    {MTLPixelFormatR32Uint, METALLIB_UINT32, 1, 0},
    {MTLPixelFormatR32Sint, METALLIB_SINT32, 1, 0},
    {MTLPixelFormatR32Float, METALLIB_FLOAT32, 1, 0},
    {MTLPixelFormatRG16Unorm, METALLIB_UNORM16, 2, 0},
    {MTLPixelFormatRG16Snorm, METALLIB_SNORM16, 2, 0},
    {MTLPixelFormatRG16Uint, METALLIB_UINT16, 2, 0},
    {MTLPixelFormatRG16Sint, METALLIB_SINT16, 2, 0},
    {MTLPixelFormatRG16Float, METALLIB_FLOAT16, 2, 0},
    {MTLPixelFormatRGBA8Unorm, METALLIB_UNORM8, 4, 0},
    {MTLPixelFormatRGBA8Unorm_sRGB, METALLIB_UNORM8, 4, METALLIB_TEXTURE_SRGB},
    {MTLPixelFormatRGBA8Snorm, METALLIB_SNORM8, 4, 0},
    {MTLPixelFormatRGBA8Uint, METALLIB_UINT8, 4, 0},
    {MTLPixelFormatRGBA8Sint, METALLIB_SINT8, 4, 0},
    {MTLPixelFormatBGRA8Unorm, METALLIB_UNORM8, 4, METALLIB_TEXTURE_BGRA},
    {MTLPixelFormatBGRA8Unorm_sRGB, METALLIB_UNORM8, 4,
     METALLIB_TEXTURE_BGRA | METALLIB_TEXTURE_SRGB},
    {MTLPixelFormatRG32Uint, METALLIB_UINT32, 2, 0},
    {MTLPixelFormatRG32Sint, METALLIB_SINT32, 2, 0},
    {MTLPixelFormatRG32Float, METALLIB_FLOAT32, 2, 0},
    {MTLPixelFormatRGBA16Unorm, METALLIB_UNORM16, 4, 0},
    {MTLPixelFormatRGBA16Snorm, METALLIB_SNORM16, 4, 0},
    {MTLPixelFormatRGBA16Uint, METALLIB_UINT16, 4, 0},
    {MTLPixelFormatRGBA16Sint, METALLIB_SINT16, 4, 0},
    {MTLPixelFormatRGBA16Float, METALLIB_FLOAT16, 4, 0},
    {MTLPixelFormatRGBA32Uint, METALLIB_UINT32, 4, 0},
    {MTLPixelFormatRGBA32Sint, METALLIB_SINT32, 4, 0},
    {MTLPixelFormatRGBA32Float, METALLIB_FLOAT32, 4, 0},
    {MTLPixelFormatDepth16Unorm, METALLIB_UNORM16, 1, 0},
    {MTLPixelFormatDepth32Float, METALLIB_FLOAT32, 1, 0},
};
uint32_t Packed(MTLTextureSwizzleChannels c) {
  return c.red | c.green << 8 | c.blue << 16 | uint32_t(c.alpha) << 24;
}
MTLTextureSwizzleChannels Unpacked(uint32_t swizzle) {
  auto channel = [&](int i) { return MTLTextureSwizzle(swizzle >> 8 * i & 0xff); };
  return {channel(0), channel(1), channel(2), channel(3)};
}
const uint32_t kNoSwizzle = Packed(MTLTextureSwizzleChannelsDefault);

// False where a channel is none of MTLTextureSwizzle's.
bool SetSwizzle(uint32_t swizzle, metallib_texture* t) {
  for (int i = 0; i < 4; ++i) {
    if ((swizzle >> 8 * i & 0xff) > MTLTextureSwizzleAlpha) return false;
  }
  t->swizzle = swizzle;
  t->flags &= ~uint32_t(METALLIB_TEXTURE_SWIZZLED);
  if (swizzle != kNoSwizzle) t->flags |= METALLIB_TEXTURE_SWIZZLED;
  return true;
}

constexpr uint32_t kBytes[] = {1, 1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4};  // of each metallib_component

const Format* Find(MTLPixelFormat format) {
  for (const Format& f : kFormats) {
    if (f.format == format) return &f;
  }
  return nullptr;
}

constexpr NSUInteger kMaxSize = 16384, kMaxDepth = 2048, kMaxArray = 2048;
constexpr NSUInteger kMaxBufferWidth = NSUInteger{1} << 28;
constexpr NSUInteger kRowAlignment = 16;  // of textures over a buffer

NSUInteger AtLevel(NSUInteger size, NSUInteger level) {
  return std::max<NSUInteger>(1, size >> level);
}

bool IsCube(MTLTextureType type) {
  return type == MTLTextureTypeCube || type == MTLTextureTypeCubeArray;
}
bool IsArray(MTLTextureType type) {
  return type == MTLTextureType1DArray || type == MTLTextureType2DArray ||
         type == MTLTextureTypeCubeArray;
}

// Whether a texture of this kind can be made; fills in all of `t` but where the pixels lie.
bool Describe(MTLTextureDescriptor* d, metallib_texture* t) {
  const Format* format = Find([d pixelFormat]);
  MTLTextureType type = [d textureType];
  NSUInteger width = [d width], height = [d height], depth = [d depth];
  NSUInteger array = [d arrayLength], levels = [d mipmapLevelCount];
  bool is_1d = type == MTLTextureType1D || type == MTLTextureType1DArray;
  bool is_buffer = type == MTLTextureTypeTextureBuffer;
  if (!format || [d sampleCount] != 1 || [d storageMode] == MTLStorageModeMemoryless ||
      !(is_1d || is_buffer || type == MTLTextureType2D || type == MTLTextureType2DArray ||
        type == MTLTextureType3D || (IsCube(type) && width == height))) {
    return false;
  }
  NSUInteger limit = is_buffer ? kMaxBufferWidth : type == MTLTextureType3D ? kMaxDepth : kMaxSize;
  if (width == 0 || height == 0 || depth == 0 || width > limit || height > limit ||
      depth > kMaxDepth || (depth > 1 && type != MTLTextureType3D) ||
      ((is_1d || is_buffer) && height > 1) || array == 0 || array > kMaxArray ||
      (array > 1 && !IsArray(type)) || levels == 0 ||
      ((std::max({width, height, depth}) >> (levels - 1)) == 0) ||
      (levels > 1 && (is_1d || is_buffer)) || levels > METALLIB_MAX_LEVELS) {
    return false;
  }
  *t = {};
  t->component = format->component;
  t->components = format->components;
  t->flags = format->flags;
  t->pixel_bytes = format->components * kBytes[format->component];
  t->width = uint32_t(width);
  t->height = uint32_t(height);
  t->depth = uint32_t(depth);
  t->array_length = uint32_t(IsCube(type) ? 6 * array : array);
  t->levels = uint32_t(levels);
  const uint32_t swizzle = Packed([d swizzle]);
  constexpr MTLTextureUsage kWrites =
      MTLTextureUsageShaderWrite | MTLTextureUsageShaderAtomic | MTLTextureUsageRenderTarget;
  return SetSwizzle(swizzle, t) && (swizzle == kNoSwizzle || !([d usage] & kWrites));
}

// Lays the levels out and returns the bytes that they take.
NSUInteger Lay(metallib_texture* t) {
  NSUInteger size = 0;
  for (uint32_t i = 0; i < t->levels; ++i) {
    auto& level = t->level[i];
    level.offset = size;
    level.row_bytes = AtLevel(t->width, i) * t->pixel_bytes;
    level.image_bytes = level.row_bytes * AtLevel(t->height, i);
    size += level.image_bytes * std::max<NSUInteger>(AtLevel(t->depth, i), t->array_length);
    size = (size + 15) / 16 * 16;
  }
  return size;
}

}  // namespace

namespace hostmetal {

MTLTextureType TextureType(const char* type_name) {
  static constexpr std::pair<const char*, MTLTextureType> kNames[] = {
      {"texture1d<", MTLTextureType1D},     {"texture1d_array<", MTLTextureType1DArray},
      {"texture2d<", MTLTextureType2D},     {"texture2d_array<", MTLTextureType2DArray},
      {"texture3d<", MTLTextureType3D},     {"texture_buffer<", MTLTextureTypeTextureBuffer},
      {"texturecube<", MTLTextureTypeCube}, {"texturecube_array<", MTLTextureTypeCubeArray},
      {"depth2d<", MTLTextureType2D},       {"depth2d_array<", MTLTextureType2DArray},
      {"depthcube<", MTLTextureTypeCube},   {"depthcube_array<", MTLTextureTypeCubeArray},
  };
  for (const auto& [name, type] : kNames) {
    if (strncmp(type_name, name, strlen(name)) == 0) return type;
  }
  return MTLTextureType2D;
}

std::string TextureComponent(const char* type_name) {
  std::string name(type_name);
  size_t open = name.find('<');
  if (open == std::string::npos) return "";
  return name.substr(open + 1, name.find_first_of(",>", open) - open - 1);
}

MTLSize SizeAt(const metallib_texture& texture, NSUInteger level) {
  level = std::min<NSUInteger>(level, 31);
  return MTLSizeMake(AtLevel(texture.width, level), AtLevel(texture.height, level),
                     AtLevel(texture.depth, level));
}

NSUInteger TextureBytes(MTLTextureDescriptor* descriptor) {
  metallib_texture layout;
  return descriptor && Describe(descriptor, &layout) ? Lay(&layout) : 0;
}

}  // namespace hostmetal

@implementation MTLTextureDescriptor
- (id)init {
  self = [super init];
  if (self) {
    _textureType = MTLTextureType2D;
    _pixelFormat = MTLPixelFormatRGBA8Unorm;
    _width = _height = _depth = 1;
    _mipmapLevelCount = _sampleCount = _arrayLength = 1;
    _usage = MTLTextureUsageShaderRead;
    _allowGPUOptimizedContents = YES;
    _swizzle = MTLTextureSwizzleChannelsDefault;
  }
  return self;
}
+ (MTLTextureDescriptor*)texture2DDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                      width:(NSUInteger)width
                                                     height:(NSUInteger)height
                                                  mipmapped:(BOOL)mipmapped {
  MTLTextureDescriptor* descriptor = [[[self alloc] init] autorelease];
  [descriptor setPixelFormat:pixelFormat];
  [descriptor setWidth:width];
  [descriptor setHeight:height];
  NSUInteger levels = 1;
  while (mipmapped && std::max(width, height) >> levels) ++levels;
  [descriptor setMipmapLevelCount:levels];
  return descriptor;
}
+ (MTLTextureDescriptor*)textureCubeDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                         size:(NSUInteger)size
                                                    mipmapped:(BOOL)mipmapped {
  MTLTextureDescriptor* descriptor = [self texture2DDescriptorWithPixelFormat:pixelFormat
                                                                        width:size
                                                                       height:size
                                                                    mipmapped:mipmapped];
  [descriptor setTextureType:MTLTextureTypeCube];
  return descriptor;
}
+ (MTLTextureDescriptor*)textureBufferDescriptorWithPixelFormat:(MTLPixelFormat)pixelFormat
                                                          width:(NSUInteger)width
                                                resourceOptions:(MTLResourceOptions)resourceOptions
                                                          usage:(MTLTextureUsage)usage {
  MTLTextureDescriptor* descriptor = [[[self alloc] init] autorelease];
  [descriptor setTextureType:MTLTextureTypeTextureBuffer];
  [descriptor setPixelFormat:pixelFormat];
  [descriptor setWidth:width];
  [descriptor setResourceOptions:resourceOptions];
  [descriptor setUsage:usage];
  return descriptor;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLTextureDescriptor* copy = [[MTLTextureDescriptor alloc] init];
  [copy setTextureType:_textureType];
  [copy setPixelFormat:_pixelFormat];
  [copy setWidth:_width];
  [copy setHeight:_height];
  [copy setDepth:_depth];
  [copy setMipmapLevelCount:_mipmapLevelCount];
  [copy setSampleCount:_sampleCount];
  [copy setArrayLength:_arrayLength];
  [copy setResourceOptions:_resourceOptions];
  [copy setUsage:_usage];
  [copy setAllowGPUOptimizedContents:_allowGPUOptimizedContents];
  [copy setSwizzle:_swizzle];
  [copy setCompressionType:_compressionType];
  return copy;
}
@synthesize textureType = _textureType;
@synthesize pixelFormat = _pixelFormat;
@synthesize width = _width;
@synthesize height = _height;
@synthesize depth = _depth;
@synthesize mipmapLevelCount = _mipmapLevelCount;
@synthesize sampleCount = _sampleCount;
@synthesize arrayLength = _arrayLength;
@synthesize resourceOptions = _resourceOptions;
@synthesize usage = _usage;
@synthesize allowGPUOptimizedContents = _allowGPUOptimizedContents;
@synthesize swizzle = _swizzle;
@synthesize compressionType = _compressionType;
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
@end

@implementation HMTexture

- (id)initWithDevice:(HMDevice*)device descriptor:(MTLTextureDescriptor*)descriptor {
  self = [super init];
  if (self) {
    _device = device;
    _textureType = [descriptor textureType];
    _pixelFormat = [descriptor pixelFormat];
    _usage = [descriptor usage];
    _options = [descriptor resourceOptions];
  }
  return self;
}

+ (HMTexture*)newIn:(HMBuffer*)memory descriptor:(MTLTextureDescriptor*)descriptor {
  metallib_texture layout;
  if (!memory || !Describe(descriptor, &layout)) return nil;
  Lay(&layout);
  HMTexture* texture = [[HMTexture alloc] initWithDevice:memory->_device descriptor:descriptor];
  texture->_layout = layout;
  texture->_layout.address = static_cast<char*>(memory->_allocation.device);
  texture->_memory = [memory retain];
  return texture;
}

+ (HMTexture*)newOn:(HMDevice*)device descriptor:(MTLTextureDescriptor*)descriptor {
  const NSUInteger size = hostmetal::TextureBytes(descriptor);
  id<MTLBuffer> memory = size ? [device newBufferWithLength:size options:0] : nil;
  HMTexture* texture = [self newIn:(HMBuffer*)memory descriptor:descriptor];
  [memory release];
  return texture;
}

+ (HMTexture*)newOver:(HMBuffer*)buffer
           descriptor:(MTLTextureDescriptor*)descriptor
               offset:(NSUInteger)offset
          bytesPerRow:(NSUInteger)bytesPerRow {
  metallib_texture layout;
  if (!descriptor || !Describe(descriptor, &layout) || layout.levels > 1 ||
      layout.array_length > 1 || layout.depth > 1 || offset % kRowAlignment) {
    return nil;
  }
  NSUInteger row = NSUInteger(layout.width) * layout.pixel_bytes;
  if (bytesPerRow == 0 && layout.height == 1) bytesPerRow = row;
  if (bytesPerRow < row || (layout.height > 1 && bytesPerRow % kRowAlignment)) return nil;
  NSUInteger size = bytesPerRow * (layout.height - 1) + row;
  if (offset > buffer->_length || size > buffer->_length - offset) return nil;
  layout.level[0] = {0, bytesPerRow, bytesPerRow * layout.height};
  layout.address = static_cast<char*>(buffer->_allocation.device) + offset;
  HMTexture* texture = [[HMTexture alloc] initWithDevice:buffer->_device descriptor:descriptor];
  texture->_layout = layout;
  texture->_memory = [buffer retain];
  texture->_options = buffer->_options;
  texture->_overBuffer = YES;
  texture->_bufferOffset = offset;
  return texture;
}

- (void)dealloc {
  [_parent release];
  [super dealloc];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"<MTLTexture %p %u x %u x %u, format %lu '%@'>", self,
                                    _layout.width, _layout.height, _layout.depth,
                                    (unsigned long)_pixelFormat, [self label] ? [self label] : @""];
}

- (id<MTLDevice>)device {
  return _device;
}
- (MTLResourceID)gpuResourceID {
  return {reinterpret_cast<uint64_t>(&_layout)};
}
- (MTLTextureType)textureType {
  return _textureType;
}
- (MTLPixelFormat)pixelFormat {
  return _pixelFormat;
}
- (NSUInteger)width {
  return _layout.width;
}
- (NSUInteger)height {
  return _layout.height;
}
- (NSUInteger)depth {
  return _layout.depth;
}
- (NSUInteger)mipmapLevelCount {
  return _layout.levels;
}
- (NSUInteger)sampleCount {
  return 1;
}
- (NSUInteger)arrayLength {
  return IsCube(_textureType) ? _layout.array_length / 6 : _layout.array_length;
}
- (MTLTextureUsage)usage {
  return _usage;
}
- (BOOL)isFramebufferOnly {
  return NO;
}
- (BOOL)allowGPUOptimizedContents {
  return YES;
}
- (BOOL)isShareable {
  return NO;
}
- (BOOL)isSparse {
  return NO;
}
- (MTLTextureSwizzleChannels)swizzle {
  return Unpacked(_layout.swizzle);
}
- (MTLTextureCompressionType)compressionType {
  return MTLTextureCompressionTypeLossless;
}
- (id<MTLTexture>)parentTexture {
  return _parent;
}
- (id<MTLResource>)rootResource {
  if (_parent) return _parent;
  return [self buffer];
}
- (NSUInteger)parentRelativeLevel {
  return _parentLevel;
}
- (NSUInteger)parentRelativeSlice {
  return _parentSlice;
}
- (id<MTLBuffer>)buffer {
  return _overBuffer ? _memory : nil;
}
- (NSUInteger)bufferOffset {
  return _bufferOffset;
}
- (NSUInteger)bufferBytesPerRow {
  return _overBuffer ? _layout.level[0].row_bytes : 0;
}
- (MTLCPUCacheMode)cpuCacheMode {
  return hostmetal::CpuCacheMode(_options);
}
- (MTLStorageMode)storageMode {
  return hostmetal::StorageMode(_options);
}
- (MTLHazardTrackingMode)hazardTrackingMode {
  auto mode = hostmetal::HazardTrackingMode(_options);
  return mode == MTLHazardTrackingModeUntracked ? MTLHazardTrackingModeUntracked
                                                : MTLHazardTrackingModeTracked;
}
- (MTLResourceOptions)resourceOptions {
  return _options;
}
- (NSUInteger)allocatedSize {
  return [_memory allocatedSize];
}

- (BOOL)locate:(MTLRegion)region
          level:(NSUInteger)level
          slice:(NSUInteger)slice
      rowStride:(NSUInteger)rowStride
    imageStride:(NSUInteger)imageStride
         pixels:(HMPixels*)pixels
           what:(std::string*)what {
  MTLOrigin o = region.origin;
  MTLSize s = region.size;
  if (level >= _layout.levels || slice >= _layout.array_length) {
    *what = "level " + std::to_string(level) + ", slice " + std::to_string(slice) +
            " of a texture with " + std::to_string(_layout.levels) + " levels and " +
            std::to_string(_layout.array_length) + " slices";
    return NO;
  }
  NSUInteger size[3] = {AtLevel(_layout.width, level), AtLevel(_layout.height, level),
                        AtLevel(_layout.depth, level)};
  NSUInteger first[3] = {o.x, o.y, o.z}, count[3] = {s.width, s.height, s.depth};
  for (int i = 0; i < 3; ++i) {
    if (first[i] > size[i] || count[i] > size[i] - first[i]) {
      *what = std::string(1, "xyz"[i]) + " " + std::to_string(first[i]) + " to " +
              std::to_string(first[i] + count[i]) + " of " + std::to_string(size[i]) +
              " in level " + std::to_string(level);
      return NO;
    }
  }
  NSUInteger row = s.width * _layout.pixel_bytes;
  if (rowStride == 0) rowStride = row;
  if (imageStride == 0) imageStride = rowStride * s.height;
  if ((rowStride < row && s.height > 1) || (imageStride < row && s.depth > 1)) {
    *what = "rows of " + std::to_string(row) + " bytes with bytesPerRow " +
            std::to_string(rowStride) + " and bytesPerImage " + std::to_string(imageStride);
    return NO;
  }
  const auto& l = _layout.level[level];
  pixels->texture = _layout.address + l.offset + (o.z + slice) * l.image_bytes + o.y * l.row_bytes +
                    o.x * _layout.pixel_bytes;
  pixels->texture_row = l.row_bytes;
  pixels->texture_image = l.image_bytes;
  pixels->row_bytes = row;
  pixels->rows = s.height;
  pixels->images = s.depth;
  pixels->row_stride = rowStride;
  pixels->image_stride = imageStride;
  return YES;
}

- (BOOL)host:(const char*)method
         region:(MTLRegion)region
          level:(NSUInteger)level
          slice:(NSUInteger)slice
      rowStride:(NSUInteger)rowStride
    imageStride:(NSUInteger)imageStride
         pixels:(HMPixels*)pixels {
  std::string what = "the texture has MTLStorageModePrivate; copy with a blit encoder";
  if ([self storageMode] != MTLStorageModePrivate && [self locate:region
                                                               level:level
                                                               slice:slice
                                                           rowStride:rowStride
                                                         imageStride:imageStride
                                                              pixels:pixels
                                                                what:&what]) {
    return YES;
  }
  fprintf(stderr, "[%s] %s\n", method, what.c_str());
  return NO;
}

- (void)getBytes:(void*)bytes
      bytesPerRow:(NSUInteger)bytesPerRow
    bytesPerImage:(NSUInteger)bytesPerImage
       fromRegion:(MTLRegion)region
      mipmapLevel:(NSUInteger)level
            slice:(NSUInteger)slice {
  HMPixels p;
  if (![self host:"getBytes"
               region:region
                level:level
                slice:slice
            rowStride:bytesPerRow
          imageStride:bytesPerImage
               pixels:&p]) {
    return;
  }
  for (size_t z = 0; z < p.images; ++z) {
    for (size_t y = 0; y < p.rows; ++y) {
      memcpy(static_cast<char*>(bytes) + z * p.image_stride + y * p.row_stride,
             p.texture + z * p.texture_image + y * p.texture_row, p.row_bytes);
    }
  }
}
- (void)getBytes:(void*)bytes
     bytesPerRow:(NSUInteger)bytesPerRow
      fromRegion:(MTLRegion)region
     mipmapLevel:(NSUInteger)level {
  [self getBytes:bytes
        bytesPerRow:bytesPerRow
      bytesPerImage:0
         fromRegion:region
        mipmapLevel:level
              slice:0];
}
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
                slice:(NSUInteger)slice
            withBytes:(const void*)bytes
          bytesPerRow:(NSUInteger)bytesPerRow
        bytesPerImage:(NSUInteger)bytesPerImage {
  HMPixels p;
  if (![self host:"replaceRegion"
               region:region
                level:level
                slice:slice
            rowStride:bytesPerRow
          imageStride:bytesPerImage
               pixels:&p]) {
    return;
  }
  for (size_t z = 0; z < p.images; ++z) {
    for (size_t y = 0; y < p.rows; ++y) {
      memcpy(p.texture + z * p.texture_image + y * p.texture_row,
             static_cast<const char*>(bytes) + z * p.image_stride + y * p.row_stride, p.row_bytes);
    }
  }
}
- (void)replaceRegion:(MTLRegion)region
          mipmapLevel:(NSUInteger)level
            withBytes:(const void*)bytes
          bytesPerRow:(NSUInteger)bytesPerRow {
  [self replaceRegion:region
          mipmapLevel:level
                slice:0
            withBytes:bytes
          bytesPerRow:bytesPerRow
        bytesPerImage:0];
}

- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)format {
  return [self newTextureViewWithPixelFormat:format
                                 textureType:_textureType
                                      levels:NSMakeRange(0, _layout.levels)
                                      slices:NSMakeRange(0, _layout.array_length)];
}
- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                    textureType:(MTLTextureType)type
                                         levels:(NSRange)levels
                                         slices:(NSRange)slices {
  return [self newTextureViewWithPixelFormat:pixelFormat
                                 textureType:type
                                      levels:levels
                                      slices:slices
                                     swizzle:MTLTextureSwizzleChannelsDefault];
}
- (id<MTLTexture>)newTextureViewWithPixelFormat:(MTLPixelFormat)pixelFormat
                                    textureType:(MTLTextureType)type
                                         levels:(NSRange)levels
                                         slices:(NSRange)slices
                                        swizzle:(MTLTextureSwizzleChannels)wanted {
  const Format* format = Find(pixelFormat);
  auto kind = [](MTLTextureType t) {  // types that may show each other's pixels
    return t == MTLTextureType1DArray                ? MTLTextureType1D
           : t == MTLTextureType2DArray || IsCube(t) ? MTLTextureType2D
                                                     : t;
  };
  bool fits = IsCube(type) ? slices.length % 6 == 0 && (slices.length == 6 || IsArray(type)) &&
                                 _layout.width == _layout.height
                           : slices.length == 1 || IsArray(type);
  if (!format || format->components * kBytes[format->component] != _layout.pixel_bytes ||
      kind(type) != kind(_textureType) || levels.length == 0 || slices.length == 0 ||
      levels.location + levels.length > _layout.levels ||
      slices.location + slices.length > _layout.array_length || !fits) {
    return nil;
  }
  HMTexture* view = [[HMTexture alloc] init];
  view->_device = _device;
  view->_memory = [_memory retain];
  view->_parent = [self retain];
  view->_parentLevel = levels.location;
  view->_parentSlice = slices.location;
  view->_textureType = type;
  view->_pixelFormat = pixelFormat;
  view->_usage = _usage;
  view->_options = _options;
  metallib_texture& t = view->_layout;
  t = _layout;
  t.component = format->component;
  t.components = format->components;
  t.flags = format->flags;
  uint32_t swizzle = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t what = Packed(wanted) >> 8 * i & 0xff;
    const bool channel = what >= MTLTextureSwizzleRed && what <= MTLTextureSwizzleAlpha;
    swizzle |= (channel ? _layout.swizzle >> 8 * (what - MTLTextureSwizzleRed) & 0xff : what)
               << 8 * i;
  }
  if (!SetSwizzle(swizzle, &t)) {
    [view release];
    return nil;
  }
  t.width = uint32_t(AtLevel(_layout.width, levels.location));
  t.height = uint32_t(AtLevel(_layout.height, levels.location));
  t.depth = uint32_t(AtLevel(_layout.depth, levels.location));
  t.array_length = uint32_t(slices.length);
  t.levels = uint32_t(levels.length);
  for (uint32_t i = 0; i < t.levels; ++i) {
    t.level[i] = _layout.level[levels.location + i];
    t.level[i].offset += slices.location * t.level[i].image_bytes;
  }
  return view;
}

- (HMTexture*)newPlainViewOfType:(MTLTextureType)type level:(NSUInteger)level {
  auto* view =
      (HMTexture*)[self newTextureViewWithPixelFormat:_pixelFormat
                                          textureType:type
                                               levels:NSMakeRange(level, 1)
                                               slices:NSMakeRange(0, _layout.array_length)];
  if (!view) return nil;
  SetSwizzle(kNoSwizzle, &view->_layout);
  view->_usage = MTLTextureUsageUnknown;
  return view;
}

@end

// ---- samplers

@implementation MTLSamplerDescriptor
- (id)init {
  self = [super init];
  if (self) {
    _maxAnisotropy = 1;
    _normalizedCoordinates = YES;
    _lodMaxClamp = __FLT_MAX__;
  }
  return self;
}
- (void)dealloc {
  [_label release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLSamplerDescriptor* copy = [[MTLSamplerDescriptor alloc] init];
  [copy setMinFilter:_minFilter];
  [copy setMagFilter:_magFilter];
  [copy setMipFilter:_mipFilter];
  [copy setMaxAnisotropy:_maxAnisotropy];
  [copy setSAddressMode:_sAddressMode];
  [copy setTAddressMode:_tAddressMode];
  [copy setRAddressMode:_rAddressMode];
  [copy setBorderColor:_borderColor];
  [copy setCompareFunction:_compareFunction];
  [copy setNormalizedCoordinates:_normalizedCoordinates];
  [copy setLodMinClamp:_lodMinClamp];
  [copy setLodMaxClamp:_lodMaxClamp];
  [copy setSupportArgumentBuffers:_supportArgumentBuffers];
  [copy setLabel:_label];
  return copy;
}
@synthesize minFilter = _minFilter;
@synthesize magFilter = _magFilter;
@synthesize mipFilter = _mipFilter;
@synthesize maxAnisotropy = _maxAnisotropy;
@synthesize sAddressMode = _sAddressMode;
@synthesize tAddressMode = _tAddressMode;
@synthesize rAddressMode = _rAddressMode;
@synthesize borderColor = _borderColor;
@synthesize compareFunction = _compareFunction;
@synthesize normalizedCoordinates = _normalizedCoordinates;
@synthesize lodMinClamp = _lodMinClamp;
@synthesize lodMaxClamp = _lodMaxClamp;
@synthesize supportArgumentBuffers = _supportArgumentBuffers;
@synthesize label = _label;
@end

@implementation HMSamplerState
- (id)initWithDevice:(HMDevice*)device descriptor:(MTLSamplerDescriptor*)d {
  self = [super init];
  if (self) {
    _device = device;
    _samplerLabel = [[d label] copy];
    _sampler.address[0] = uint8_t([d sAddressMode]);
    _sampler.address[1] = uint8_t([d tAddressMode]);
    _sampler.address[2] = uint8_t([d rAddressMode]);
    _sampler.mag_filter = uint8_t([d magFilter]);
    _sampler.min_filter = uint8_t([d minFilter]);
    _sampler.mip_filter = uint8_t([d mipFilter]);
    _sampler.border_color = uint8_t([d borderColor]);
    _sampler.pixel_coordinates = ![d normalizedCoordinates];
    _sampler.compare = uint8_t([d compareFunction]);
    _sampler.lod_min = [d lodMinClamp];
    _sampler.lod_max = [d lodMaxClamp];
  }
  return self;
}
- (void)dealloc {
  [_samplerLabel release];
  [super dealloc];
}
- (MTLResourceID)gpuResourceID {
  return {reinterpret_cast<uint64_t>(&_sampler)};
}
- (NSString*)label {
  return _samplerLabel;
}
- (id<MTLDevice>)device {
  return _device;
}
@end
