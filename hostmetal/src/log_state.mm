// MTLLogState.
#include "hostmetal/src/log_state.h"

#include <stdlib.h>
#include <string.h>

#include <map>
#include <thread>

#include "hostmetal/src/errors.h"

NSErrorDomain const MTLLogStateErrorDomain = @"MTLLogStateErrorDomain";

namespace hostmetal {
namespace {

constexpr uint64_t kLeast = 1024, kMost = uint64_t{1} << 30, kDefault = uint64_t{1} << 20;
constexpr uint64_t kPatienceNs = 10000000;

std::string Bytes(uint64_t n) { return std::to_string(n) + " bytes"; }

// The size in MTL_LOG_BUFFER_SIZE; where only MTL_LOG_LEVEL is set, Apple's default of the former.
uint64_t AskedBytes() {
  const char* asked = getenv("MTL_LOG_BUFFER_SIZE");
  if (!asked) return getenv("MTL_LOG_LEVEL") ? kLeast : kDefault;
  char* end;
  const unsigned long long bytes = strtoull(asked, &end, 10);
  if (end != asked && !*end && bytes >= kLeast && bytes <= kMost && asked[0] != '-') return bytes;
  fprintf(stderr,
          "[MTLLogState] MTL_LOG_BUFFER_SIZE is '%s'; expected bytes, 1024 to 1073741824; 1048576 "
          "are used\n",
          asked);
  return kDefault;
}

int AskedLevel() {
  const char* asked = getenv("MTL_LOG_LEVEL");
  if (!asked) return MTLLogLevelDebug;
  for (int level = MTLLogLevelDebug; level <= MTLLogLevelFault; ++level) {
    std::string name = LogLevelName(level);
    name[0] = char(name[0] - 'a' + 'A');
    if (asked == "MTLLogLevel" + name) return level;
  }
  fprintf(stderr,
          "[MTLLogState] MTL_LOG_LEVEL is '%s'; expected MTLLogLevelDebug, MTLLogLevelInfo, "
          "MTLLogLevelNotice, MTLLogLevelError or MTLLogLevelFault; the first is used\n",
          asked);
  return MTLLogLevelDebug;
}

metallib_log_record* RecordAt(metallib_log* log, uint64_t at) {
  return reinterpret_cast<metallib_log_record*>(reinterpret_cast<char*>(log + 1) + at);
}

// A record's size once it is written: another thread may be at it, or was ended there by a timeout.
uint32_t CompleteSize(const metallib_log_record* record) {
  for (const uint64_t since = Now();; std::this_thread::yield()) {
    const uint32_t size = __atomic_load_n(&record->size, __ATOMIC_ACQUIRE);
    if (size && !(size & 1)) return size;
    if (Now() - since > kPatienceNs) return size;
  }
}

}  // namespace

LogState::LogState(Driver* driver, uint64_t bytes, int level)
    : driver_(driver), bytes_(bytes / 8 * 8) {
  // Uploads lie in the host's memory, where both sides may look at once.
  if (!driver->Allocate(sizeof(metallib_log) + bytes_, true, Storage::kUpload, &allocation_))
    return;
  log_ = static_cast<metallib_log*>(allocation_.host);
  log_->capacity = bytes_;
  log_->level = uint32_t(level);
}

LogState::~LogState() {
  if (log_) driver_->Free(allocation_);
  for (LogHandler handler : handlers_) Block_release(handler);
}

metallib_log* LogState::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++users_;
  return static_cast<metallib_log*>(allocation_.device);
}

std::vector<LogMessage> LogState::End(uint64_t* dropped) {
  std::vector<LogMessage> messages;
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t used = __atomic_load_n(&log_->used, __ATOMIC_ACQUIRE);
  while (taken_ < used) {
    metallib_log_record* record = RecordAt(log_, taken_);
    const uint32_t size = CompleteSize(record);
    if (!size) break;
    if (!(size & 1)) messages.push_back(ReadLog(*record));
    taken_ += size & ~1u;
  }
  *dropped = __atomic_exchange_n(&log_->dropped, 0, __ATOMIC_RELAXED);
  if (--users_ == 0) {
    memset(static_cast<void*>(log_ + 1), 0, used);
    taken_ = 0;
    __atomic_store_n(&log_->used, 0, __ATOMIC_RELEASE);
  }
  return messages;
}

void LogState::AddHandler(LogHandler handler) {
  std::lock_guard<std::mutex> lock(mutex_);
  handlers_.push_back(Block_copy(handler));
}

