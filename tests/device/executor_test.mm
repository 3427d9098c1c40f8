// Calls the plugin's StreamExecutor table as TensorFlow does, and functions that TensorFlow does
// not call: timers, host callbacks, memset32, failures. Prints one line a check that fails; the
// exit code says how many.

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hostmetal/include/hostmetal.h"
#include "kernels/runtime/tf_metal_stream.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tensorflow/c/tf_status.h"

extern "C" {
bool metal_device_resolve(const void* opaque, void** buffer, uint64_t* offset);
const char* metal_device_take_error();
const char* metal_device_peek_error();
const char* metal_device_failure();
const char* metal_device_failure_on(const void* stream);
}

namespace {

using Milliseconds = std::chrono::milliseconds;

std::atomic<int> failures{0};
const char* current = "";

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ++failures;                                                        \
      printf("FAILED %s, line %d: %s\n", current, __LINE__, #condition); \
    }                                                                    \
  } while (0)

struct Status {
  TF_Status* status = TF_NewStatus();
  ~Status() { TF_DeleteStatus(status); }
  operator TF_Status*() { return status; }
  TF_Code code() { return TF_GetCode(status); }
  std::string message() { return TF_Message(status); }
};

SP_Platform platform = {SP_PLATFORM_STRUCT_SIZE};
SP_PlatformFns platform_fns = {SP_PLATFORM_FNS_STRUCT_SIZE};
SP_Device device = {SP_DEVICE_STRUCT_SIZE};
SP_StreamExecutor se = {SP_STREAMEXECUTOR_STRUCT_SIZE};
SP_TimerFns timer_fns = {SP_TIMER_FNS_STRUCT_SIZE};

struct Memory {
  SP_DeviceMemoryBase base = {SP_DEVICE_MEMORY_BASE_STRUCT_SIZE};
  explicit Memory(uint64_t size) { se.allocate(&device, size, 0, &base); }
  ~Memory() { Free(); }
  Memory(const Memory&) = delete;
  void Free() {
    if (base.opaque != nullptr) se.deallocate(&device, &base);
  }
  SP_DeviceMemoryBase* operator&() { return &base; }
  SP_DeviceMemoryBase At(uint64_t offset) const {
    SP_DeviceMemoryBase inner = base;
    inner.opaque = static_cast<char*>(inner.opaque) + offset;
    inner.size -= offset;
    return inner;
  }
};

struct Stream {
  SP_Stream handle = nullptr;
  Stream() {
    Status status;
    se.create_stream(&device, &handle, status);
    CHECK(status.code() == TF_OK);
  }
  ~Stream() { se.destroy_stream(&device, handle); }
  Stream(const Stream&) = delete;  // a block would copy it
  operator SP_Stream() { return handle; }
  id<TF_MetalStream> metal() { return (id<TF_MetalStream>)(void*)handle; }
  void Finish() {
    Status status;
    se.block_host_until_done(&device, handle, status);
    CHECK(status.code() == TF_OK);
  }
};

struct Event {
  SP_Event handle = nullptr;
  Event() { se.create_event(&device, &handle, Status()); }
  ~Event() { se.destroy_event(&device, handle); }
  operator SP_Event() { return handle; }
  bool done() { return se.get_event_status(&device, handle) == SE_EVENT_COMPLETE; }
};

void Write(Memory& to, const std::vector<uint8_t>& bytes) {
  Status status;
  se.sync_memcpy_htod(&device, &to, bytes.data(), bytes.size(), status);
  CHECK(status.code() == TF_OK);
}

std::vector<uint8_t> Read(Memory& from, uint64_t size) {
  std::vector<uint8_t> bytes(size);
  Status status;
  se.sync_memcpy_dtoh(&device, bytes.data(), &from, size, status);
  CHECK(status.code() == TF_OK);
  return bytes;
}

// Its present value, whatever is writing to it; a GPU's own memory has no `contents`.
int ByteOf(id<MTLBuffer> buffer, NSUInteger at) {
  uint8_t byte = 0;
  CHECK(hostmetal_read(buffer, at, &byte, 1));
  return byte;
}

