// The structures that compilers lay down for classes, as far as GCC and clang both have them; declared in no public header.
#ifndef HOSTMETAL_SRC_OBJC_CLASSES_H_
#define HOSTMETAL_SRC_OBJC_CLASSES_H_

#include <objc/runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace hostmetal {

struct CompiledIvar {
  const char* name;
  const char* type;
  int offset;  // of the first version: from the end of the superclass, as the compiler knew it
};
struct Ivars {
  int count;
  CompiledIvar ivar[1];
};
struct Methods {
  Methods* next;
  int count;
  struct {
    const char* name;  // until the runtime writes the selector there
    const char* types;
    IMP function;
  } method[1];
};
struct CompiledProtocol;
struct Protocols {
  Protocols* next;
  size_t count;
  CompiledProtocol* protocol[1];
};
struct CompiledProtocol {
  uintptr_t version;  // until the runtime writes the class there
  const char* name;
  Protocols* protocols;
};
struct CompiledClass {
  CompiledClass* metaclass;
  const char* superclass;  // its name, until the runtime writes the class there
  const char* name;
  long version;
  unsigned long info;
  long instance_size;  // minus the size of its own variables
  Ivars* ivars;
  Methods* methods;
  void *dispatch, *subclasses, *siblings;
  Protocols* protocols;
  void* collector;
  // From here on not in GCC's.
  long abi;
  int** offsets;
};
struct CompiledCategory {
  const char* name;
  const char* of;
  Methods *methods, *class_methods;
  Protocols* protocols;
};
struct StaticInstances {
  const char* of;
  void* instance[1];  // up to nullptr
};
struct Symbols {
  unsigned long selector_count;
  void* selectors;
  unsigned short class_count, category_count;
  void* definition[1];  // classes, categories, and lists of static instances up to nullptr
};
struct CompiledModule {
  long version, size;
  const char* name;
  Symbols* symbols;
};

// Files of a program or library that have become known before their own initialisers, which call once more.
bool IsLoaded(const CompiledModule* module);
void SetLoaded(CompiledModule* module);
// While these become known, keeps the runtime from sending +load to a file's classes; else false.
bool HoldLoads(const CompiledModule* module);
// Sends the held loads, as far as the classes' superclasses are known.
void SendLoads();

}  // namespace hostmetal

#endif  // HOSTMETAL_SRC_OBJC_CLASSES_H_
