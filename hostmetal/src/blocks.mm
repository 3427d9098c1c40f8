// The Blocks runtime (clang's Block-ABI-Apple) for GCC's Objective-C runtime. Debian's
// libBlocksRuntime neither retains captured objects nor makes blocks answer messages; Apple-style
// code relies on both.
#include <Block.h>
#import <Foundation/Foundation.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

namespace {

enum : int {
  kRefcountMask = 0xffff,
  kNeedsFree = 1 << 24,
  kHasCopyDispose = 1 << 25,
  kIsGlobal = 1 << 28,
  kByrefLayoutExtended = 1 << 28,
};

enum : int {
  kFieldIsObject = 3,
  kFieldIsBlock = 7,
  kFieldIsByref = 8,
  kFieldIsWeak = 16,
  kByrefCaller = 128,
};

struct BlockDescriptor {
  unsigned long reserved;
  unsigned long size;
  void (*copy)(void* destination, const void* source);
  void (*dispose)(const void* block);
};

struct BlockLayout {
  void* isa;
  int flags;
  int reserved;
  void (*invoke)(void*, ...);
  BlockDescriptor* descriptor;
};

struct Byref {
  void* isa;
  Byref* forwarding;
  int flags;
  unsigned size;
  // Present when kHasCopyDispose is set.
  void (*keep)(Byref* destination, Byref* source);
  void (*destroy)(Byref* variable);
  // Present when kByrefLayoutExtended is set.
  const char* layout;
};

void Increment(int* flags) { __atomic_fetch_add(flags, 1, __ATOMIC_RELAXED); }

// True when that was the last reference.
bool Decrement(int* flags) {
  return (__atomic_fetch_sub(flags, 1, __ATOMIC_ACQ_REL) & kRefcountMask) == 1;
}

int Flags(const int* flags) { return __atomic_load_n(flags, __ATOMIC_RELAXED); }

void* Allocate(size_t size) {
  void* memory = malloc(size);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void CopyByref(void* destination, Byref* source) {
  Byref* shared = source->forwarding;
  if (Flags(&shared->flags) & kNeedsFree) {
    Increment(&shared->flags);
  } else {
    auto* copy = static_cast<Byref*>(Allocate(source->size));
    copy->isa = nullptr;
    // One reference for the block that is being copied and one for the stack frame.
    copy->flags = (source->flags & ~kRefcountMask) | kNeedsFree | 2;
    copy->size = source->size;
    copy->forwarding = copy;
    source->forwarding = copy;
    if (source->flags & kHasCopyDispose) {
      copy->keep = source->keep;
      copy->destroy = source->destroy;
      if ((source->flags & kByrefLayoutExtended) && source->size >= sizeof(Byref)) {
        copy->layout = source->layout;
      }
      source->keep(copy, source);
    } else {
      constexpr size_t kHeader = offsetof(Byref, keep);
      memcpy(reinterpret_cast<char*>(copy) + kHeader, reinterpret_cast<char*>(source) + kHeader,
             source->size - kHeader);
    }
    shared = copy;
  }
  *static_cast<Byref**>(destination) = shared;
}

void ReleaseByref(Byref* variable) {
  Byref* shared = variable->forwarding;
  if (!(Flags(&shared->flags) & kNeedsFree)) return;
  if (!Decrement(&shared->flags)) return;
  if (shared->flags & kHasCopyDispose) shared->destroy(shared);
  free(shared);
}

}  // namespace

// ---- the classes
// Compiled code stores the addresses of _NSConcreteStackBlock and _NSConcreteGlobalBlock as a
// block's class, so those symbols are aliases of real class structures.
@interface NSBlock : NSObject
@end
@interface __NSStackBlock__ : NSBlock
@end
@interface __NSGlobalBlock__ : NSBlock
@end
@interface __NSMallocBlock__ : NSBlock
@end

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wobjc-missing-super-calls"
@implementation NSBlock
- (id)copy {
  return static_cast<id>(_Block_copy(self));
}
- (id)copyWithZone:(NSZone*)zone {
  return static_cast<id>(_Block_copy(self));
}
- (id)retain {
  return static_cast<id>(_Block_copy(self));
}
- (oneway void)release {
  _Block_release(self);
}
- (NSUInteger)retainCount {
  return 1;
}
- (void)invoke {
  auto* layout = reinterpret_cast<BlockLayout*>(self);
  layout->invoke(layout);
}
@end
#pragma clang diagnostic pop
@implementation __NSStackBlock__
- (id)retain {
  return self;  // as on macOS: only a copy leaves the stack
}
- (id)autorelease {
  return self;
}
@end
@implementation __NSGlobalBlock__
- (id)autorelease {
  return self;
}
@end
@implementation __NSMallocBlock__
@end

#define HM_ALIAS(symbol, class_name)                                      \
  __asm__(".globl " #symbol "\n.type " #symbol ", @object\n.set " #symbol \
          ", _OBJC_CLASS_" #class_name "\n")
HM_ALIAS(_NSConcreteStackBlock, __NSStackBlock__);
HM_ALIAS(_NSConcreteGlobalBlock, __NSGlobalBlock__);
HM_ALIAS(_NSConcreteMallocBlock, __NSMallocBlock__);
extern "C" void* _NSConcreteMallocBlock;

// ---- the functions
extern "C" {

void* _Block_copy(const void* argument) {
  if (!argument) return nullptr;
  auto* block = static_cast<BlockLayout*>(const_cast<void*>(argument));
  int flags = Flags(&block->flags);
  if (flags & kNeedsFree) {
    Increment(&block->flags);
    return block;
  }
  if (flags & kIsGlobal) return block;
  size_t size = block->descriptor->size;
  auto* copy = static_cast<BlockLayout*>(Allocate(size));
  memcpy(copy, block, size);
  copy->isa = &_NSConcreteMallocBlock;
  copy->flags = (flags & ~kRefcountMask) | kNeedsFree | 1;
  if (flags & kHasCopyDispose) copy->descriptor->copy(copy, block);
  return copy;
}

void _Block_release(const void* argument) {
  if (!argument) return;
  auto* block = static_cast<BlockLayout*>(const_cast<void*>(argument));
  int flags = Flags(&block->flags);
  if ((flags & kIsGlobal) || !(flags & kNeedsFree)) return;
  if (!Decrement(&block->flags)) return;
  if (flags & kHasCopyDispose) block->descriptor->dispose(block);
  free(block);
}

void _Block_object_assign(void* destination, const void* object, const int flags) {
  switch (flags & (kByrefCaller | kFieldIsWeak | kFieldIsByref | kFieldIsBlock)) {
    case kFieldIsObject:
      *static_cast<id*>(destination) = [(id) const_cast<void*>(object) retain];
      break;
    case kFieldIsBlock:
      *static_cast<void**>(destination) = _Block_copy(object);
      break;
    case kFieldIsByref:
    case kFieldIsByref | kFieldIsWeak:
      CopyByref(destination, static_cast<Byref*>(const_cast<void*>(object)));
      break;
    default:
      // __block variables of object or block type are not retained without ARC.
      *static_cast<const void**>(destination) = object;
      break;
  }
}

void _Block_object_dispose(const void* object, const int flags) {
  switch (flags & (kByrefCaller | kFieldIsWeak | kFieldIsByref | kFieldIsBlock)) {
    case kFieldIsObject:
      [(id) const_cast<void*>(object) release];
      break;
    case kFieldIsBlock:
      _Block_release(object);
      break;
    case kFieldIsByref:
    case kFieldIsByref | kFieldIsWeak:
      ReleaseByref(static_cast<Byref*>(const_cast<void*>(object)));
      break;
    default:
      break;
  }
}

}  // extern "C"
