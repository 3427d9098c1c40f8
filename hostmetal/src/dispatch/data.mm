// dispatch_data_t: immutable bytes in one region.
#include <stdlib.h>
#include <string.h>

#include "hostmetal/src/dispatch/dispatch_object.h"

@interface HMDispatchData : HMDispatchObject <OS_dispatch_data> {
 @public
  const void* _bytes;
  size_t _size;
  dispatch_queue_t _queue;
  dispatch_block_t _destructor;
}
@end

@implementation HMDispatchData
- (void)dealloc {
  if (_destructor) {
    if (_destructor == _dispatch_data_destructor_free) {
      free(const_cast<void*>(_bytes));
    } else {
      dispatch_async(_queue ? _queue : dispatch_get_global_queue(0, 0), _destructor);
    }
    Block_release(_destructor);
  }
  [_queue release];
  [super dealloc];
}
@end

// Never called: its address says that the bytes go to free().
extern "C" const dispatch_block_t _dispatch_data_destructor_free = ^{
};

dispatch_data_t dispatch_data_create(const void* buffer, size_t size, dispatch_queue_t queue,
                                     dispatch_block_t destructor) {
  HMDispatchData* data = [[HMDispatchData alloc] init];
  data->_size = size;
  data->_queue = [queue retain];
  if (destructor) {
    data->_bytes = buffer;
    data->_destructor = Block_copy(destructor);
    return data;
  }
  void* copy = malloc(size ? size : 1);
  if (!copy) {
    [data release];
    return nil;
  }
  memcpy(copy, buffer, size);
  data->_bytes = copy;
  data->_destructor = _dispatch_data_destructor_free;
  return data;
}

size_t dispatch_data_get_size(dispatch_data_t data) {
  return static_cast<HMDispatchData*>(data)->_size;
}

dispatch_data_t dispatch_data_create_map(dispatch_data_t data, const void** buffer, size_t* size) {
  auto* object = static_cast<HMDispatchData*>(data);
  if (buffer) *buffer = object->_bytes;
  if (size) *size = object->_size;
  return [object retain];
}