void LogState::Deliver(const std::vector<LogMessage>& messages, uint64_t dropped) {
  std::vector<LogHandler> handlers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    handlers = handlers_;  // none is ever removed
  }
  for (const LogMessage& message : messages) {
    if (handlers.empty()) {
      fprintf(stderr, "%s\n", message.Line().c_str());
      continue;
    }
    @autoreleasepool {
      NSString* text = ToNSString(message.text);
      NSString* subsystem = message.named ? ToNSString(message.subsystem) : nil;
      NSString* category = message.named ? ToNSString(message.category) : nil;
      for (LogHandler handler : handlers) {
        handler(subsystem, category, MTLLogLevel(message.level), text);
      }
    }
  }
  if (dropped) {
    fprintf(
        stderr,
        "[MTLLogState] %llu messages were dropped: the log buffer of %s was full; a larger "
        "bufferSize (MTL_LOG_BUFFER_SIZE) or fewer messages in a command buffer leave none out\n",
        (unsigned long long)dropped, Bytes(bytes_).c_str());
  }
}

std::shared_ptr<LogState> LogState::Default(Driver* driver) {
  static auto* mutex = new std::mutex;
  static auto* states = new std::map<Driver*, std::shared_ptr<LogState>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::shared_ptr<LogState>& state = (*states)[driver];
  if (!state) {
    state = std::make_shared<LogState>(driver, AskedBytes(), AskedLevel());
    if (!state->has_memory()) {
      fprintf(stderr, "[MTLLogState] no memory for a log buffer; messages of shaders are lost\n");
    }
  }
  return state;
}

metallib_log* LogUse::Log() {
  if (begun_) return begun_;
  if (!state_) state_ = LogState::Default(driver_);
  if (state_->has_memory()) begun_ = state_->Begin();
  return begun_;
}

void (^LogUse::End())(id<MTLCommandBuffer>) {
  if (!begun_) return nil;
  begun_ = nullptr;
  struct Taken {
    std::shared_ptr<LogState> state;
    std::vector<LogMessage> messages;
    uint64_t dropped = 0;
  };
  auto* taken = new Taken{state_, {}, 0};
  taken->messages = state_->End(&taken->dropped);
  if (taken->messages.empty() && !taken->dropped) {
    delete taken;
    return nil;
  }
  return Block_copy(^(id<MTLCommandBuffer>) {
    taken->state->Deliver(taken->messages, taken->dropped);
    delete taken;
  });
}

std::shared_ptr<LogState> LogStateOf(HMDevice* device, id object, const char* property) {
  if (!object) return nullptr;
  auto* state = (HMLogState*)object;
  if ([state isKindOfClass:HM_CLASS(HMLogState)] && state->_device == device) {
    return *state->_state;
  }
  fprintf(stderr, "[%s logState] is no log state of this device; none is used\n", property);
  return nullptr;
}

}  // namespace hostmetal

@implementation MTLLogStateDescriptor
- (id)init {
  self = [super init];
  if (self) _bufferSize = NSInteger(hostmetal::kDefault);
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLLogStateDescriptor* copy = [[MTLLogStateDescriptor alloc] init];
  [copy setLevel:_level];
  [copy setBufferSize:_bufferSize];
  return copy;
}
@synthesize level = _level;
@synthesize bufferSize = _bufferSize;
@end

@implementation HMLogState
+ (id)newOn:(HMDevice*)device descriptor:(MTLLogStateDescriptor*)descriptor error:(NSError**)error {
  using hostmetal::Refuse;
  hostmetal::NoError(error);
  if (!descriptor) {
    return Refuse(error, MTLLogStateErrorDomain, MTLLogStateErrorInvalid,
                  "[newLogStateWithDescriptor] the descriptor is nil");
  }
  const NSInteger bytes = [descriptor bufferSize], level = [descriptor level];
  if (bytes < NSInteger(hostmetal::kLeast) || bytes > NSInteger(hostmetal::kMost)) {
    return Refuse(error, MTLLogStateErrorDomain, MTLLogStateErrorInvalidSize,
                  "[newLogStateWithDescriptor] bufferSize is " + std::to_string(bytes) +
                      "; expected 1024 to 1073741824 bytes");
  }
  if (level < MTLLogLevelUndefined || level > MTLLogLevelFault) {
    return Refuse(error, MTLLogStateErrorDomain, MTLLogStateErrorInvalid,
                  "[newLogStateWithDescriptor] level is " + std::to_string(level) +
                      ", which is none of MTLLogLevel");
  }
  auto state = std::make_shared<hostmetal::LogState>(device->_driver, uint64_t(bytes), int(level));
  if (!state->has_memory()) {
    return Refuse(error, MTLLogStateErrorDomain, MTLLogStateErrorInvalid,
                  "[newLogStateWithDescriptor] no memory for a log buffer of " +
                      hostmetal::Bytes(uint64_t(bytes)));
  }
  HMLogState* made = [[HMLogState alloc] init];
  made->_device = device;
  made->_state = new std::shared_ptr<hostmetal::LogState>(std::move(state));
  return made;
}
- (void)dealloc {
  delete _state;
  [super dealloc];
}
- (void)addLogHandler:(void (^)(NSString*, NSString*, MTLLogLevel, NSString*))block {
  (*_state)->AddHandler(block);
}
@end
