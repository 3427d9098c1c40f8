// A table of cases. `hostmetal_tests` runs all, `hostmetal_tests NAME...` some; a failed check
// fails its case.
#ifndef TESTS_HOSTMETAL_HARNESS_H_
#define TESTS_HOSTMETAL_HARNESS_H_

#import <Metal/Metal.h>
#include <dispatch/dispatch.h>
#include <stdio.h>

#include <atomic>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace harness {

struct Case {
  const char* name;
  void (*run)();
};
std::vector<Case>& Cases();
void Fail(const char* file, int line, const std::string& what);

struct Register {
  Register(const char* name, void (*run)()) { Cases().push_back({name, run}); }
};

template <typename A, typename B>
void Equal(const A& got, const B& expected, const char* text, const char* file, int line) {
  if (got == expected) return;
  std::ostringstream message;
  message << text << ": got " << got << ", expected " << expected;
  Fail(file, line, message.str());
}

// The fixture's library and pipelines made from it; the case fails and stops where one is missing.
id<MTLDevice> Device();
id<MTLLibrary> Library();
NSString* LibraryPath();
std::string FixturePath(const char* name);
id<MTLComputePipelineState> Pipeline(const char* name);
id<MTLBuffer> Buffer(NSUInteger bytes);
template <typename T>
T* Contents(id<MTLBuffer> buffer) {
  return static_cast<T*>([buffer contents]);
}
// METAL_DEVICE_WRAPPER_TYPE=1 is on.
bool Validating();
std::string Text(NSString* text);
std::string Message(NSError* error);

id<MTLCommandQueue> Queue();
MTLSize Size(NSUInteger x, NSUInteger y = 1, NSUInteger z = 1);
// Encodes the kernel "append", which the pipeline is: the log's next number is the value.
void Append(id<MTLCommandBuffer> commands, id<MTLComputePipelineState> append, id<MTLBuffer> log,
            uint32_t value);
// Commits and waits.
void Finish(id<MTLCommandBuffer> commands);

}  // namespace harness

#define TEST(name)                                       \
  static void name();                                    \
  static harness::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition) ((condition) ? (void)0 : harness::Fail(__FILE__, __LINE__, #condition))
#define CHECK_EQ(got, expected) harness::Equal(got, expected, #got, __FILE__, __LINE__)
// `text` must contain `part`.
#define CHECK_CONTAINS(text, part)                                                                 \
  do {                                                                                             \
    std::string checked_text = (text);                                                             \
    if (checked_text.find(part) == std::string::npos)                                              \
      harness::Fail(__FILE__, __LINE__, "'" + checked_text + "' does not contain '" + part + "'"); \
  } while (0)

namespace harness {

// Encodes with `body`, runs, and returns the error; nil where it succeeded.
template <typename Body>
NSError* Run(Body body) {
  id<MTLCommandBuffer> commands = Queue().commandBuffer;
  id<MTLComputeCommandEncoder> encoder = commands.computeCommandEncoder;
  body(encoder);
  [encoder endEncoding];
  Finish(commands);
  CHECK_EQ(commands.status,
           commands.error ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted);
  if (commands.error) CHECK_EQ(Text([commands.error domain]), "MTLCommandBufferErrorDomain");
  return commands.error;
}

}  // namespace harness

#endif  // TESTS_HOSTMETAL_HARNESS_H_
