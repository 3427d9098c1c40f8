// os_log and MTLLogState: what kernels write reaches handlers, else the standard error.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tests/hostmetal/harness.h"

using harness::Device;
using harness::Message;
using harness::Size;
using harness::Text;

namespace {

NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "#include <metal_logging>\n"
     "using namespace metal;\n"
     "constant os_log mine(\"com.example\", \"sums\");\n"
     "kernel void levels(uint i [[thread_position_in_grid]]) {\n"
     "  if (i != 3) return;\n"
     "  os_log_default.log(\"plain\");\n"
     "  mine.log_debug(\"debug %u\", i);\n"
     "  mine.log_info(\"info\");\n"
     "  mine.log_error(\"error\");\n"
     "  mine.log_fault(\"fault\");\n"
     "  mine.log_with_type(log_type_info, \"typed\");\n"
     "}\n"
     "kernel void formats(uint i [[thread_position_in_grid]]) {\n"
     "  mine.log(\"%d %i %u %x %#o %c %%\", -7, short(-2), 4000000000u, -1, 8, 'k');\n"
     "  mine.log(\"%ld %lu %hhd %hd\", -5000000000l, 18446744073709551615ul, 300, 70000);\n"
     "  mine.log(\"%f %.2f %e %g\", half(1.5h), 2.0f / 3, 1e-10f, bfloat(-0.25f));\n"
     "  mine.log(\"%5d|%-5d|%05d|%+.1f|%*.*f\", 42, 42, 42, 1.0f, 7, 2, 3.14159f);\n"
     "  mine.log(\"%v4hlf %v2hhu %v3hld %.1v2hf\", float4(1, 2, 3, 4), uchar2(255, 1),\n"
     "           int3(-1, 0, 1), half2(0.5h, 2.0h));\n"
     "  mine.log(\"%v2ld %v3hlx\", long2(-1, 1), packed_uint3(16, 32, 255));\n"
     "  mine.log(\"%d %f %g\", true, INFINITY, NAN);\n"
     "}\n"
     "kernel void many(constant uint& first [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
     "  os_log_default.log(\"%u\", first + i);\n"
     "}\n"
     "kernel void met(uint3 at [[thread_position_in_grid]],\n"
     "                uint i [[thread_index_in_threadgroup]]) {\n"
     "  threadgroup uint all[32];\n"
     "  all[i] = i;\n"
     "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
     "  if (at.x == 17 && at.y == 1) mine.log_error(\"beside %u\", all[i ^ 1]);\n"
     "}\n";

id<MTLComputePipelineState> Pipeline(const char* name, BOOL logging = YES) {
  MTLCompileOptions* options = [[[MTLCompileOptions alloc] init] autorelease];
  options.languageVersion = MTLLanguageVersion3_2;
  options.enableLogging = logging;
  NSError* error = nil;
  id<MTLLibrary> library = [[Device() newLibraryWithSource:kSource options:options
                                                     error:&error] autorelease];
  CHECK_EQ(Message(error), "(nil)");
  id<MTLFunction> function =
      [[library newFunctionWithName:[NSString stringWithUTF8String:name]] autorelease];
  id<MTLComputePipelineState> made = [Device() newComputePipelineStateWithFunction:function
                                                                             error:&error];
  CHECK_EQ(Message(error), "(nil)");
  return [made autorelease];
}

id<MTLLogState> State(NSInteger bytes = 1 << 20, MTLLogLevel level = MTLLogLevelDebug) {
  MTLLogStateDescriptor* descriptor = [[[MTLLogStateDescriptor alloc] init] autorelease];
  descriptor.bufferSize = bytes;
  descriptor.level = level;
  NSError* error = nil;
  id<MTLLogState> state = [Device() newLogStateWithDescriptor:descriptor error:&error];
  CHECK_EQ(Message(error), "(nil)");
  return [state autorelease];
}

// The messages that a handler got, a line each.
struct Received {
  std::mutex mutex;
  std::vector<std::string> lines;
  void Add(id<MTLLogState> state) {
    [state addLogHandler:^(NSString* subsystem, NSString* category, MTLLogLevel level,
                           NSString* message) {
      std::lock_guard<std::mutex> lock(mutex);
      lines.push_back(Text(subsystem) + " " + Text(category) + " " + std::to_string(level) + " " +
                      Text(message));
    }];
  }
  std::string All() {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
};

id<MTLCommandBuffer> Commands(id<MTLCommandQueue> queue, id<MTLLogState> state) {
  MTLCommandBufferDescriptor* descriptor = [[[MTLCommandBufferDescriptor alloc] init] autorelease];
  descriptor.logState = state;
  return [queue commandBufferWithDescriptor:[[descriptor copy] autorelease]];
}

void Encode(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> pipeline, MTLSize threads,
            uint32_t first = 0) {
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  [encoder setComputePipelineState:pipeline];
  [encoder setBytes:&first length:4 atIndex:0];
  [encoder dispatchThreads:threads threadsPerThreadgroup:Size(8, 2)];
  [encoder endEncoding];
}

void Run(id<MTLCommandBuffer> commands, const char* kernel, MTLSize threads) {
  Encode(commands, Pipeline(kernel), threads);
  harness::Finish(commands);
  CHECK_EQ(Message(commands.error), "(nil)");
}

// The text on the standard error meanwhile.
template <typename Body>
std::string Captured(Body body) {
  FILE* file = tmpfile();
  const int kept = dup(2);
  dup2(fileno(file), 2);
  body();
  fflush(stderr);
  dup2(kept, 2);
  close(kept);
  std::string text(size_t(ftell(file) < 0 ? 0 : lseek(fileno(file), 0, SEEK_END)), '\0');
  if (pread(fileno(file), &text[0], text.size(), 0) != ssize_t(text.size())) text = "?";
  fclose(file);
  return text;
}

}  // namespace

TEST(logs_reach_the_handlers_of_their_state) {
  id<MTLLogState> state = State();
  Received received, too;
  received.Add(state);
  too.Add(state);
  id<MTLCommandBuffer> commands = Commands(harness::Queue(), state);
  __block size_t before_handlers = 0;
  Received* const so_far = &received;
  [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
    before_handlers = so_far->lines.size();
  }];
  const std::string said = Captured([&] { Run(commands, "levels", Size(8)); });
  CHECK_EQ(before_handlers, 6u);
  CHECK_EQ(received.All(), "(nil) (nil) 3 plain\n"
                           "com.example sums 1 debug 3\n"
                           "com.example sums 2 info\n"
                           "com.example sums 4 error\n"
                           "com.example sums 5 fault\n"
                           "com.example sums 2 typed\n");
  CHECK_EQ(too.All(), received.All());
  CHECK_EQ(said, "");
}

