// MTLCommandQueue and MTLCommandBuffer.
#ifndef HOSTMETAL_SRC_COMMAND_BUFFER_H_
#define HOSTMETAL_SRC_COMMAND_BUFFER_H_

#import <Metal/Metal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostmetal/src/command_list.h"
#include "hostmetal/src/device.h"
#include "hostmetal/src/driver.h"
#include "hostmetal/src/log_state.h"
#include "hostmetal/src/sync.h"

@class HMEncoder;

namespace hostmetal {

struct QueueState;
struct CommandBufferState;

}  // namespace hostmetal

@interface HMCommandQueue : HMLabelled <MTLCommandQueue> {
 @public
  HMDevice* _device;
  std::shared_ptr<hostmetal::QueueState>* _state;
  NSMutableSet* _residencySets;  // guarded by the object's lock
}
- (id)initWithDevice:(HMDevice*)device maxCommandBufferCount:(NSUInteger)count;
@end

@interface HMCommandBuffer : HMLabelled <MTLCommandBuffer> {
 @public
  HMCommandQueue* _queue;
  hostmetal::CommandBufferState* _state;
}
- (id)initWithQueue:(HMCommandQueue*)queue
            retains:(BOOL)retains
       errorOptions:(MTLCommandBufferErrorOption)options;
@end

namespace hostmetal {

struct EncoderInfo {
  std::string label;
  std::vector<std::string> signposts;
};

struct CommandBufferState {
  CommandList list;
  std::vector<id> resources;  // retained until the command buffer has completed
  id samples = nil;           // the sample buffer among them that was used last
  LogUse log;
  bool retains = true;
  MTLCommandBufferErrorOption error_options = MTLCommandBufferErrorOptionNone;
  HMEncoder* open_encoder = nil;  // not retained; it retains the command buffer
  std::vector<EncoderInfo> encoders;
  std::vector<std::string> debug_groups;

  std::atomic<uint32_t> status{MTLCommandBufferStatusNotEnqueued};
  std::atomic<bool> committed{false};
  std::atomic<bool> run{false};  // given to the device; it may not be done
  bool holds_slot = true;
  std::atomic<uint64_t> kernel_start{0}, kernel_end{0}, gpu_start{0}, gpu_end{0};  // ns
  WaitWord scheduled;
  WaitWord done;

  std::mutex mutex;  // guards the members below
  std::vector<MTLCommandBufferHandler> scheduled_handlers;
  std::vector<MTLCommandBufferHandler> completed_handlers;
  bool scheduled_sent = false;
  bool completed_sent = false;
  Failure failure;
  uint32_t failed_encoder = 0;
  NSError* error = nil;

  // Keeps a resource alive until completion.
  void Use(id resource) {
    if (retains) resources.push_back([resource retain]);
  }
};

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_COMMAND_BUFFER_H_
