// The headers that streams bring in a Mac's C++ library. libstdc++'s own headers come to <sstream> from few others,
// <ios> and <string> not among them.
#pragma clang system_header
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <vector>

#include "c_library.h"
