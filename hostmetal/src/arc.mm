// The functions that clang calls where it counts references itself (-fobjc-arc): the entry points
// of "Objective-C Automatic Reference Counting", section Runtime support, which GCC's runtime does
// not have.
#import <Foundation/Foundation.h>
#include <objc/runtime.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "hostmetal/src/object.h"

#define HM_EXPORTED extern "C" __attribute__((visibility("default")))

// ---- strong references

// Defined in c_hosts.mm.
HM_EXPORTED id objc_retain(id object);
HM_EXPORTED void objc_release(id object);
HM_EXPORTED id objc_autorelease(id object);

HM_EXPORTED void objc_storeStrong(id* place, id object) {
  objc_retain(object);
  id before = *place;
  *place = object;
  objc_release(before);
}
HM_EXPORTED id objc_retainBlock(id block) { return [block copy]; }
HM_EXPORTED id objc_retainAutorelease(id object) { return objc_autorelease(objc_retain(object)); }
HM_EXPORTED id objc_autoreleaseReturnValue(id object) { return objc_autorelease(object); }
HM_EXPORTED id objc_retainAutoreleaseReturnValue(id object) {
  return objc_autorelease(objc_retain(object));
}
HM_EXPORTED id objc_retainAutoreleasedReturnValue(id object) { return objc_retain(object); }
HM_EXPORTED id objc_unsafeClaimAutoreleasedReturnValue(id object) { return object; }

// ---- weak references

namespace hostmetal {
namespace {

struct Weak {
  std::recursive_mutex mutex;
  std::map<id, std::set<id*>> places;  // of an object, those that hold it
};
Weak& TheWeak() {
  static auto* weak = new Weak;
  return *weak;
}
std::atomic<bool> weak_in_use{false};

// For the holder of the lock.
void Clear(id object) {
  auto& places = TheWeak().places;
  auto found = places.find(object);
  if (found == places.end()) return;
  for (id* place : found->second) *place = nil;
  places.erase(found);
}

void Forget(id* place) {
  auto& places = TheWeak().places;
  auto found = places.find(*place);
  if (found == places.end()) return;
  found->second.erase(place);
  if (found->second.empty()) places.erase(found);
}

IMP release_before, dealloc_before;

// The last reference and the weak ones go in one step, or another thread would get an object that is
// gone.
id ReleaseRoot(id self, SEL selector) {
  Weak& weak = TheWeak();
  {
    std::lock_guard<std::recursive_mutex> lock(weak.mutex);
    if (weak.places.find(self) != weak.places.end()) {
      if (!NSDecrementExtraRefCountWasZero(self)) return nil;
      Clear(self);
      selector = nullptr;
    }
  }
  if (selector) {
    release_before(self, selector);
  } else {
    [self dealloc];
  }
  return nil;
}

// For classes that count by themselves.
id DeallocRoot(id self, SEL selector) {
  {
    std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
    Clear(self);
  }
  return dealloc_before(self, selector);
}

void UseWeak() {
  static const bool hooked = [] {
    Class root = [NSObject class];
    release_before = method_setImplementation(class_getInstanceMethod(root, @selector(release)),
                                              reinterpret_cast<IMP>(ReleaseRoot));
    dealloc_before = method_setImplementation(class_getInstanceMethod(root, @selector(dealloc)),
                                              reinterpret_cast<IMP>(DeallocRoot));
    weak_in_use = true;
    return true;
  }();
  (void)hooked;
}

}  // namespace

bool WeakInUse() { return weak_in_use.load(std::memory_order_relaxed); }

bool DropWeakly(id object, std::atomic<int32_t>* extra_references) {
  std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
  if (extra_references->fetch_sub(1, std::memory_order_acq_rel) != 0) return false;
  Clear(object);
  return true;
}

}  // namespace hostmetal

using hostmetal::TheWeak;

HM_EXPORTED id objc_storeWeak(id* place, id object) {
  hostmetal::UseWeak();
  std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
  hostmetal::Forget(place);
  *place = object;
  if (object) TheWeak().places[object].insert(place);
  return object;
}
HM_EXPORTED id objc_initWeak(id* place, id object) {
  *place = nil;
  return objc_storeWeak(place, object);
}
HM_EXPORTED void objc_destroyWeak(id* place) { objc_storeWeak(place, nil); }
HM_EXPORTED id objc_loadWeakRetained(id* place) {
  std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
  return [*place retain];
}
HM_EXPORTED id objc_loadWeak(id* place) { return [objc_loadWeakRetained(place) autorelease]; }
HM_EXPORTED void objc_copyWeak(id* to, id* from) {
  std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
  objc_initWeak(to, *from);
}
HM_EXPORTED void objc_moveWeak(id* to, id* from) {
  std::lock_guard<std::recursive_mutex> lock(TheWeak().mutex);
  objc_initWeak(to, *from);
  objc_destroyWeak(from);
}