TEST(logs_print_what_printf_prints_and_vectors) {
  id<MTLLogState> state = State();
  Received received;
  received.Add(state);
  Run(Commands(harness::Queue(), state), "formats", Size(1));
  const char* const kAll[] = {
      "-7 -2 4000000000 ffffffff 010 k %",
      "-5000000000 18446744073709551615 44 4464",
      "1.500000 0.67 1.000000e-10 -0.25",
      "   42|42   |00042|+1.0|   3.14",
      "1.000000,2.000000,3.000000,4.000000 255,1 -1,0,1 0.5,2.0",
      "-1,1 10,20,ff",
      "1 inf nan",
  };
  std::string expected;
  for (const char* line : kAll) expected += std::string("com.example sums 3 ") + line + "\n";
  CHECK_EQ(received.All(), expected);
}

TEST(logs_go_to_the_command_buffers_state_before_the_queues) {
  id<MTLLogState> queues = State(), buffers = State();
  Received of_queue, of_buffer;
  of_queue.Add(queues);
  of_buffer.Add(buffers);
  MTLCommandQueueDescriptor* descriptor = [[[MTLCommandQueueDescriptor alloc] init] autorelease];
  descriptor.logState = queues;
  id<MTLCommandQueue> queue =
      [[Device() newCommandQueueWithDescriptor:[[descriptor copy] autorelease]] autorelease];
  Run(queue.commandBuffer, "many", Size(1));
  CHECK_EQ(of_queue.All(), "(nil) (nil) 3 0\n");
  Run(Commands(queue, buffers), "many", Size(2));
  CHECK_EQ(of_queue.lines.size(), 1u);
  CHECK_EQ(of_buffer.lines.size(), 2u);
  Run(Commands(queue, nil), "many", Size(1));
  CHECK_EQ(of_queue.lines.size(), 2u);
}

TEST(logs_below_the_level_are_not_written) {
  id<MTLLogState> state = State(1 << 20, MTLLogLevelError);
  Received received;
  received.Add(state);
  Run(Commands(harness::Queue(), state), "levels", Size(8));
  CHECK_EQ(received.All(), "com.example sums 4 error\ncom.example sums 5 fault\n");
}

TEST(logs_that_find_no_room_are_dropped_and_counted) {
  id<MTLLogState> state = State(1024);
  Received received;
  received.Add(state);
  id<MTLCommandQueue> queue = harness::Queue();
  for (int round = 1; round < 3; ++round) {  // the second finds the buffer empty again
    const std::string said = Captured([&] { Run(Commands(queue, state), "many", Size(1000)); });
    const size_t kept = received.lines.size() / size_t(round);
    CHECK(kept > 5 && kept < 50);
    CHECK_EQ(received.lines.size(), kept * size_t(round));
    CHECK_EQ(said, "[MTLLogState] " + std::to_string(1000 - kept) +
                       " messages were dropped: the log buffer of 1024 bytes was full; a larger "
                       "bufferSize (MTL_LOG_BUFFER_SIZE) or fewer messages in a command buffer "
                       "leave none out\n");
  }
}

