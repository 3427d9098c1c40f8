// The size of a page, a variable on a Mac.
#ifndef HOSTMETAL_MACH_VM_PAGE_SIZE_H_
#define HOSTMETAL_MACH_VM_PAGE_SIZE_H_

#include <stdint.h>
#include <unistd.h>

typedef uintptr_t vm_size_t;

#define vm_page_size ((vm_size_t)sysconf(_SC_PAGESIZE))
#define vm_page_mask (vm_page_size - 1)

#endif  // HOSTMETAL_MACH_VM_PAGE_SIZE_H_