std::vector<uint8_t> Pattern(uint64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Holds a stream up until Open().
struct Gate {
  dispatch_semaphore_t semaphore = dispatch_semaphore_create(0);
  explicit Gate(Stream& stream) {
    auto wait = [](void* gate, TF_Status*) {
      dispatch_semaphore_wait(static_cast<Gate*>(gate)->semaphore, DISPATCH_TIME_FOREVER);
    };
    CHECK(se.host_callback(&device, stream, wait, this));
  }
  void Open() { dispatch_semaphore_signal(semaphore); }
};

// ---- the checks ---------------------------------------------------------------------------------

void InteriorPointers() {
  std::mt19937 random(1);
  std::vector<std::unique_ptr<Memory>> all;
  for (int i = 0; i < 300; ++i) {
    const uint64_t size = 1 + random() % (i % 7 == 0 ? 300000 : 700);
    all.push_back(std::make_unique<Memory>(size));
    if (i % 3 == 0) all.erase(all.begin() + random() % all.size());
  }
  for (const auto& memory : all) {
    const uint64_t size = memory->base.size;
    for (const uint64_t k : {uint64_t{0}, size / 2, size - 1}) {
      void* buffer = nullptr;
      uint64_t offset = 0;
      CHECK(metal_device_resolve(static_cast<char*>(memory->base.opaque) + k, &buffer, &offset));
      CHECK(buffer == memory->base.opaque && offset == k);
    }
    CHECK([(id<MTLBuffer>)memory->base.opaque length] == size);
    void* buffer = nullptr;
    uint64_t offset = 0;
    const bool found =
        metal_device_resolve(static_cast<char*>(memory->base.opaque) + size, &buffer, &offset);
    CHECK(!found || buffer != memory->base.opaque);
  }
  void* buffer = nullptr;
  uint64_t offset = 0;
  int on_the_stack = 0;
  CHECK(!metal_device_resolve(&on_the_stack, &buffer, &offset));
}

void CopiesAtOddPlaces() {
  Stream stream;
  Memory a(1000), b(1000);
  const std::vector<uint8_t> bytes = Pattern(1000, 2);
  Write(a, bytes);
  Write(b, std::vector<uint8_t>(1000, 0));
  Status status;
  SP_DeviceMemoryBase from = a.At(13), to = b.At(501);
  se.memcpy_dtod(&device, stream, &to, &from, 77, status);
  CHECK(status.code() == TF_OK);
  std::vector<uint8_t> got(1000);
  se.memcpy_dtoh(&device, stream, got.data(), &b, 1000, status);
  CHECK(status.code() == TF_OK);
  CHECK(memcmp(got.data() + 501, bytes.data() + 13, 77) == 0);
  CHECK(got[500] == 0 && got[578] == 0);
  se.memcpy_htod(&device, stream, &to, bytes.data(), 3, status);
  se.memcpy_dtoh(&device, stream, got.data(), &to, 3, status);
  CHECK(memcmp(got.data(), bytes.data(), 3) == 0);
  // Past the end: refused, nothing is written.
  to = b.At(990);
  se.memcpy_htod(&device, stream, &to, bytes.data(), 11, status);
  CHECK(status.code() == TF_INTERNAL && status.message().find("one buffer") != std::string::npos);
  Status ok;
  se.sync_memcpy_dtod(&device, &b, &a, 1000, ok);
  CHECK(ok.code() == TF_OK && Read(b, 1000) == bytes);
}

void Fills() {
  Stream stream;
  Status status;
  for (const uint64_t size : {4, 12, 64, 4100}) {
    Memory memory(size);
    se.memset32(&device, stream, &memory, 0x04030201, size, status);
    stream.Finish();
    const std::vector<uint8_t> got = Read(memory, size);
    bool right = true;
    for (uint64_t i = 0; i < size; ++i) right = right && got[i] == i % 4 + 1;
    CHECK(right);
    se.memset(&device, stream, &memory, 7, size, status);
    SP_DeviceMemoryBase tail = memory.At(size - 1);
    se.mem_zero(&device, stream, &tail, 1, status);
    stream.Finish();
    std::vector<uint8_t> expected(size, 7);
    expected.back() = 0;
    CHECK(Read(memory, size) == expected);
  }
  CHECK(status.code() == TF_OK);
  Memory memory(6);
  se.memset32(&device, stream, &memory, 1, 6, status);
  CHECK(status.code() == TF_INVALID_ARGUMENT);
}

// Apple's semantics: the same command buffer until the batch is full, and `commit` only counts.
void CommitOnlyCounts() {
  Stream stream;
  Memory memory(64);
  Write(memory, std::vector<uint8_t>(64, 0));
  id<MTLBuffer> buffer = (id<MTLBuffer>)memory.base.opaque;
  id<TF_MetalStream> metal = stream.metal();
  auto fill = [&](uint8_t value) {
    __block id<MTLCommandBuffer> used = nil;
    dispatch_sync([metal queue], ^{
      used = [metal currentCommandBuffer];
      CHECK(used == [metal currentCommandBuffer]);
      id<MTLBlitCommandEncoder> blit = [used blitCommandEncoder];
      [blit fillBuffer:buffer range:NSMakeRange(0, 64) value:value];
      [blit endEncoding];
      [used retain];
      [metal commit];
    });
    return used;
  };
  id<MTLCommandBuffer> first = fill(1);
  std::this_thread::sleep_for(Milliseconds(20));
  CHECK([first status] == MTLCommandBufferStatusNotEnqueued);
  CHECK(ByteOf(buffer, 0) == 0);
  id<MTLCommandBuffer> second = fill(2);
  CHECK(first == second);
  CHECK([first status] != MTLCommandBufferStatusNotEnqueued);
  id<MTLCommandBuffer> third = fill(3);
  CHECK(third != first);
  CHECK([third status] == MTLCommandBufferStatusNotEnqueued);
  Event event;
  CHECK(event.done());
  Status status;
  se.record_event(&device, stream, event, status);  // a waiting caller flushes
  CHECK([third status] != MTLCommandBufferStatusNotEnqueued);
  se.block_host_for_event(&device, event, status);
  CHECK(event.done() && ByteOf(buffer, 63) == 3);
  fill(4);
  dispatch_sync([metal queue], ^{
    [metal commitAndWait];
  });
  CHECK(ByteOf(buffer, 63) == 4);
  [first release];
  [second release];
  [third release];
}

// New memory is shared with nothing else, so that the first copy from the host into all of it waits
// for no kernel; memory that has been filled or copied to, parts, and copies behind kernels of
// their stream do wait.
void NewMemoryIsWrittenAtOnce() {
  Stream kernels, copies;
  Memory fresh(100), filled(100), part(100), own(100);
  for (Memory* memory : {std::addressof(filled), std::addressof(part), std::addressof(own)}) {
    hostmetal_fill((id<MTLBuffer>)memory->base.opaque, 0, 1, 100);
  }
  Gate gate(kernels);
  Status status;
  Event behind;
  se.create_stream_dependency(&device, copies, kernels, status);
  auto first = [](Memory& memory) { return ByteOf((id<MTLBuffer>)memory.base.opaque, 0); };
  const std::vector<uint8_t> bytes(100, 9), more(100, 5);
  se.memcpy_htod(&device, copies, &fresh, bytes.data(), 100, status);
  CHECK(first(fresh) == 9);
  se.record_event(&device, copies, behind, status);
  CHECK(behind.done());

  se.memset(&device, kernels, &filled, 2, 100, status);
  [kernels.metal() queue];
  se.memcpy_htod(&device, kernels, &own, more.data(), 100, status);
  se.create_stream_dependency(&device, copies, kernels, status);
  se.memcpy_htod(&device, copies, &filled, more.data(), 100, status);
  se.memcpy_htod(&device, copies, &part, more.data(), 50, status);
  se.memcpy_htod(&device, copies, &fresh, more.data(), 100, status);
  std::this_thread::sleep_for(Milliseconds(10));
  CHECK(first(filled) == 1 && first(part) == 1 && first(own) == 1 && first(fresh) == 9);
  gate.Open();
  kernels.Finish();
  copies.Finish();
  CHECK(first(filled) == 5 && first(part) == 5 && first(own) == 5 && first(fresh) == 5);
  CHECK(ByteOf((id<MTLBuffer>)part.base.opaque, 50) == 1);
  CHECK(status.code() == TF_OK);
}

void StreamsWaitForEachOther() {
  Stream a, b;
  Memory memory(100);
  Write(memory, std::vector<uint8_t>(100, 1));
  Status status;
  Event event, later;
  Gate gate(a);
  se.memset(&device, a, &memory, 2, 100, status);
  se.record_event(&device, a, event, status);
  CHECK(!event.done());
  // Asynchronous: the copy to the device waits for `a`, its caller does not.
  const std::vector<uint8_t> bytes = Pattern(100, 3);
  se.create_stream_dependency(&device, b, a, status);
  se.memcpy_htod(&device, b, &memory, bytes.data(), 100, status);
  se.record_event(&device, b, later, status);
  std::this_thread::sleep_for(Milliseconds(10));
  CHECK(!event.done() && !later.done());
  CHECK(ByteOf((id<MTLBuffer>)memory.base.opaque, 0) == 1);
  gate.Open();
  se.block_host_for_event(&device, later, status);
  CHECK(later.done());
  se.block_host_for_event(&device, event, status);  // a GPU's streams are asked one by one
  CHECK(event.done());
  CHECK(Read(memory, 100) == bytes);

  Gate second(a);
  se.record_event(&device, a, event, status);
  se.wait_for_event(&device, b, event, status);
  se.memset(&device, b, &memory, 9, 100, status);
  se.record_event(&device, b, later, status);
  std::this_thread::sleep_for(Milliseconds(10));
  CHECK(!later.done());
  second.Open();
  b.Finish();
  CHECK(later.done() && Read(memory, 100)[99] == 9);
  CHECK(status.code() == TF_OK);
}

// A device-to-host copy has to wait for the work it depends on, and for nothing else.
void CopyToHostWaits() {
  Stream a, b;
  Memory memory(8);
  Write(memory, std::vector<uint8_t>(8, 1));
  Gate gate(a);
  Status status;
  se.memset(&device, a, &memory, 5, 8, status);
  uint8_t got[8];
  se.memcpy_dtoh(&device, b, got, &memory, 8, status);
  CHECK(got[0] == 1);
  se.create_stream_dependency(&device, b, a, status);
  std::thread opener([&] {
    std::this_thread::sleep_for(Milliseconds(10));
    gate.Open();
  });
  se.memcpy_dtoh(&device, b, got, &memory, 8, status);
  CHECK(got[0] == 5);
  opener.join();
}

void Timers() {
  Stream stream;
  SP_Timer timer = nullptr;
  Status status;
  se.create_timer(&device, &timer, status);
  se.start_timer(&device, stream, timer, status);
  auto nap = [](void*, TF_Status*) { std::this_thread::sleep_for(Milliseconds(5)); };
  CHECK(se.host_callback(&device, stream, nap, nullptr));
  se.stop_timer(&device, stream, timer, status);
  const uint64_t nanoseconds = timer_fns.nanoseconds(timer);
  CHECK(nanoseconds >= 5'000'000 && nanoseconds < 5'000'000'000);
  se.destroy_timer(&device, timer);
  CHECK(status.code() == TF_OK);
}

void HostCallbacksKeepTheOrder() {
  Stream stream;
  Memory memory(4);
  struct Seen {
    SP_DeviceMemoryBase memory;
    std::vector<int> values;
  } seen{memory.base, {}};
  Status status;
  for (int i = 0; i < 20; ++i) {
    se.memset(&device, stream, &memory, static_cast<uint8_t>(i), 4, status);
    auto look = [](void* argument, TF_Status*) {
      auto* seen = static_cast<Seen*>(argument);
      seen->values.push_back(ByteOf((id<MTLBuffer>)seen->memory.opaque, 0));
    };
    CHECK(se.host_callback(&device, stream, look, &seen));
  }
  stream.Finish();
  CHECK(seen.values.size() == 20);
  bool right = true;
  for (int i = 0; i < static_cast<int>(seen.values.size()); ++i)
    right = right && seen.values[i] == i;
  CHECK(right);
}

void FailuresAreReported() {
  Stream stream;
  Memory memory(16), other(16);
  Write(memory, std::vector<uint8_t>(16, 1));
  id<TF_MetalStream> metal = stream.metal();
  id<MTLBuffer> buffer = (id<MTLBuffer>)memory.base.opaque;
  dispatch_sync([metal queue], ^{
    id<MTLBlitCommandEncoder> blit = [[metal currentCommandBuffer] blitCommandEncoder];
    [blit fillBuffer:buffer range:NSMakeRange(8, 100) value:2];
    [blit endEncoding];
    [metal commit];
  });
  Status status, fine;
  uint8_t got[16];
  Event event;
  se.record_event(&device, stream, event, fine);
  se.block_host_for_event(&device, event, fine);
  // Saying anything else than "complete" and OK here would end TensorFlow's process.
  CHECK(event.done());
  se.get_stream_status(&device, stream, fine);
  se.block_host_until_done(&device, stream, fine);
  CHECK(fine.code() == TF_OK);

  se.memcpy_dtoh(&device, stream, got, &memory, 16, status);
  CHECK(status.code() == TF_INTERNAL);
  CHECK(status.message().find("clear_error") != std::string::npos);
  // It stays, for all threads and streams, until it is cleared.
  Stream second;
  Status again, all;
  se.memcpy_dtoh(&device, second, got, &other, 16, again);
  CHECK(again.code() == TF_INTERNAL);
  se.synchronize_all_activity(&device, all);
  CHECK(all.code() == TF_OK);
  CHECK(metal_device_failure() != nullptr && metal_device_peek_error() != nullptr);
  CHECK(metal_device_take_error() != nullptr);
  CHECK(metal_device_take_error() == nullptr && metal_device_failure() == nullptr);
  Status after;
  se.memcpy_dtoh(&device, second, got, &other, 16, after);
  se.memset(&device, stream, &memory, 3, 16, after);
  se.memcpy_dtoh(&device, stream, got, &memory, 16, after);
  CHECK(after.code() == TF_OK && got[15] == 3);

  auto fail = [](void*, TF_Status* result) { TF_SetStatus(result, TF_ABORTED, "no luck"); };
  CHECK(se.host_callback(&device, stream, fail, nullptr));
  stream.Finish();
  const char* error = metal_device_take_error();
  CHECK(error != nullptr && strstr(error, "no luck") != nullptr);
}

// The next caller sees them, though no one was waiting when they happened.
void FailuresAreSeenWithoutWaiting() {
  const auto seen = [](const std::function<bool()>& asked) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!asked() && std::chrono::steady_clock::now() < deadline) usleep(100);
    return asked();
  };
  Stream stream;
  Memory memory(16);
  id<TF_MetalStream> metal = stream.metal();
  id<MTLBuffer> buffer = (id<MTLBuffer>)memory.base.opaque;
  const void* const handle = (const void*)(void*)stream.handle;
  const std::function<bool()> ways[] = {
      [&] { return metal_device_failure_on(handle) != nullptr; },
      [] { return metal_device_failure() != nullptr; },
      [] { return metal_device_peek_error() != nullptr; },
      [&] {
        Status status;
        uint8_t got[16];
        Stream second;
        se.memcpy_dtoh(&device, second, got, &memory, 16, status);
        return status.code() == TF_INTERNAL;
      },
  };
  for (const std::function<bool()>& way : ways) {
    CHECK(!way());
    dispatch_sync([metal queue], ^{
      id<MTLBlitCommandEncoder> blit = [[metal currentCommandBuffer] blitCommandEncoder];
      [blit fillBuffer:buffer range:NSMakeRange(8, 100) value:2];
      [blit endEncoding];
      [metal commit];
    });
    Status fine;
    Event event;
    se.record_event(&device, stream, event, fine);  // commits, and does not wait
    CHECK(seen(way));
    CHECK(metal_device_take_error() != nullptr && metal_device_take_error() == nullptr);
  }
}

