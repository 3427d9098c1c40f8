// GCC's <objc/message.h>, and Apple's way to send a message by a call: cast these to the method's
// type, as on a Mac.
#ifndef HOSTMETAL_OBJC_MESSAGE_H_
#define HOSTMETAL_OBJC_MESSAGE_H_

#include_next <objc/message.h>

#ifdef __cplusplus
extern "C" {
#endif

void objc_msgSend(void);
#ifdef __x86_64__
void objc_msgSend_fpret(void);
void objc_msgSend_stret(void);
#endif

#ifdef __cplusplus
}
#endif

#endif  // HOSTMETAL_OBJC_MESSAGE_H_
