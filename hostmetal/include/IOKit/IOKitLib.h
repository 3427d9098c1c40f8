// IOKit's registry, as far as programs ask it for the GPU: an entry for each device of Metal's, with the number of its
// cores. hostmetal/src/io_registry.mm.
#ifndef HOSTMETAL_IOKIT_IOKITLIB_H_
#define HOSTMETAL_IOKIT_IOKITLIB_H_

#include <CoreFoundation/CoreFoundation.h>
#include <mach/mach.h>

typedef mach_port_t io_object_t;
typedef io_object_t io_iterator_t;
typedef io_object_t io_registry_entry_t;
typedef io_object_t io_service_t;
typedef kern_return_t IOReturn;
typedef uint32_t IOOptionBits;
typedef char io_name_t[128];

#define IO_OBJECT_NULL ((io_object_t)0)
#define kIOReturnSuccess 0
#define kIOReturnNotFound ((IOReturn)0xe00002f0)
#define kIOReturnBadArgument ((IOReturn)0xe00002c2)
#define kIOMainPortDefault ((mach_port_t)0)
#define kIOMasterPortDefault kIOMainPortDefault
#define kNilOptions 0
#define kIOServicePlane "IOService"
#define kIOProviderClassKey "IOProviderClass"
#define kIOAcceleratorClassName "IOAccelerator"
enum { kIORegistryIterateRecursively = 1, kIORegistryIterateParents = 2 };

#ifdef __cplusplus
extern "C" {
#endif

// By the class "AGXAccelerator", or one that it is of: "IOAccelerator", "IOGPU", "IOService". Others have no entries.
CFMutableDictionaryRef IOServiceMatching(const char* name);
// By MTLDevice's registryID.
CFMutableDictionaryRef IORegistryEntryIDMatching(uint64_t id);

// These release the dictionary. 0 where no entry matches.
io_service_t IOServiceGetMatchingService(mach_port_t port, CFDictionaryRef matching);
kern_return_t IOServiceGetMatchingServices(mach_port_t port, CFDictionaryRef matching,
                                           io_iterator_t* found);
io_object_t IOIteratorNext(io_iterator_t iterator);
void IOIteratorReset(io_iterator_t iterator);

kern_return_t IOObjectRetain(io_object_t object);
kern_return_t IOObjectRelease(io_object_t object);
Boolean IOObjectConformsTo(io_object_t object, const io_name_t name);

kern_return_t IORegistryEntryGetRegistryEntryID(io_registry_entry_t entry, uint64_t* id);
// "gpu-core-count", a number, and "model", a string. NULL for others.
CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key,
                                          CFAllocatorRef allocator, IOOptionBits options);
CFTypeRef IORegistryEntrySearchCFProperty(io_registry_entry_t entry, const io_name_t plane,
                                          CFStringRef key, CFAllocatorRef allocator,
                                          IOOptionBits options);
kern_return_t IORegistryEntryCreateCFProperties(io_registry_entry_t entry,
                                                CFMutableDictionaryRef* properties,
                                                CFAllocatorRef allocator, IOOptionBits options);

#ifdef __cplusplus
}
#endif

#endif  // HOSTMETAL_IOKIT_IOKITLIB_H_