// The runner sets the limit: METAL_OPS_DEVICE_MEMORY_MB=64.
void MemoryLimit() {
  constexpr uint64_t kMegabyte = 1 << 20;
  int64_t free = 0, total = 0;
  CHECK(se.device_memory_usage(&device, &free, &total));
  CHECK(total == 64 * static_cast<int64_t>(kMegabyte) && free == total);
  {
    Memory large(60 * kMegabyte);
    CHECK(large.base.opaque != nullptr && large.base.size == 60 * kMegabyte);
    Memory more(10 * kMegabyte);
    CHECK(more.base.opaque == nullptr && more.base.size == 0);
    CHECK(se.device_memory_usage(&device, &free, &total));
    CHECK(free == 4 * static_cast<int64_t>(kMegabyte));
  }
  Memory huge(uint64_t{1} << 63);
  CHECK(huge.base.opaque == nullptr);
  // Freed, but a command buffer that is not even committed still holds it: the next one waits for
  // that.
  Stream stream;
  Memory first(40 * kMegabyte);
  Status status;
  se.memset(&device, stream, &first, 1, 40 * kMegabyte, status);
  first.Free();
  Memory second(40 * kMegabyte);
  CHECK(second.base.opaque != nullptr);
  SP_AllocatorStats stats = {SP_ALLOCATORSTATS_STRUCT_SIZE};
  CHECK(se.get_allocator_stats(&device, &stats));
  CHECK(stats.bytes_in_use == 40 * static_cast<int64_t>(kMegabyte));
  CHECK(stats.peak_bytes_in_use >= 60 * static_cast<int64_t>(kMegabyte));
  CHECK(stats.has_bytes_limit && stats.bytes_limit == total && stats.num_allocs == 3);
  void* unified = se.unified_memory_allocate(&device, 100);
  CHECK(unified != nullptr && [(id<MTLBuffer>)unified length] == 100);
  se.unified_memory_deallocate(&device, unified);
  void* host = se.host_memory_allocate(&device, 1000);
  CHECK(host != nullptr && reinterpret_cast<uintptr_t>(host) % 64 == 0);
  se.host_memory_deallocate(&device, host);
}

