// The unwinder's language routine for Objective-C++ frames, in place of libobjc's under the same
// name: clang names that one for GCC's runtime, but it takes the types of C++ handlers for names of
// Objective-C classes and ends the process. Format of the tables: Itanium C++ ABI, "Exception
// Handling", and DWARF's pointer encodings.
#include <cxxabi.h>
#include <objc/runtime.h>
#include <stdint.h>
#include <string.h>
#include <unwind.h>

#include <exception>
#include <typeinfo>

namespace {

enum : uint8_t {
  kAbsolute = 0x00,
  kUleb = 0x01,
  kUdata2 = 0x02,
  kUdata4 = 0x03,
  kUdata8 = 0x04,
  kSleb = 0x09,
  kSdata2 = 0x0a,
  kSdata4 = 0x0b,
  kSdata8 = 0x0c,
  kPcRelative = 0x10,
  kIndirect = 0x80,
  kOmit = 0xff,
};

// The header that __cxa_throw puts in front of an exception object; laid down by the ABI, declared
// in no public header.
struct CxaException {
  std::type_info* type;  // of a rethrown exception_ptr: the object itself
  void (*destructor)(void*);
  void (*unexpected)();
  void (*terminate)();
  CxaException* next;
  int handler_count;
  int handler_switch_value;
  const uint8_t* action_record;
  const uint8_t* language_specific_data;
  uintptr_t catch_temp;
  void* adjusted_pointer;
  _Unwind_Exception unwind_header;
};

// libobjc's: the thrown object follows the header.
struct ObjcException {
  _Unwind_Exception base;
  id value;
};

constexpr _Unwind_Exception_Class Tag(const char (&text)[9]) {
  _Unwind_Exception_Class tag = 0;
  for (int i = 0; i < 8; ++i) tag = tag << 8 | uint8_t(text[i]);
  return tag;
}
constexpr _Unwind_Exception_Class kObjc = Tag("GNUCOBJC");
constexpr _Unwind_Exception_Class kCxx = Tag("GNUCC++\0"), kCxxDependent = Tag("GNUCC++\1");

class Reader {
 public:
  explicit Reader(const uint8_t* at) : at_(at) {}
  const uint8_t* at() const { return at_; }
  uint8_t Byte() { return *at_++; }
  uint64_t Uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      uint8_t byte = Byte();
      value |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
  }
  int64_t Sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
      uint8_t byte = Byte();
      value |= uint64_t(byte & 0x7f) << shift;
      shift += 7;
      if (!(byte & 0x80))
        return int64_t(byte & 0x40 && shift < 64 ? value | -(1ull << shift) : value);
    }
  }
  template <typename T>
  T Raw() {
    T value;
    memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  uintptr_t Encoded(uint8_t encoding) {
    auto place = reinterpret_cast<uintptr_t>(at_);
    uintptr_t value;
    switch (encoding & 0x0f) {
      case kUleb:
        value = Uleb();
        break;
      case kSleb:
        value = uintptr_t(Sleb());
        break;
      case kUdata2:
        value = Raw<uint16_t>();
        break;
      case kUdata4:
        value = Raw<uint32_t>();
        break;
      case kSdata2:
        value = uintptr_t(intptr_t(Raw<int16_t>()));
        break;
      case kSdata4:
        value = uintptr_t(intptr_t(Raw<int32_t>()));
        break;
      default:
        value = Raw<uint64_t>();
        break;
    }
    if (value == 0) return 0;
    if ((encoding & 0x70) == kPcRelative) value += place;
    if (encoding & kIndirect) value = *reinterpret_cast<uintptr_t*>(value);
    return value;
  }

 private:
  const uint8_t* at_;
};

size_t EncodedSize(uint8_t encoding) {
  switch (encoding & 0x07) {
    case kUdata2:
      return 2;
    case kUdata4:
      return 4;
    default:
      return 8;
  }
}

// A handler's type is a std::type_info in C++ and a class's name in Objective-C. Every type_info
// starts with one of a few vtable pointers, and no name does.
bool IsTypeInfo(uintptr_t type) {
  struct A {};
  struct B : A {};
  struct C {};
  struct D : A, C {};
  enum E {};
  static const std::type_info* const kSamples[] = {
      &typeid(int), &typeid(int*),  &typeid(A),        &typeid(B),     &typeid(D),
      &typeid(E),   &typeid(int()), &typeid(int A::*), &typeid(int[1])};
  uintptr_t vtable;
  memcpy(&vtable, reinterpret_cast<const void*>(type), sizeof vtable);
  for (const std::type_info* sample : kSamples) {
    uintptr_t known;
    memcpy(&known, static_cast<const void*>(sample), sizeof known);
    if (vtable == known) return true;
  }
  return false;
}

bool IsKindOf(id object, const char* name) {
  Class wanted = Class(objc_lookUpClass(name));
  for (Class c = object_getClass(object); c && wanted; c = class_getSuperclass(c)) {
    if (c == wanted) return true;
  }
  return false;
}

struct Thrown {
  bool objc = false, cxx = false, forced = false;
  _Unwind_Exception* header = nullptr;
  id object = nil;                       // Objective-C
  const std::type_info* type = nullptr;  // C++
  void* pointer = nullptr;               // C++: adjusted to the handler's type

