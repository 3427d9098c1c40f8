// The Objective-C files of a program or library become known before anything of it runs, and get +load when all are:
// superclasses first, classes before categories, else in the linker's order. So on a Mac; GCC's runtime sends +load to a
// file's classes when that file comes, where those of later files are missing.
#include <dlfcn.h>
#include <objc/runtime.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "hostmetal/src/objc_classes.h"

extern "C" void __objc_exec_class(hostmetal::CompiledModule* module);
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void* pool);

namespace hostmetal {
namespace {

constexpr unsigned long kResolved =
    8;                        // of CompiledClass::info, by the runtime: its superclass is known
constexpr long kLoaded = -1;  // of CompiledModule::size, which the runtime has read by then

struct HeldLoad {
  const char* of;  // the class
  bool category;
  const char* types;
  IMP function;
};
struct Held {
  std::mutex mutex;
  std::vector<HeldLoad> loads;
};
Held& TheHeld() {
  static auto* held = new Held;
  return *held;
}
thread_local int loading = 0;
thread_local bool sending = false;

// Takes +load out of the methods.
void Hold(const char* of, bool category, Methods* methods, std::vector<HeldLoad>* loads) {
  for (; methods; methods = methods->next) {
    for (int i = 0; i < methods->count; ++i) {
      if (strcmp(methods->method[i].name, "load")) continue;
      loads->push_back({of, category, methods->method[i].types, methods->method[i].function});
      methods->method[i] = methods->method[--methods->count];
      break;
    }
  }
}

// The class, where it and its superclasses are known.
Class Known(const char* name) {
  Class found = Class(objc_lookUpClass(name));
  auto compiled = static_cast<const CompiledClass*>(static_cast<const void*>(found));
  return compiled && compiled->info & kResolved ? found : nullptr;
}

bool IsOf(const HeldLoad& load, const char* name, bool category) {
  return load.category == category && !strcmp(load.of, name);
}

// The one whose turn it is, out of the list; false where none is left whose class is known.
bool Take(std::vector<HeldLoad>* loads, HeldLoad* taken) {
  for (const bool category : {false, true}) {
    for (const HeldLoad& load : *loads) {
      Class c = load.category == category ? Known(load.of) : nullptr;
      if (!c) continue;
      const char* first = load.of;
      for (c = class_getSuperclass(c); c && !category; c = class_getSuperclass(c)) {
        const auto held = [&](const HeldLoad& l) { return IsOf(l, class_getName(c), false); };
        if (std::any_of(loads->begin(), loads->end(), held)) first = class_getName(c);
      }
      const auto at = std::find_if(loads->begin(), loads->end(),
                                   [&](const HeldLoad& l) { return IsOf(l, first, category); });
      *taken = *at;
      loads->erase(at);
      return true;
    }
  }
  return false;
}

void Send(const HeldLoad& load) {
  Class c = Class(objc_getClass(load.of));
  const SEL name = sel_registerName("load");
  if (load.category) {
    class_replaceMethod(object_getClass(id(c)), name, load.function, load.types);
  } else {
    class_addMethod(object_getClass(id(c)), name, load.function, load.types);
  }
  void* pool = objc_autoreleasePoolPush();
  reinterpret_cast<void (*)(Class, SEL)>(reinterpret_cast<void (*)(void)>(load.function))(c, name);
  objc_autoreleasePoolPop(pool);
}

}  // namespace

bool IsLoaded(const CompiledModule* module) { return module->size == kLoaded; }

bool HoldLoads(const CompiledModule* module) {
  if (!loading) return false;
  Held& held = TheHeld();
  std::lock_guard<std::mutex> lock(held.mutex);
  const Symbols* symbols = module->symbols;
  const unsigned classes = symbols ? symbols->class_count : 0;
  const unsigned end = symbols ? classes + symbols->category_count : 0;
  for (unsigned i = 0; i < end; ++i) {
    if (i < classes) {
      auto* c = static_cast<CompiledClass*>(symbols->definition[i]);
      Hold(c->name, false, c->metaclass->methods, &held.loads);
    } else {
      auto* c = static_cast<CompiledCategory*>(symbols->definition[i]);
      Hold(c->of, true, c->class_methods, &held.loads);
    }
  }
  return true;
}

void SetLoaded(CompiledModule* module) { module->size = kLoaded; }

void SendLoads() {
  // A +load that opens a library: its loads come after it.
  if (sending) return;
  sending = true;
  Held& held = TheHeld();
  for (HeldLoad load;;) {
    {
      std::lock_guard<std::mutex> lock(held.mutex);
      if (!Take(&held.loads, &load)) break;
    }
    Send(load);
  }
  sending = false;
}

// Whether the files of a program or library call this one and not libobjc, which a program may be linked with before it: that
// would take each file twice.
bool IsCalled(const void* part_of_it) {
  Dl_info theirs, own;
  const auto ours = reinterpret_cast<void*>(&__objc_exec_class);
  if (dladdr(part_of_it, &theirs) && dladdr(ours, &own) && theirs.dli_fbase == own.dli_fbase) {
    return true;
  }
  return dlsym(RTLD_DEFAULT, "__objc_exec_class") == ours;
}

}  // namespace hostmetal

extern "C" __attribute__((visibility("default"))) void hostmetal_load_objects(void (**first)(void),
                                                                              void (**last)(void)) {
  if (!std::any_of(first, last, [](void (*load)(void)) { return load != nullptr; })) return;
  if (!hostmetal::IsCalled(first)) return;
  ++hostmetal::loading;
  for (; first != last; ++first) {
    void (*load)(void) = *first;
    *first = nullptr;  // every file has an initialiser that comes here
    if (load) load();
  }
  --hostmetal::loading;
  hostmetal::SendLoads();
}
