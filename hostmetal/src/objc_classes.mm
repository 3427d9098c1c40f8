// Classes whose instance variables clang places at run time (-fobjc-runtime=objfw), for GCC's
// runtime, which takes a class as it was compiled. Only such a layout lets variables stand in an
// @implementation or a class extension, makes properties without @synthesize, and allows automatic
// reference counting. Here a class gets its place behind its superclass before the runtime sees it.
#include <dlfcn.h>
#include <objc/message.h>
#include <objc/runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "hostmetal/src/objc_classes.h"

namespace hostmetal {
namespace {

// Versions 9 and, with reference counting, 10 are clang's for the run-time layout: their structures are
// GCC's, with more behind.
constexpr long kRunTimeLayout = 9, kReferenceCounting = 10, kGcc = 8, kGccSize = 32;
constexpr uintptr_t kClangProtocol = 3, kGccProtocol = 2;
// Bits of CompiledClass::info. clang means its newer structure; the runtime takes it for a class that
// objc_allocateClassPair made and that is not registered yet, and class_addMethod leaves such a class without the
// selector.
constexpr unsigned long kClangStructure = 16;

using Register = void (*)(CompiledModule*);

Register RuntimesOwn() {
  static const auto own = [] {
    void* runtime = dlopen("libobjc.so.4", RTLD_LAZY | RTLD_NOLOAD);
    auto found =
        runtime ? reinterpret_cast<Register>(dlsym(runtime, "__objc_exec_class")) : nullptr;
    if (!found) {
      fprintf(stderr, "libhostmetal: GCC's Objective-C runtime, libobjc.so.4, is not loaded\n");
      abort();
    }
    return found;
  }();
  return own;
}

// Classes that wait for their superclass, which another file of the program may bring.
struct Waiting {
  std::mutex mutex;
  std::vector<CompiledClass*> classes;
};
Waiting& TheWaiting() {
  static auto* waiting = new Waiting;
  return *waiting;
}

// Gives the protocols of a list, and those that they adopt, the next number or a class.
void Renumber(Protocols* list, uintptr_t from, uintptr_t to) {
  for (; list; list = list->next) {
    for (size_t i = 0; i < list->count; ++i) {
      CompiledProtocol* protocol = list->protocol[i];
      if (!protocol || protocol->version != from) continue;
      protocol->version = to;
      Renumber(protocol->protocols, from, to);
    }
  }
}

void RenumberAll(const Symbols* symbols, uintptr_t from, uintptr_t to) {
  const unsigned classes = symbols->class_count, end = classes + symbols->category_count;
  for (unsigned i = 0; i < classes; ++i) {
    Renumber(static_cast<CompiledClass*>(symbols->definition[i])->protocols, from, to);
  }
  for (unsigned i = classes; i < end; ++i) {
    Renumber(static_cast<CompiledCategory*>(symbols->definition[i])->protocols, from, to);
  }
  auto** lists = static_cast<StaticInstances**>(symbols->definition[end]);
  for (; lists && *lists; ++lists) {
    if (strcmp((*lists)->of, "Protocol")) continue;
    for (void** instance = (*lists)->instance; *instance; ++instance) {
      Protocols one{nullptr, 1, {static_cast<CompiledProtocol*>(*instance)}};
      Renumber(&one, from, to);
    }
  }
}

// Puts the variables behind those of a superclass of this size. All move together, by a multiple of
// the alignment that the compiler gave them: whole instances are multiples of it.
void Place(CompiledClass* c, long superclass_size) {
  constexpr long kAlignment = 16;
  const long own = -c->instance_size;
  long lowest = 0;  // negative where the first variable lies in the superclass' padding
  for (int i = 0; c->ivars && i < c->ivars->count; ++i) {
    lowest = std::min<long>(lowest, c->ivars->ivar[i].offset);
  }
  long start = superclass_size - lowest;
  start += ((-own - start) % kAlignment + kAlignment) % kAlignment;
  c->instance_size = own || lowest ? start + own : superclass_size;
  for (int i = 0; c->ivars && i < c->ivars->count; ++i) {
    c->ivars->ivar[i].offset += int(start);
    if (c->offsets) *c->offsets[i] = c->ivars->ivar[i].offset;
  }
}

// The size of the instances of a class, or -1 as long as it is unknown.
long SizeOf(const char* name, const std::vector<CompiledClass*>& waiting,
            const CompiledModule* arriving) {
  if (!name) return 0;  // of a root class
  for (const CompiledClass* c : waiting) {
    if (!strcmp(c->name, name)) return -1;
  }
  const Symbols* symbols = arriving->symbols;
  for (unsigned i = 0; symbols && i < symbols->class_count; ++i) {
    auto* c = static_cast<const CompiledClass*>(symbols->definition[i]);
    if (!strcmp(c->name, name)) return c->instance_size;
  }
  auto known = static_cast<const CompiledClass*>(static_cast<const void*>(objc_lookUpClass(name)));
  return known ? known->instance_size : -1;
}

void PlaceAll(const CompiledModule* arriving, std::vector<CompiledClass*>* waiting) {
  for (bool placed = true; placed;) {
    placed = false;
    for (size_t i = 0; i < waiting->size(); ++i) {
      CompiledClass* c = (*waiting)[i];
      const long size = SizeOf(c->superclass, *waiting, arriving);
      if (size < 0) continue;
      Place(c, size);
      waiting->erase(waiting->begin() + ptrdiff_t(i));
      placed = true;
      break;
    }
  }
}

// Makes a file's classes known to the runtime.
void Load(CompiledModule* module) {
  const Symbols* symbols = module->symbols;
  for (unsigned i = 0; symbols && i < symbols->class_count; ++i) {
    auto* c = static_cast<CompiledClass*>(symbols->definition[i]);
    c->info &= ~kClangStructure;
    c->metaclass->info &= ~kClangStructure;
  }
  const bool ours =
      symbols && (module->version == kRunTimeLayout || module->version == kReferenceCounting);
  Waiting& waiting = TheWaiting();
  {
    std::lock_guard<std::mutex> lock(waiting.mutex);
    if (ours) {
      module->version = kGcc;
      module->size = kGccSize;
      RenumberAll(symbols, kClangProtocol, kGccProtocol);
      for (unsigned i = 0; i < symbols->class_count; ++i) {
        auto* c = static_cast<CompiledClass*>(symbols->definition[i]);
        if (c->instance_size <= 0) waiting.classes.push_back(c);
      }
    }
    if (!waiting.classes.empty()) PlaceAll(module, &waiting.classes);
  }
  RuntimesOwn()(module);
  if (!ours) return;
  // clang keeps @protocol(P) in a category of no class, which the runtime never looks at.
  const auto known = reinterpret_cast<uintptr_t>(objc_lookUpClass("Protocol"));
  if (known) RenumberAll(symbols, kGccProtocol, known);
}

}  // namespace
}  // namespace hostmetal

// In place of libobjc's under the same name, which every compiled file calls with its definitions.
extern "C" __attribute__((visibility("default"))) void __objc_exec_class(
    hostmetal::CompiledModule* module) {
  if (hostmetal::IsLoaded(module)) return;
  const bool early = hostmetal::HoldLoads(module);
  hostmetal::Load(module);
  if (early) {
    hostmetal::SetLoaded(module);
  } else {
    hostmetal::SendLoads();  // of classes that waited for this file
  }
}

// Methods that return structs by address are found as others are: clang asks for them only where the
// receiver is not nil.
extern "C" __attribute__((visibility("default"))) IMP objc_msg_lookup_stret(id object, SEL name) {
  return objc_msg_lookup(object, name);
}
extern "C" __attribute__((visibility("default"))) IMP
objc_msg_lookup_super_stret(struct objc_super* super, SEL name) {
  return objc_msg_lookup_super(super, name);
}
