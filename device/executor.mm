// The SP_StreamExecutor table: see executor.h.
//
// TensorFlow ends the process (LOG(FATAL)) when an event polls as failed, and on the next copy
// after get_stream_status or block_host_until_done have once said anything but OK. A failure of
// synchronize_all_activity, which comes before every copy to the host, becomes an error that says
// "SyncAll failed" and no more. Errors of copies are passed on as they are. So a failure on the
// device is reported by the copies that hand out results, and by kernels through
// metal_device_failure().

#include "device/executor.h"

#import <Foundation/Foundation.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "device/callback.h"
#include "device/fork.h"
#include "device/memory.h"
#include "device/stream.h"
#include "tensorflow/c/tf_status.h"

// A point in a stream. A new event counts as having happened, as CUDA's does.
struct SP_Event_st {
  std::mutex mutex;
  MetalDeviceStream* stream = nil;  // retained
  uint64_t number = 0;
};

struct SP_Timer_st {
  using Clock = std::chrono::steady_clock;
  struct Stamp {
    MetalDeviceStream* stream = nil;  // retained
    uint64_t number = 0;
    Clock::time_point time;
  };
  Stamp start, stop;
};

namespace metal_device {
namespace {

constexpr uint64_t kLargeAllocation = uint64_t{64} << 10;

// ---- memory -------------------------------------------------------------------------------------

// TensorFlow turns a null pointer into ResourceExhausted, with the op and the shape that wanted the
// memory.
void* Allocate(Device& device, uint64_t size) {
  // TensorFlow runs far ahead of the device, allocating memory that it would find freed if it
  // waited. Fresh pages cost more than the wait: an addition of 2^20 floats took 1.4 ms so, and 0.4
  // ms with it.
  if (size >= kLargeAllocation && GetMemoryStatistics(device).abandoned > device.most_abandoned) {
    Synchronize(&device);
  }
  void* buffer = NewBuffer(device, size);
  if (buffer == nullptr) {
    // Freed tensors live on in command buffers that still run, those of copies between devices
    // among them.
    SynchronizeAll();
    buffer = NewBuffer(device, size);
  }
  return buffer;
}

void Allocate(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  Guarded(device, nullptr, [&] {
    memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
    memory->ext = nullptr;
    memory->opaque = Allocate(ToDevice(device), size);
    memory->size = memory->opaque == nullptr ? 0 : size;
    memory->payload = 0;
  });
}

void Deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  Guarded(device, nullptr, [&] {
    if (memory->opaque != nullptr) AbandonBuffer(ToDevice(device), memory->opaque);
    memory->opaque = nullptr;
    memory->size = 0;
  });
}

void* HostMemoryAllocate(const SP_Device*, uint64_t size) {
  void* memory = nullptr;
  return posix_memalign(&memory, 64, size == 0 ? 1 : size) == 0 ? memory : nullptr;
}

void HostMemoryDeallocate(const SP_Device*, void* memory) { free(memory); }

// All memory of the device is unified; kernels get `allocate`'s pointers, whichever call they came
// from.
void* UnifiedMemoryAllocate(const SP_Device* device, uint64_t size) {
  void* memory = nullptr;
  Guarded(device, nullptr, [&] { memory = Allocate(ToDevice(device), size); });
  return memory;
}

void UnifiedMemoryDeallocate(const SP_Device* device, void* memory) {
  Guarded(device, nullptr, [&] {
    if (memory != nullptr) AbandonBuffer(ToDevice(device), memory);
  });
}

TF_Bool GetAllocatorStats(const SP_Device* device, SP_AllocatorStats* stats) {
  const MemoryStatistics now = GetMemoryStatistics(ToDevice(device));
  *stats = SP_AllocatorStats{SP_ALLOCATORSTATS_STRUCT_SIZE};
  stats->num_allocs = now.allocations;
  stats->bytes_in_use = now.in_use;
  stats->peak_bytes_in_use = now.peak_in_use;
  stats->largest_alloc_size = now.largest;
  stats->has_bytes_limit = 1;
  stats->bytes_limit = now.limit;
  stats->bytes_reserved = now.in_use;
  stats->peak_bytes_reserved = now.peak_in_use;
  stats->largest_free_block_bytes = now.limit - now.in_use;
  return 1;
}

TF_Bool DeviceMemoryUsage(const SP_Device* device, int64_t* free, int64_t* total) {
  const MemoryStatistics now = GetMemoryStatistics(ToDevice(device));
  *free = now.limit - now.in_use;
  *total = now.limit;
  return 1;
}

// ---- streams ------------------------------------------------------------------------------------

void CreateStream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  Guarded(device, status, [&] {
    Stream* made = [[Stream alloc] initWithDevice:&ToDevice(device)];
    *stream = (SP_Stream)(void*)made;
    if (made == nil) {
      TF_SetStatus(status, TF_RESOURCE_EXHAUSTED,
                   "METAL device: the Metal runtime gave no command queue");
    }
  });
}

