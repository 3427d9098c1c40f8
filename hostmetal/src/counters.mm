// Counters: times at the start and the end of passes.
#include "hostmetal/src/counters.h"

#include "hostmetal/src/errors.h"

MTLCommonCounter const MTLCommonCounterTimestamp = @"GPUTimestamp";
MTLCommonCounterSet const MTLCommonCounterSetTimestamp = @"timestamp";
NSErrorDomain const MTLCounterErrorDomain = @"MTLCounterErrorDomain";

namespace {

// The limit of Apple's GPUs: 32 KiB.
constexpr NSUInteger kMostSamples = 4096;
constexpr NSUInteger kAttachments = 4;

}  // namespace

@interface HMCounter : HMObject <MTLCounter>
@end
@implementation HMCounter
- (NSString*)name {
  return MTLCommonCounterTimestamp;
}
@end

@interface HMCounterSet : HMObject <MTLCounterSet>
@end
@implementation HMCounterSet
- (NSString*)name {
  return MTLCommonCounterSetTimestamp;
}
- (NSArray<id<MTLCounter>>*)counters {
  return [NSArray arrayWithObject:[[[HMCounter alloc] init] autorelease]];
}
@end

@implementation MTLCounterSampleBufferDescriptor
- (id)init {
  self = [super init];
  if (self) _label = @"";
  return self;
}
- (void)dealloc {
  [_counterSet release];
  [_label release];
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCounterSampleBufferDescriptor* copy = [[MTLCounterSampleBufferDescriptor alloc] init];
  [copy setCounterSet:_counterSet];
  [copy setLabel:_label];
  [copy setStorageMode:_storageMode];
  [copy setSampleCount:_sampleCount];
  return copy;
}
@synthesize counterSet = _counterSet;
@synthesize label = _label;
@synthesize storageMode = _storageMode;
@synthesize sampleCount = _sampleCount;
@end

@implementation HMCounterSampleBuffer
+ (HMCounterSampleBuffer*)newOn:(HMDevice*)device
                     descriptor:(MTLCounterSampleBufferDescriptor*)descriptor
                          error:(NSError**)error {
  const NSUInteger count = [descriptor sampleCount];
  std::string wrong;
  if (![(id)[descriptor counterSet] isKindOfClass:[HMCounterSet class]]) {
    wrong = "the counterSet is nil or not of this device; it has 'timestamp' alone";
  } else if (count == 0 || count > kMostSamples) {
    wrong = "sampleCount is " + std::to_string(count) + "; 1 to " + std::to_string(kMostSamples) +
            " are allowed";
  } else if ([descriptor storageMode] != MTLStorageModeShared) {
    wrong = "the storageMode is not MTLStorageModeShared, and the host resolves the samples";
  }
  if (!wrong.empty()) {
    return hostmetal::Refuse(error, MTLCounterErrorDomain, MTLCounterSampleBufferErrorInvalid,
                             "[newCounterSampleBufferWithDescriptor] " + wrong);
  }
  HMCounterSampleBuffer* made = [[HMCounterSampleBuffer alloc] init];
  made->_device = device;
  made->_label = [[descriptor label] copy];
  made->_count = count;
  made->_slots = new std::atomic<uint64_t>[count];
  for (NSUInteger i = 0; i < count; ++i) made->_slots[i] = MTLCounterErrorValue;
  return made;
}
- (void)dealloc {
  [_label release];
  delete[] _slots;
  [super dealloc];
}
- (id<MTLDevice>)device {
  return _device;
}
- (NSString*)label {
  return _label;
}
- (NSUInteger)sampleCount {
  return _count;
}
- (NSData*)resolveCounterRange:(NSRange)range {
  if (range.location > _count || range.length > _count - range.location) return nil;
  NSMutableData* data =
      [NSMutableData dataWithLength:range.length * sizeof(MTLCounterResultTimestamp)];
  auto* results = static_cast<MTLCounterResultTimestamp*>([data mutableBytes]);
  for (NSUInteger i = 0; i < range.length; ++i) {
    results[i].timestamp = _slots[range.location + i].load(std::memory_order_relaxed);
  }
  return data;
}
@end

