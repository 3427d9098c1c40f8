// The Blocks runtime: captured objects live as long as the block, blocks answer messages.
#include <Block.h>

#include <memory>

#include "tests/hostmetal/harness.h"

namespace {
std::atomic<int> alive{0};
}

@interface Probe : NSObject
@end
@implementation Probe
- (id)init {
  ++alive;
  return [super init];
}
- (void)dealloc {
  --alive;
  [super dealloc];
}
@end

TEST(block_copy_retains_captured_objects) {
  dispatch_block_t copy;
  @autoreleasepool {
    Probe* probe = [[[Probe alloc] init] autorelease];
    copy = Block_copy(^{
      (void)[probe description];
    });
  }
  CHECK_EQ(alive.load(), 1);
  Block_release(copy);
  CHECK_EQ(alive.load(), 0);
}

TEST(block_copy_counts_references) {
  int captured = 42;
  int (^stack)(void) = ^{
    return captured;
  };
  int (^first)(void) = Block_copy(stack);
  int (^second)(void) = Block_copy(first);
  CHECK((void*)first == (void*)second);
  Block_release(first);
  CHECK_EQ(second(), 42);
  Block_release(second);
}

TEST(block_answers_messages) {
  int captured = 7;
  int (^stack)(void) = ^{
    return captured;
  };
  int (^copy)(void) = [stack copy];
  CHECK((void*)copy != (void*)stack);
  CHECK_EQ(copy(), 7);
  NSArray* array = [NSArray arrayWithObject:(id)copy];
  [(id)copy release];
  CHECK_EQ(((int (^)(void))[array objectAtIndex:0])(), 7);
  CHECK([[array objectAtIndex:0] isKindOfClass:[NSObject class]]);
  int (^global)(void) = ^{
    return 3;
  };
  CHECK((void*)[global copy] == (void*)global);
  [(id)global release];
  CHECK_EQ(global(), 3);
}

TEST(block_variable_is_shared) {
  __block int counter = 0;
  dispatch_block_t increment = Block_copy(^{
    ++counter;
  });
  increment();
  increment();
  CHECK_EQ(counter, 2);
  Block_release(increment);
  counter = 5;
  CHECK_EQ(counter, 5);
}

TEST(block_variable_of_class_type_is_copied_and_destroyed) {
  auto shared = std::make_shared<int>(1);
  {
    __block std::shared_ptr<int> holder = shared;
    dispatch_block_t block = Block_copy(^{
      *holder += 1;
    });
    block();
    CHECK_EQ(*shared, 2);
    Block_release(block);
  }
  CHECK_EQ(shared.use_count(), 1L);
}

TEST(block_captures_cxx_objects) {
  auto shared = std::make_shared<int>(1);
  dispatch_block_t block;
  {
    // The block on the stack has a copy of its own until the end of the scope.
    block = Block_copy(^{
      *shared += 1;
    });
    CHECK_EQ(shared.use_count(), 3L);
  }
  CHECK_EQ(shared.use_count(), 2L);
  block();
  Block_release(block);
  CHECK_EQ(shared.use_count(), 1L);
  CHECK_EQ(*shared, 2);
}

TEST(block_in_block_is_retained) {
  dispatch_block_t outer;
  @autoreleasepool {
    Probe* probe = [[[Probe alloc] init] autorelease];
    dispatch_block_t inner = ^{
      (void)[probe description];
    };
    outer = Block_copy(^{
      inner();
    });
  }
  CHECK_EQ(alive.load(), 1);
  outer();
  Block_release(outer);
  CHECK_EQ(alive.load(), 0);
}

TEST(dispatch_async_keeps_captured_objects) {
  dispatch_queue_t queue = dispatch_queue_create("test", DISPATCH_QUEUE_SERIAL);
  __block int seen = 0;
  dispatch_semaphore_t gate = dispatch_semaphore_create(0);
  @autoreleasepool {
    Probe* probe = [[[Probe alloc] init] autorelease];
    dispatch_async(queue, ^{
      dispatch_semaphore_wait(gate, DISPATCH_TIME_FOREVER);
      seen = [probe isKindOfClass:[Probe class]] ? 1 : 2;
    });
  }
  CHECK_EQ(alive.load(), 1);
  dispatch_semaphore_signal(gate);
  dispatch_sync(queue, ^{
                });
  CHECK_EQ(seen, 1);
  // The block is released right after it ran, before the queue goes on.
  CHECK_EQ(alive.load(), 0);
  dispatch_release(gate);
  dispatch_release(queue);
}
