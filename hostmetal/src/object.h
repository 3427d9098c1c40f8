// Base class of every object that hostmetal makes: an inline atomic reference count.
// NSObject's own count works too; ours is faster and ThreadSanitizer sees it.
#ifndef HOSTMETAL_SRC_OBJECT_H_
#define HOSTMETAL_SRC_OBJECT_H_

#import <Foundation/Foundation.h>

#include <atomic>

@interface HMObject : NSObject {
 @private
  std::atomic<int32_t> _extra_references;
}
// For objects that live as long as the process: a release too many by a program cannot free them.
- (id)hm_immortal;
@end

namespace hostmetal {

// Whether the program holds objects by weak references (hostmetal/src/arc.mm). Then the last
// reference goes by this: true where `object` has to be deallocated.
bool WeakInUse();
bool DropWeakly(id object, std::atomic<int32_t>* extra_references);

// Scope that owns an autorelease pool on threads which Foundation did not make.
class PoolScope {
 public:
  PoolScope() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~PoolScope() { [pool_ release]; }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  NSAutoreleasePool* pool_;
};

// Strong reference to an Objective-C object held by C++ code.
template <typename T = id>
class Retained {
 public:
  Retained() = default;
  explicit Retained(T object) : object_([object retain]) {}
  Retained(const Retained& other) : object_([other.object_ retain]) {}
  Retained(Retained&& other) noexcept : object_(other.object_) { other.object_ = nil; }
  Retained& operator=(Retained other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Retained() { [object_ release]; }
  T get() const { return object_; }

 private:
  T object_ = nil;
};

}  // namespace hostmetal

// A class, looked up once: GCC's Objective-C runtime searches by name wherever a class is named.
#define HM_CLASS(name)                             \
  ([] {                                            \
    static const Class found_class = [name class]; \
    return found_class;                            \
  }())

// Object with a label that any thread may read and set.
@interface HMLabelled : HMObject {
  NSString* _label;
  std::atomic<bool> _labelled;  // most never are, and are asked all the same
}
@property(copy, atomic) NSString* label;
@end

#endif  // HOSTMETAL_SRC_OBJECT_H_