// The two kinds of passes have classes of their own that are alike.
#define HM_SAMPLE_ATTACHMENTS(Attachment, Attachments)                                      \
  @implementation Attachment                                                                \
  -(id)init {                                                                               \
    self = [super init];                                                                    \
    if (self) _startOfEncoderSampleIndex = _endOfEncoderSampleIndex = MTLCounterDontSample; \
    return self;                                                                            \
  }                                                                                         \
  -(void)dealloc {                                                                          \
    [_sampleBuffer release];                                                                \
    [super dealloc];                                                                        \
  }                                                                                         \
  -(id)copyWithZone : (NSZone*)zone {                                                       \
    Attachment* copy = [[Attachment alloc] init];                                           \
    [copy setSampleBuffer:_sampleBuffer];                                                   \
    [copy setStartOfEncoderSampleIndex:_startOfEncoderSampleIndex];                         \
    [copy setEndOfEncoderSampleIndex:_endOfEncoderSampleIndex];                             \
    return copy;                                                                            \
  }                                                                                         \
  @synthesize sampleBuffer = _sampleBuffer;                                                 \
  @synthesize startOfEncoderSampleIndex = _startOfEncoderSampleIndex;                       \
  @synthesize endOfEncoderSampleIndex = _endOfEncoderSampleIndex;                           \
  @end                                                                                      \
                                                                                            \
  @implementation Attachments                                                               \
  -(void)dealloc {                                                                          \
    for (Attachment * attachment : _attachments) [attachment release];                      \
    [super dealloc];                                                                        \
  }                                                                                         \
  -(Attachment*)objectAtIndexedSubscript : (NSUInteger)index {                              \
    if (index >= kAttachments) return nil;                                                  \
    if (!_attachments[index]) _attachments[index] = [[Attachment alloc] init];              \
    return _attachments[index];                                                             \
  }                                                                                         \
  -(void)setObject : (Attachment*)attachment atIndexedSubscript : (NSUInteger)index {       \
    if (index >= kAttachments) return;                                                      \
    Attachment* copy = [attachment copy];                                                   \
    [_attachments[index] release];                                                          \
    _attachments[index] = copy;                                                             \
  }                                                                                         \
  @end

HM_SAMPLE_ATTACHMENTS(MTLComputePassSampleBufferAttachmentDescriptor,
                      MTLComputePassSampleBufferAttachmentDescriptorArray)
HM_SAMPLE_ATTACHMENTS(MTLBlitPassSampleBufferAttachmentDescriptor,
                      MTLBlitPassSampleBufferAttachmentDescriptorArray)

namespace {

// Most come one after the other: it is retained once for all of them.
void UseSamples(HMEncoder* encoder, HMCounterSampleBuffer* samples) {
  hostmetal::CommandBufferState& b = *encoder->_buffer->_state;
  if (b.samples == samples) return;
  b.samples = samples;
  b.Use(samples);
}

template <typename Descriptor>
void EncodeSamplesOf(HMEncoder* encoder, Descriptor* descriptor) {
  // Without messages, which would be most of the cost of a pass.
  for (auto* attachment : [descriptor sampleBufferAttachments]->_attachments) {
    if (!attachment || !attachment->_sampleBuffer) continue;
    auto* samples = (HMCounterSampleBuffer*)attachment->_sampleBuffer;
    const NSUInteger first = attachment->_startOfEncoderSampleIndex;
    const NSUInteger last = attachment->_endOfEncoderSampleIndex;
    if (![samples isKindOfClass:HM_CLASS(HMCounterSampleBuffer)]) {
      [encoder fail:hostmetal::kInvalidResource
            message:"[sampleBufferAttachments] the sample buffer is not of this device"];
      return;
    }
    for (NSUInteger index : {first, last}) {
      if (index == MTLCounterDontSample || index < samples->_count) continue;
      [encoder fail:hostmetal::kInvalidResource
            message:"[sampleBufferAttachments] sample " + std::to_string(index) +
                    " of a buffer of " + std::to_string(samples->_count)];
      return;
    }
    UseSamples(encoder, samples);
    if (first != MTLCounterDontSample) hostmetal::Sample(encoder, &samples->_slots[first]);
    if (last != MTLCounterDontSample) {
      encoder->_lastSamples[encoder->_lastSampleCount++] = &samples->_slots[last];
    }
  }
}

}  // namespace

namespace hostmetal {

NSArray<id<MTLCounterSet>>* CounterSets() {
  return [NSArray arrayWithObject:[[[HMCounterSet alloc] init] autorelease]];
}

void EncodeSamples(HMEncoder* encoder, MTLComputePassDescriptor* descriptor) {
  EncodeSamplesOf(encoder, descriptor);
}
void EncodeSamples(HMEncoder* encoder, MTLBlitPassDescriptor* descriptor) {
  EncodeSamplesOf(encoder, descriptor);
}

void EncodeSample(HMEncoder* encoder, id<MTLCounterSampleBuffer> object, NSUInteger index) {
  if (encoder->_ended) {
    [encoder isOpen:"sampleCountersInBuffer"];
    return;
  }
  // By its class and not by a message: two of these are around each launch that is profiled.
  auto* samples = (HMCounterSampleBuffer*)object;
  std::string wrong;
  if (!samples || object_getClass(samples) != HM_CLASS(HMCounterSampleBuffer) ||
      samples->_device != encoder->_buffer->_queue->_device) {
    wrong = "the sample buffer is nil or not of this device";
  } else if (index >= samples->_count) {
    wrong =
        "sample " + std::to_string(index) + " of a buffer of " + std::to_string(samples->_count);
  } else if (samples->_device->_onlySamplesStages) {
    wrong = "this device takes times at the boundaries of passes alone (supportsCounterSampling)";
  } else {
    UseSamples(encoder, samples);
    return Sample(encoder, &samples->_slots[index]);
  }
  [encoder fail:kInvalidResource message:"[sampleCountersInBuffer] " + wrong];
}

}  // namespace hostmetal