void DestroyStream(const SP_Device* device, SP_Stream stream) {
  Guarded(device, nullptr, [&] {
    [ToStream(stream) flush];
    [ToStream(stream) waitUntilIdle];
    [ToStream(stream) release];
  });
}

void CreateStreamDependency(const SP_Device* device, SP_Stream dependent, SP_Stream other,
                            TF_Status* status) {
  Guarded(device, status,
          [&] { [ToStream(dependent) waitFor:ToStream(other) until:[ToStream(other) flush]]; });
}

void GetStreamStatus(const SP_Device*, SP_Stream, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");  // see the head of this file
}

void BlockHostUntilDone(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  Guarded(device, nullptr, [&] {
    [ToStream(stream) flush];
    [ToStream(stream) waitUntilIdle];
  });
  TF_SetStatus(status, TF_OK, "");  // see the head of this file
}

void SynchronizeAllActivity(const SP_Device* device, TF_Status* status) {
  Guarded(device, status, [&] { Synchronize(&ToDevice(device)); });  // see the head of this file
}

TF_Bool HostCallback(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn callback,
                     void* argument) {
  bool enqueued = false;
  Guarded(device, nullptr, [&] {
    Device* const owner = &ToDevice(device);
    [ToStream(stream) runOnHost:[owner, callback, argument] {
      TF_Status* result = TF_NewStatus();
      callback(argument, result);
      if (TF_GetCode(result) != TF_OK) {
        ReportError(*owner, std::string("a host callback failed: ") + TF_Message(result));
      }
      TF_DeleteStatus(result);
    }];
    enqueued = true;
  });
  return enqueued;
}

// ---- events -------------------------------------------------------------------------------------

void CreateEvent(const SP_Device*, SP_Event* event, TF_Status*) { *event = new SP_Event_st(); }

void DestroyEvent(const SP_Device* device, SP_Event event) {
  Guarded(device, nullptr, [&] { [event->stream release]; });
  delete event;
}

SE_EventStatus GetEventStatus(const SP_Device*, SP_Event event) {
  // The caller waits for a thread of TensorFlow's that a forked process does not have. For an error
  // TensorFlow ends the process, but does not say why.
  if (Forked()) {
    fprintf(stderr, "%s\n", WhyNotForked());
    return SE_EVENT_ERROR;
  }
  std::lock_guard<std::mutex> lock(event->mutex);
  return event->stream == nil || [event->stream isDone:event->number] ? SE_EVENT_COMPLETE
                                                                      : SE_EVENT_PENDING;
}

void RecordEvent(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  if (!CheckFork(status)) return;
  Guarded(device, status, [&] {
    const uint64_t number = [ToStream(stream) flush];
    std::lock_guard<std::mutex> lock(event->mutex);
    [event->stream autorelease];
    event->stream = [ToStream(stream) retain];
    event->number = number;
  });
}

