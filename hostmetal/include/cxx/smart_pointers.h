// std::unique_ptr and std::shared_ptr, for the headers that bring <memory> in a Mac's library.
// As of C++20 libstdc++'s own headers come back to <string> in the middle of <ios>, <atomic> and others: there <memory>,
// which wants these whole, would find them half done.
#pragma clang system_header
#if __cplusplus <= 201703L
#include <memory>
#elif !defined(_GLIBCXX_MEMORY)  // not in the middle of it either
#define HOSTMETAL_NO_OSTREAM
#include <bits/unique_ptr.h>
#undef HOSTMETAL_NO_OSTREAM
#include <bits/shared_ptr.h>
#endif
