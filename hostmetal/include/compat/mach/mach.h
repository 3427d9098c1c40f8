// Types of macOS's kernel that programs name around Metal, its pages of memory, and how much of it the machine and the process
// have: hostmetal/src/mach_host.mm. There are no other tasks and ports here.
#ifndef HOSTMETAL_MACH_H_
#define HOSTMETAL_MACH_H_

#include <mach/vm_page_size.h>
#include <sys/mman.h>

typedef int kern_return_t;
typedef unsigned int mach_port_t;
typedef mach_port_t task_id_token_t;
typedef mach_port_t vm_map_t;
typedef uintptr_t vm_address_t;

typedef mach_port_t host_t;
typedef mach_port_t task_t;
typedef unsigned int natural_t;
typedef int integer_t;
typedef natural_t mach_msg_type_number_t;
typedef uint64_t mach_vm_address_t;
typedef uint64_t mach_vm_size_t;

#ifndef MACH_PORT_NULL
#define MACH_PORT_NULL 0
#endif
#define KERN_SUCCESS 0
#define KERN_INVALID_ADDRESS 1
#define KERN_NO_SPACE 3
#define KERN_INVALID_ARGUMENT 4
#define VM_FLAGS_FIXED 0
#define VM_FLAGS_ANYWHERE 1

// This process is the only one there is.
static inline mach_port_t mach_task_self(void) { return 1; }
#define mach_task_self_ 1
static inline mach_port_t mach_host_self(void) { return 2; }
static inline kern_return_t mach_port_deallocate(task_t task, mach_port_t port) {
  (void)task;
  return port == 2 ? KERN_SUCCESS : KERN_INVALID_ARGUMENT;
}

// In pages. Numbers that Linux does not count are 0.
struct vm_statistics64 {
  natural_t free_count;
  natural_t active_count;
  natural_t inactive_count;
  natural_t wire_count;
  uint64_t zero_fill_count;
  uint64_t reactivations;
  uint64_t pageins;
  uint64_t pageouts;
  uint64_t faults;
  uint64_t cow_faults;
  uint64_t lookups;
  uint64_t hits;
  uint64_t purges;
  natural_t purgeable_count;
  natural_t speculative_count;
  uint64_t decompressions;
  uint64_t compressions;
  uint64_t swapins;
  uint64_t swapouts;
  natural_t compressor_page_count;
  natural_t throttled_count;
  natural_t external_page_count;
  natural_t internal_page_count;
  uint64_t total_uncompressed_pages_in_compressor;
};
typedef struct vm_statistics64 vm_statistics64_data_t;
typedef vm_statistics64_data_t* vm_statistics64_t;
typedef integer_t* host_info64_t;
typedef int host_flavor_t;
#define HOST_VM_INFO64 4
#define HOST_VM_INFO64_COUNT \
  ((mach_msg_type_number_t)(sizeof(vm_statistics64_data_t) / sizeof(integer_t)))

// In bytes.
struct mach_task_basic_info {
  mach_vm_size_t virtual_size;
  mach_vm_size_t resident_size;
  mach_vm_size_t resident_size_max;
};
typedef struct mach_task_basic_info mach_task_basic_info_data_t;
typedef mach_task_basic_info_data_t* mach_task_basic_info_t;
struct task_vm_info {
  mach_vm_size_t virtual_size;
  mach_vm_size_t resident_size;
  mach_vm_size_t resident_size_peak;
  mach_vm_size_t phys_footprint;
};
typedef struct task_vm_info task_vm_info_data_t;
typedef task_vm_info_data_t* task_vm_info_t;
typedef integer_t* task_info_t;
typedef natural_t task_flavor_t;
#define MACH_TASK_BASIC_INFO 20
#define TASK_VM_INFO 22
#define MACH_TASK_BASIC_INFO_COUNT \
  ((mach_msg_type_number_t)(sizeof(mach_task_basic_info_data_t) / sizeof(natural_t)))
#define TASK_VM_INFO_COUNT \
  ((mach_msg_type_number_t)(sizeof(task_vm_info_data_t) / sizeof(natural_t)))

#ifdef __cplusplus
extern "C" {
#endif
// These flavors alone; others are KERN_INVALID_ARGUMENT.
kern_return_t host_page_size(host_t host, vm_size_t* size);
kern_return_t host_statistics64(host_t host, host_flavor_t flavor, host_info64_t info,
                                mach_msg_type_number_t* count);
kern_return_t task_info(task_t task, task_flavor_t flavor, task_info_t info,
                        mach_msg_type_number_t* count);
#ifdef __cplusplus
}
#endif

// Zeroed memory of whole pages.
static inline kern_return_t vm_allocate(vm_map_t task, vm_address_t* address, vm_size_t size,
                                        int flags) {
  (void)task;
  if (!(flags & VM_FLAGS_ANYWHERE)) return KERN_INVALID_ARGUMENT;
  if (size == 0) {
    *address = 0;
    return KERN_SUCCESS;
  }
  void* found = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return KERN_NO_SPACE;
  *address = (vm_address_t)found;
  return KERN_SUCCESS;
}

static inline kern_return_t vm_deallocate(vm_map_t task, vm_address_t address, vm_size_t size) {
  (void)task;
  if (size == 0) return KERN_SUCCESS;
  return munmap((void*)address, size) == 0 ? KERN_SUCCESS : KERN_INVALID_ADDRESS;
}

#endif  // HOSTMETAL_MACH_H_
