// The one CoreFoundation type that Metal's signatures use.
#ifndef HOSTMETAL_CFDATE_H_
#define HOSTMETAL_CFDATE_H_

typedef double CFTimeInterval;

#endif  // HOSTMETAL_CFDATE_H_
