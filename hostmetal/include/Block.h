// Blocks ABI entry points, implemented in hostmetal/src/blocks.mm: captured Objective-C objects are
// retained, and blocks are objects. Link libhostmetal and not -lBlocksRuntime, which does neither.
#ifndef HOSTMETAL_BLOCK_H_
#define HOSTMETAL_BLOCK_H_

#ifdef __cplusplus
extern "C" {
#endif

void* _Block_copy(const void* block);
void _Block_release(const void* block);
// Called by compiler-generated copy and dispose helpers.
void _Block_object_assign(void* destination, const void* object, const int flags);
void _Block_object_dispose(const void* object, const int flags);

#ifdef __cplusplus
}
#endif

#define Block_copy(...) ((__typeof(__VA_ARGS__))_Block_copy((const void*)(__VA_ARGS__)))
#define Block_release(...) _Block_release((const void*)(__VA_ARGS__))

#endif  // HOSTMETAL_BLOCK_H_
