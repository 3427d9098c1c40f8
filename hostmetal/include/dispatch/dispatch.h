// Umbrella of the dispatch subset that hostmetal implements (hostmetal/src/dispatch).
#ifndef HOSTMETAL_DISPATCH_DISPATCH_H_
#define HOSTMETAL_DISPATCH_DISPATCH_H_

#include <dispatch/base.h>
#include <dispatch/data.h>
#include <dispatch/group.h>
#include <dispatch/object.h>
#include <dispatch/once.h>
#include <dispatch/queue.h>
#include <dispatch/semaphore.h>
#include <dispatch/time.h>

#endif  // HOSTMETAL_DISPATCH_DISPATCH_H_