TEST(logs_without_a_handler_name_kernel_and_thread) {
  const std::string said =
      Captured([&] { Run(Commands(harness::Queue(), State()), "met", Size(20, 3)); });
  CHECK_EQ(said, "[met] thread (17, 1, 0), error, com.example:sums: beside 4\n");
  const std::string loop =
      Captured([&] { Run(harness::Queue().commandBuffer, "levels", Size(4)); });
  CHECK_CONTAINS(loop, "[levels] thread (3, 0, 0), notice: plain\n");
}

// Once a process, as the variables are read when the first kernel logs.
TEST(logs_without_a_state_follow_the_environment) {
  const char* level = getenv("MTL_LOG_LEVEL");
  const char* bytes = getenv("MTL_LOG_BUFFER_SIZE");
  const std::string said = Captured([] { Run(harness::Queue().commandBuffer, "levels", Size(4)); });
  if (level && !strcmp(level, "MTLLogLevelFault")) {
    CHECK_EQ(said, "[levels] thread (3, 0, 0), fault, com.example:sums: fault\n");
  } else if (level && !bytes) {  // Apple's default then
    CHECK_CONTAINS(Captured([] { Run(harness::Queue().commandBuffer, "many", Size(1000)); }),
                   "the log buffer of 1024 bytes was full");
  } else if (level) {
    CHECK_CONTAINS(said, "MTL_LOG_LEVEL is 'loud'; expected MTLLogLevelDebug, ");
    CHECK_CONTAINS(said, "MTL_LOG_BUFFER_SIZE is '1000'; expected bytes, 1024 to 1073741824");
    CHECK_CONTAINS(said, "debug, com.example:sums: debug 3\n");
  } else {
    CHECK_CONTAINS(said, "debug, com.example:sums: debug 3\n");
  }
}

TEST(logs_of_a_library_without_logging_are_left_out) {
  id<MTLLogState> state = State();
  Received received;
  received.Add(state);
  id<MTLCommandBuffer> commands = Commands(harness::Queue(), state);
  Encode(commands, Pipeline("many", NO), Size(8));
  const std::string said = Captured([&] { harness::Finish(commands); });
  CHECK_EQ(received.All() + said, "");
}

TEST(logs_of_several_queues_arrive_once) {
  constexpr int kQueues = 4, kBuffers = 20, kThreads = 16;
  id<MTLLogState> state = State();
  Received received;
  received.Add(state);
  id<MTLComputePipelineState> many = Pipeline("many");
  std::vector<std::thread> threads;
  for (int q = 0; q < kQueues; ++q) {
    threads.emplace_back([=] {
      @autoreleasepool {
        id<MTLCommandQueue> queue = harness::Queue();
        for (int b = 0; b < kBuffers; ++b) {
          id<MTLCommandBuffer> commands = Commands(queue, state);
          Encode(commands, many, Size(kThreads), uint32_t((q * kBuffers + b) * kThreads));
          harness::Finish(commands);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> numbers;
  for (const std::string& line : received.lines) numbers.push_back(atoi(line.c_str() + 14));
  std::sort(numbers.begin(), numbers.end());
  CHECK_EQ(numbers.size(), size_t(kQueues * kBuffers * kThreads));
  for (size_t i = 0; i < numbers.size(); ++i) CHECK_EQ(numbers[i], int(i));
}

TEST(log_states_of_impossible_sizes_are_refused) {
  struct {
    NSInteger bytes, level, code;
    const char* says;
  } cases[] = {
      {1023, 1, MTLLogStateErrorInvalidSize, "bufferSize is 1023; expected 1024 to 1073741824"},
      {(NSInteger{1} << 30) + 1, 1, MTLLogStateErrorInvalidSize, "bufferSize is 1073741825"},
      {2048, 6, MTLLogStateErrorInvalid, "level is 6, which is none of MTLLogLevel"},
  };
  for (auto& c : cases) {
    MTLLogStateDescriptor* descriptor = [[[MTLLogStateDescriptor alloc] init] autorelease];
    CHECK_EQ(descriptor.bufferSize, 1 << 20);
    descriptor.bufferSize = c.bytes;
    descriptor.level = MTLLogLevel(c.level);
    NSError* error = nil;
    CHECK([Device() newLogStateWithDescriptor:descriptor error:&error] == nil);
    CHECK_EQ(error.code, c.code);
    CHECK_EQ(Text(error.domain), "MTLLogStateErrorDomain");
    CHECK_CONTAINS(Message(error), c.says);
  }
}
