// MTLLogState: a log buffer, and where its messages go.
#ifndef HOSTMETAL_SRC_LOG_STATE_H_
#define HOSTMETAL_SRC_LOG_STATE_H_

#import <Metal/Metal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/log_message.h"

namespace hostmetal {

using LogHandler = void (^)(NSString*, NSString*, MTLLogLevel, NSString*);

// One log buffer. Command buffers begin and end their use of it; messages are taken out at an end,
// and room is made once it is not in use.
class LogState {
 public:
  LogState(Driver* driver, uint64_t bytes, int level);
  ~LogState();

  bool has_memory() const { return log_ != nullptr; }
  // The buffer, at the device's address.
  metallib_log* Begin();
  // Every message that is complete, and how many found no room.
  std::vector<LogMessage> End(uint64_t* dropped);
  void AddHandler(LogHandler handler);
  void Deliver(const std::vector<LogMessage>& messages, uint64_t dropped);

  // That of command buffers which have none: its size and level are MTL_LOG_BUFFER_SIZE's and
  // MTL_LOG_LEVEL's.
  static std::shared_ptr<LogState> Default(Driver* driver);

 private:
  Driver* const driver_;
  Allocation allocation_;
  metallib_log* log_ = nullptr;  // the host's address
  uint64_t bytes_;
  std::mutex mutex_;  // guards what follows
  int users_ = 0;
  uint64_t taken_ = 0;  // bytes of records
  std::vector<LogHandler> handlers_;
};

// A command buffer's use of a log state: its own, its queue's or the default one.
class LogUse : public LogSource {
 public:
  void Set(std::shared_ptr<LogState> state, Driver* driver) {
    state_ = std::move(state);
    driver_ = driver;
  }
  // The same state as another command buffer's.
  void SetAs(const LogUse& other) { Set(other.state_, other.driver_); }
  metallib_log* Log() override;
  // When the command buffer is done and its objects are still there: the block to call with the
  // messages before its completed handlers, or nil. The caller releases it.
  void (^End())(id<MTLCommandBuffer>);

 private:
  std::shared_ptr<LogState> state_;
  Driver* driver_ = nullptr;
  metallib_log* begun_ = nullptr;
};

}  // namespace hostmetal

@interface HMLogState : HMObject <MTLLogState> {
 @public
  HMDevice* _device;
  std::shared_ptr<hostmetal::LogState>* _state;
}
// nil, and an error, where the descriptor asks for an impossible size or level.
+ (id)newOn:(HMDevice*)device descriptor:(MTLLogStateDescriptor*)descriptor error:(NSError**)error;
@end

namespace hostmetal {

// That of an object of this device; nullptr for nil, and after a complaint for anything else.
std::shared_ptr<LogState> LogStateOf(HMDevice* device, id object, const char* property);

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_LOG_STATE_H_