void ThousandBuffersInFlight() {
  Stream stream;
  Status status;
  std::vector<std::unique_ptr<Memory>> all;
  Gate gate(stream);
  // From a second thread: a command queue takes a limited number of buffers, so another thread has
  // to open the gate.
  std::thread encoder([&] {
    for (int i = 0; i < 1000; ++i) {
      all.push_back(std::make_unique<Memory>(256));
      se.memset(&device, stream, &*all.back(), static_cast<uint8_t>(i), 256, status);
    }
  });
  std::this_thread::sleep_for(Milliseconds(20));
  gate.Open();
  encoder.join();
  stream.Finish();
  bool right = true;
  for (int i = 0; i < 1000; ++i)
    right = right && Read(*all[i], 256)[255] == static_cast<uint8_t>(i);
  CHECK(right);
}

void ManyThreads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      @autoreleasepool {
        Stream stream, copies;
        bool right = true;
        for (int i = 0; i < 300; ++i) {
          const uint64_t size = 1 + (i * 37 + t) % 5000;
          Memory a(size), b(size);
          const std::vector<uint8_t> bytes = Pattern(size, static_cast<unsigned>(i * 8 + t));
          std::vector<uint8_t> got(size);
          Status status;
          se.memcpy_htod(&device, copies, &a, bytes.data(), size, status);
          se.create_stream_dependency(&device, stream, copies, status);
          se.memcpy_dtod(&device, stream, &b, &a, size, status);
          a.Free();  // the command buffer keeps it
          se.create_stream_dependency(&device, copies, stream, status);
          se.memcpy_dtoh(&device, copies, got.data(), &b, size, status);
          right = right && status.code() == TF_OK && got == bytes;
        }
        CHECK(right);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Run(const char* name, const std::function<void()>& check) {
  current = name;
  const int before = failures;
  @autoreleasepool {
    check();
  }
  printf("%s %s\n", failures == before ? "ok" : "NOT OK", name);
  fflush(stdout);
}

}  // namespace

