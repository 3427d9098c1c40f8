// IOKit's registry of Metal's devices.
#include <IOKit/IOKitLib.h>
#import <Metal/Metal.h>
#include <string.h>

#include <map>
#include <mutex>
#include <vector>

#include "hostmetal/src/device.h"

namespace {

NSString* const kClassKey = @kIOProviderClassKey;
NSString* const kIdKey = @"IORegistryEntryID";

// An entry of a device, or an iterator over entries.
struct Object {
  int references = 1;
  HMDevice* device = nil;
  std::vector<HMDevice*> devices;
  size_t next = 0;
};

struct Objects {
  std::mutex mutex;
  std::map<io_object_t, Object> all;
  io_object_t last = 0;
};
Objects& TheObjects() {
  static auto* objects = new Objects;
  return *objects;
}

// For the holder of the lock.
io_object_t Add(Object object) {
  Objects& objects = TheObjects();
  while (!++objects.last || objects.all.count(objects.last)) {
  }
  objects.all.emplace(objects.last, std::move(object));
  return objects.last;
}

Object* Find(io_object_t name) {
  auto found = TheObjects().all.find(name);
  return found == TheObjects().all.end() ? nullptr : &found->second;
}

bool IsOfClass(const char* name) {
  for (const char* known : {"AGXAccelerator", kIOAcceleratorClassName, "IOGPU", "IOService"}) {
    if (!strcmp(name, known)) return true;
  }
  return false;
}

// Devices live as long as the process.
std::vector<HMDevice*> Matching(CFDictionaryRef dictionary) {
  std::vector<HMDevice*> found;
  @autoreleasepool {
    NSDictionary* matching = [(NSDictionary*)dictionary autorelease];
    NSString* name = [matching objectForKey:kClassKey];
    NSNumber* id_of_one = [matching objectForKey:kIdKey];
    if (!name && !id_of_one) return found;
    if (name && !IsOfClass([name UTF8String])) return found;
    for (id<MTLDevice> device in [MTLCopyAllDevices() autorelease]) {
      if (id_of_one && [id_of_one unsignedLongLongValue] != [device registryID]) continue;
      found.push_back((HMDevice*)device);
    }
  }
  return found;
}

HMDevice* DeviceOf(io_registry_entry_t entry) {
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  const Object* object = Find(entry);
  return object ? object->device : nil;
}

NSMutableDictionary* Properties(HMDevice* device) {
  return [NSMutableDictionary
      dictionaryWithObjectsAndKeys:[NSNumber numberWithInt:int(device->_driver->info().cores)],
                                   @"gpu-core-count", [device name], @"model", nil];
}

}  // namespace

CFMutableDictionaryRef IOServiceMatching(const char* name) {
  NSString* text = name ? [[NSString alloc] initWithUTF8String:name] : nil;
  if (!text) return nullptr;
  auto* matching = [[NSMutableDictionary alloc] initWithObjectsAndKeys:text, kClassKey, nil];
  [text release];
  return (CFMutableDictionaryRef)matching;
}
CFMutableDictionaryRef IORegistryEntryIDMatching(uint64_t id) {
  NSNumber* number = [[NSNumber alloc] initWithUnsignedLongLong:id];
  auto* matching = [[NSMutableDictionary alloc] initWithObjectsAndKeys:number, kIdKey, nil];
  [number release];
  return (CFMutableDictionaryRef)matching;
}

io_service_t IOServiceGetMatchingService(mach_port_t, CFDictionaryRef matching) {
  const std::vector<HMDevice*> found = Matching(matching);
  if (found.empty()) return IO_OBJECT_NULL;
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  Object entry;
  entry.device = found[0];
  return Add(std::move(entry));
}
kern_return_t IOServiceGetMatchingServices(mach_port_t, CFDictionaryRef matching,
                                           io_iterator_t* found) {
  Object iterator;
  iterator.devices = Matching(matching);
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  *found = Add(std::move(iterator));
  return kIOReturnSuccess;
}
io_object_t IOIteratorNext(io_iterator_t iterator) {
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  Object* object = Find(iterator);
  if (!object || object->next >= object->devices.size()) return IO_OBJECT_NULL;
  Object entry;
  entry.device = object->devices[object->next++];
  return Add(std::move(entry));
}
void IOIteratorReset(io_iterator_t iterator) {
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  if (Object* object = Find(iterator)) object->next = 0;
}

kern_return_t IOObjectRetain(io_object_t name) {
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  Object* object = Find(name);
  if (!object) return kIOReturnBadArgument;
  ++object->references;
  return kIOReturnSuccess;
}
kern_return_t IOObjectRelease(io_object_t name) {
  std::lock_guard<std::mutex> lock(TheObjects().mutex);
  Object* object = Find(name);
  if (!object) return kIOReturnBadArgument;
  if (!--object->references) TheObjects().all.erase(name);
  return kIOReturnSuccess;
}
Boolean IOObjectConformsTo(io_object_t object, const io_name_t name) {
  return DeviceOf(object) && IsOfClass(name);
}

kern_return_t IORegistryEntryGetRegistryEntryID(io_registry_entry_t entry, uint64_t* id) {
  HMDevice* device = DeviceOf(entry);
  if (!device) return kIOReturnBadArgument;
  *id = [device registryID];
  return kIOReturnSuccess;
}
CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key,
                                          CFAllocatorRef, IOOptionBits) {
  HMDevice* device = DeviceOf(entry);
  if (!device) return nullptr;
  @autoreleasepool {
    return (CFTypeRef)[[Properties(device) objectForKey:(id)key] retain];
  }
}
CFTypeRef IORegistryEntrySearchCFProperty(io_registry_entry_t entry, const io_name_t,
                                          CFStringRef key, CFAllocatorRef allocator,
                                          IOOptionBits options) {
  return IORegistryEntryCreateCFProperty(entry, key, allocator, options);
}
kern_return_t IORegistryEntryCreateCFProperties(io_registry_entry_t entry,
                                                CFMutableDictionaryRef* properties, CFAllocatorRef,
                                                IOOptionBits) {
  HMDevice* device = DeviceOf(entry);
  if (!device) return kIOReturnBadArgument;
  @autoreleasepool {
    *properties = (CFMutableDictionaryRef)[Properties(device) retain];
  }
  return kIOReturnSuccess;
}