void WaitForEvent(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  if (!CheckFork(status)) return;
  Guarded(device, status, [&] {
    std::lock_guard<std::mutex> lock(event->mutex);
    if (event->stream != nil) [ToStream(stream) waitFor:event->stream until:event->number];
  });
}

void BlockHostForEvent(const SP_Device* device, SP_Event event, TF_Status* status) {
  if (!CheckFork(status)) return;
  Guarded(device, status, [&] {
    Stream* stream;
    uint64_t number;
    {
      std::lock_guard<std::mutex> lock(event->mutex);
      stream = [[event->stream retain] autorelease];
      number = event->number;
    }
    [stream waitUntil:number];
  });
}

// ---- timers -------------------------------------------------------------------------------------

void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status*) { *timer = new SP_Timer_st(); }

void WaitForStamp(const SP_Timer_st::Stamp& stamp) { [stamp.stream waitUntil:stamp.number]; }

void DestroyTimer(const SP_Device* device, SP_Timer timer) {
  Guarded(device, nullptr, [&] {
    for (SP_Timer_st::Stamp* stamp : {&timer->start, &timer->stop}) {
      WaitForStamp(*stamp);
      [stamp->stream release];
    }
  });
  delete timer;
}

void SetStamp(const SP_Device* device, SP_Timer_st::Stamp* stamp, SP_Stream stream,
              TF_Status* status) {
  Guarded(device, status, [&] {
    WaitForStamp(*stamp);
    [stamp->stream release];
    stamp->stream = [ToStream(stream) retain];
    stamp->number =
        [ToStream(stream) runOnHost:[stamp] { stamp->time = SP_Timer_st::Clock::now(); }];
  });
}

void StartTimer(const SP_Device* device, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  SetStamp(device, &timer->start, stream, status);
}

void StopTimer(const SP_Device* device, SP_Stream stream, SP_Timer timer, TF_Status* status) {
  SetStamp(device, &timer->stop, stream, status);
}

uint64_t Nanoseconds(SP_Timer timer) {
  uint64_t nanoseconds = 0;
  Guarded(nullptr, nullptr, [&] {
    WaitForStamp(timer->start);
    WaitForStamp(timer->stop);
    nanoseconds = std::chrono::nanoseconds(timer->stop.time - timer->start.time).count();
  });
  return nanoseconds;
}

}  // namespace

void FillStreamExecutor(SP_StreamExecutor* executor) {
  *executor = SP_StreamExecutor{SP_STREAMEXECUTOR_STRUCT_SIZE};
  executor->allocate = Allocate;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = HostMemoryAllocate;
  executor->host_memory_deallocate = HostMemoryDeallocate;
  executor->unified_memory_allocate = UnifiedMemoryAllocate;
  executor->unified_memory_deallocate = UnifiedMemoryDeallocate;
  executor->get_allocator_stats = GetAllocatorStats;
  executor->device_memory_usage = DeviceMemoryUsage;
  executor->create_stream = CreateStream;
  executor->destroy_stream = DestroyStream;
  executor->create_stream_dependency = CreateStreamDependency;
  executor->get_stream_status = GetStreamStatus;
  executor->create_event = CreateEvent;
  executor->destroy_event = DestroyEvent;
  executor->get_event_status = GetEventStatus;
  executor->record_event = RecordEvent;
  executor->wait_for_event = WaitForEvent;
  executor->create_timer = CreateTimer;
  executor->destroy_timer = DestroyTimer;
  executor->start_timer = StartTimer;
  executor->stop_timer = StopTimer;
  executor->block_host_for_event = BlockHostForEvent;
  executor->block_host_until_done = BlockHostUntilDone;
  executor->synchronize_all_activity = SynchronizeAllActivity;
  executor->host_callback = HostCallback;
  FillCopies(executor);
}

void FillTimerFns(SP_TimerFns* fns) {
  *fns = SP_TimerFns{SP_TIMER_FNS_STRUCT_SIZE};
  fns->nanoseconds = Nanoseconds;
}

}  // namespace metal_device
