// Types of macOS's kernel that metal-cpp names; there are no tasks and ports here.
#ifndef HOSTMETAL_MACH_H_
#define HOSTMETAL_MACH_H_

typedef int kern_return_t;
typedef unsigned int mach_port_t;
typedef mach_port_t task_id_token_t;

#define KERN_SUCCESS 0

#endif  // HOSTMETAL_MACH_H_