int main() {
  @autoreleasepool {
    SE_PlatformRegistrationParams params = {SE_PLATFORM_REGISTRATION_PARAMS_STRUCT_SIZE};
    params.platform = &platform;
    params.platform_fns = &platform_fns;
    Status status;
    SE_InitPlugin(&params, status);
    int count = 0;
    platform_fns.get_device_count(&platform, &count, status);
    if (status.code() != TF_OK || count != 1 || strcmp(platform.name, "METAL") != 0 ||
        strcmp(platform.type, "GPU") != 0) {
      printf("FAILED: no METAL device\n");
      return 1;
    }
    SE_CreateDeviceParams create = {SE_CREATE_DEVICE_PARAMS_STRUCT_SIZE};
    create.device = &device;
    platform_fns.create_device(&platform, &create, status);
    SE_CreateStreamExecutorParams executor = {SE_CREATE_STREAM_EXECUTOR_PARAMS_STRUCT_SIZE};
    executor.stream_executor = &se;
    platform_fns.create_stream_executor(&platform, &executor, status);
    platform_fns.create_timer_fns(&platform, &timer_fns, status);

    Run("memory limit", MemoryLimit);
    Run("interior pointers", InteriorPointers);
    Run("copies at odd places", CopiesAtOddPlaces);
    Run("fills", Fills);
    Run("commit only counts", CommitOnlyCounts);
    Run("new memory is written at once", NewMemoryIsWrittenAtOnce);
    Run("streams wait for each other", StreamsWaitForEachOther);
    Run("a copy to the host waits", CopyToHostWaits);
    Run("timers", Timers);
    Run("host callbacks keep the order", HostCallbacksKeepTheOrder);
    Run("failures are reported", FailuresAreReported);
    Run("failures are seen without waiting", FailuresAreSeenWithoutWaiting);
    Run("a thousand buffers in flight", ThousandBuffersInFlight);
    Run("many threads", ManyThreads);
    return failures == 0 ? 0 : 1;
  }
}
