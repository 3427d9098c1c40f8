// What nearly every header of a Mac's C++ library brings of C's, for those of the same names here: programs call
// std::memcpy and std::sqrt without asking for them. None of these comes back to a header of C++'s own.
#pragma clang system_header
#include <cctype>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
