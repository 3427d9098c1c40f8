// The C functions that nearly every header of a Mac's C++ library brings, for the headers of the same names
// here: programs call std::memcpy and std::sqrt without including their own. None of these comes back to a
// header of C++'s own.
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