  // Whether a handler of that type takes it; 0 is a handler of everything.
  bool Matches(uintptr_t handler) {
    if (forced) return false;
    if (handler == 0) return true;
    bool cxx_handler = IsTypeInfo(handler);
    if (objc) return !cxx_handler && IsKindOf(object, reinterpret_cast<const char*>(handler));
    if (!cxx || !cxx_handler) return false;
    void* adjusted = pointer;
    if (type->__is_pointer_p()) adjusted = *static_cast<void**>(adjusted);
    if (!reinterpret_cast<const std::type_info*>(handler)->__do_catch(type, &adjusted, 1)) {
      return false;
    }
    pointer = adjusted;
    return true;
  }
};

Thrown Describe(_Unwind_Exception* header, _Unwind_Action actions) {
  Thrown thrown;
  thrown.header = header;
  thrown.forced = (actions & _UA_FORCE_UNWIND) != 0;
  _Unwind_Exception_Class tag = header->exception_class;
  if (tag == kObjc) {
    thrown.objc = true;
    thrown.object = reinterpret_cast<ObjcException*>(header)->value;
  } else if (tag == kCxx || tag == kCxxDependent) {
    thrown.cxx = true;
    thrown.pointer = header + 1;
    // A rethrown std::exception_ptr: the first field points at the object that was thrown first.
    if (tag == kCxxDependent) {
      thrown.pointer = (static_cast<CxaException*>(thrown.pointer) - 1)->type;
    }
    thrown.type = (static_cast<CxaException*>(thrown.pointer) - 1)->type;
  }
  return thrown;
}

struct Landing {
  uintptr_t pad = 0;  // 0: nothing here
  int selector = 0;   // 0: a cleanup
  bool found_site = false;
};

Landing FindLanding(const uint8_t* table, _Unwind_Context* context, Thrown* thrown) {
  Landing landing;
  Reader reader(table);
  uintptr_t start = _Unwind_GetRegionStart(context), pads = start;
  uint8_t encoding = reader.Byte();
  if (encoding != kOmit) pads = reader.Encoded(encoding);
  const uint8_t type_encoding = reader.Byte();
  const uint8_t* types = nullptr;
  if (type_encoding != kOmit) {
    uint64_t offset = reader.Uleb();
    types = reader.at() + offset;
  }
  const uint8_t site_encoding = reader.Byte();
  uint64_t sites = reader.Uleb();
  const uint8_t* actions = reader.at() + sites;
  int before = 0;
  uintptr_t ip = _Unwind_GetIPInfo(context, &before);
  if (!before) --ip;

  while (reader.at() < actions) {
    uintptr_t from = start + reader.Encoded(site_encoding);
    uintptr_t length = reader.Encoded(site_encoding);
    uintptr_t pad = reader.Encoded(site_encoding);
    uint64_t action = reader.Uleb();
    if (ip < from) break;
    if (ip >= from + length) continue;
    landing.found_site = true;
    if (!pad) return landing;
    pad += pads;
    if (!action) {
      landing.pad = pad;
      return landing;
    }
    for (const uint8_t* record = actions + action - 1;;) {
      Reader chain(record);
      int64_t filter = chain.Sleb();
      const uint8_t* next = chain.at();
      int64_t distance = chain.Sleb();
      bool taken = false;
      if (filter == 0) {
        landing.pad = pad;
      } else if (filter > 0) {
        Reader entry(types - uint64_t(filter) * EncodedSize(type_encoding));
        taken = thrown->Matches(entry.Encoded(type_encoding));
      } else {
        // throw(): the list of allowed types is empty. C++17 has no other specification.
        taken = !thrown->forced && Reader(types - filter - 1).Uleb() == 0;
      }
      if (taken) {
        landing.pad = pad;
        landing.selector = int(filter);
        return landing;
      }
      if (distance == 0) return landing;
      record = next + distance;
    }
  }
  return landing;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) _Unwind_Reason_Code
__gnu_objc_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class,
                          _Unwind_Exception* header, _Unwind_Context* context) {
  if (version != 1) return _URC_FATAL_PHASE1_ERROR;
  auto* table = reinterpret_cast<const uint8_t*>(_Unwind_GetLanguageSpecificData(context));
  if (!table) return _URC_CONTINUE_UNWIND;
  Thrown thrown = Describe(header, actions);
  Landing landing = FindLanding(table, context, &thrown);
  // Out of a call that cannot throw.
  if (!landing.found_site && thrown.cxx) std::terminate();
  if (actions & _UA_SEARCH_PHASE) {
    return landing.pad && landing.selector ? _URC_HANDLER_FOUND : _URC_CONTINUE_UNWIND;
  }
  if (!landing.pad) return _URC_CONTINUE_UNWIND;
  auto value = reinterpret_cast<uintptr_t>(header);
  if (landing.selector && thrown.cxx) {
    auto* front = reinterpret_cast<CxaException*>(header + 1) - 1;
    front->handler_switch_value = landing.selector;
    front->language_specific_data = table;
    front->catch_temp = landing.pad;
    front->adjusted_pointer = thrown.pointer;
  } else if (landing.selector && thrown.objc) {
    // @catch gets the object, and the rest is not freed later.
    value = reinterpret_cast<uintptr_t>(thrown.object);
    _Unwind_DeleteException(header);
  }
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), value);
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(1), uintptr_t(intptr_t(landing.selector)));
  _Unwind_SetIP(context, landing.pad);
  return _URC_INSTALL_CONTEXT;
}
