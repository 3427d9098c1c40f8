// MTLIndirectCommandBuffer: dispatches that the host encodes, looked at when they are executed.
#ifndef HOSTMETAL_SRC_INDIRECT_COMMAND_BUFFER_H_
#define HOSTMETAL_SRC_INDIRECT_COMMAND_BUFFER_H_

#import <Metal/Metal.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostmetal/src/bindings.h"
#include "hostmetal/src/command_list.h"
#include "hostmetal/src/device.h"
#include "hostmetal/src/pipeline.h"

namespace hostmetal {

// A command as it was encoded; it keeps the objects it names.
struct IndirectCommand {
  struct Bound {
    Retained<HMBuffer*> buffer;
    NSUInteger offset = 0;
  };
  MTLIndirectCommandType type = 0;  // 0: nothing is dispatched
  Retained<HMComputePipelineState*> pipeline;
  std::vector<Bound> buffers;                 // as many as were set
  std::vector<uint32_t> threadgroup_lengths;  // too
  MTLSize grid, group;
  bool barrier = false;
  Failure wrong;  // the first misuse
};

// The state that the executing encoder has set, and its command buffer keeps.
struct Inherited {
  HMComputePipelineState* pipeline;
  std::shared_ptr<const Bindings> bound;  // buffers alone
};

class IndirectCommands {
 public:
  using Slots = std::vector<std::shared_ptr<IndirectCommand>>;  // nullptr: reset

  IndirectCommands(HMDevice* device, MTLIndirectCommandBufferDescriptor* descriptor, size_t count);
  size_t size() const { return slots_.size(); }
  // Why there is no such range; "" where there is.
  std::string Outside(NSRange range) const;
  // Whether a command of one may be put in the other.
  bool Alike(const IndirectCommands& other) const;

  // Changes a command by a method of it, `change`.
  template <typename Change>
  void Edit(size_t index, Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<IndirectCommand>& slot = slots_[index];
    // A command that is being executed, or was copied to another place, stays as it is.
    slot = slot ? std::make_shared<IndirectCommand>(*slot) : std::make_shared<IndirectCommand>();
    if (Failure wrong = change(*slot); wrong && !slot->wrong) slot->wrong = std::move(wrong);
  }
  Slots Get(NSRange range) const;
  void Put(size_t index, Slots commands);
  void Reset(NSRange range) { Put(range.location, Slots(range.length)); }

  // On a stream's thread; `list` keeps the running commands.
  Failure Execute(NSRange range, const Inherited& inherited, CommandList& list,
                  Stream& stream) const;

  HMDevice* const device;
  const MTLIndirectCommandType types;
  const bool inherits_pipeline, inherits_buffers;
  const NSUInteger most_buffers, most_lengths;

 private:
  Failure Resolve(const IndirectCommand& command, const Inherited& inherited, Arena* arena,
                  DispatchCommand* out) const;

  mutable std::mutex mutex_;  // guards the elements
  Slots slots_;
};

}  // namespace hostmetal

@interface HMIndirectCommandBuffer : HMLabelled <MTLIndirectCommandBuffer> {
 @public
  HMDevice* _device;
  MTLResourceOptions _options;
  hostmetal::IndirectCommands* _commands;
}
// nil for commands that a device does not execute.
+ (HMIndirectCommandBuffer*)newOn:(HMDevice*)device
                       descriptor:(MTLIndirectCommandBufferDescriptor*)descriptor
                            count:(NSUInteger)count
                          options:(MTLResourceOptions)options;
@end

#endif  // HOSTMETAL_SRC_INDIRECT_COMMAND_BUFFER_H_
