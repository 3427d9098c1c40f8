// Types of macOS's kernel that programs name around Metal, and its pages of memory; there are no tasks
// and ports here.
#ifndef HOSTMETAL_MACH_H_
#define HOSTMETAL_MACH_H_

#include <mach/vm_page_size.h>
#include <sys/mman.h>

typedef int kern_return_t;
typedef unsigned int mach_port_t;
typedef mach_port_t task_id_token_t;
typedef mach_port_t vm_map_t;
typedef uintptr_t vm_address_t;

#define KERN_SUCCESS 0
#define KERN_INVALID_ADDRESS 1
#define KERN_NO_SPACE 3
#define KERN_INVALID_ARGUMENT 4
#define VM_FLAGS_FIXED 0
#define VM_FLAGS_ANYWHERE 1

// This process is the only one there is.
static inline mach_port_t mach_task_self(void) { return 1; }

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
