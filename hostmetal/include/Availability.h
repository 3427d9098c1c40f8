// Availability annotations of Apple's SDK; there is one version of hostmetal, so they say nothing.
// @available and __builtin_available do: they ask for a macOS, and macOS 15 is the one whose Metal
// this is, as NSProcessInfo says. clang knows no platform here, and would take everything for
// available.
#ifndef HOSTMETAL_AVAILABILITY_H_
#define HOSTMETAL_AVAILABILITY_H_

#include <TargetConditionals.h>

#define __MAC_10_15 101500
#define __MAC_11_0 110000
#define __MAC_12_0 120000
#define __MAC_13_0 130000
#define __MAC_14_0 140000
#define __MAC_15_0 150000
#define __MAC_OS_X_VERSION_MIN_REQUIRED __MAC_14_0
#define __MAC_OS_X_VERSION_MAX_ALLOWED __MAC_15_0
#define hostmetal_macos (__MAC_OS_X_VERSION_MAX_ALLOWED / 10000)

#ifndef API_AVAILABLE
#define API_AVAILABLE(...)
#define API_UNAVAILABLE(...)
#define API_DEPRECATED(...)
#define API_DEPRECATED_WITH_REPLACEMENT(...)
#define API_AVAILABLE_BEGIN(...)
#define API_AVAILABLE_END
#define API_UNAVAILABLE_BEGIN(...)
#define API_UNAVAILABLE_END
#endif

// Whether "macOS 15.1, iOS 18, *" holds on macOS 15.0. Platforms other than macOS fall under the *.
__attribute__((const, unused)) static inline int hostmetal_available(const char* asked) {
  for (; *asked; ++asked) {
    if (__builtin_strncmp(asked, "macOS", 5) && __builtin_strncmp(asked, "macos", 5)) continue;
    for (asked += 5; *asked && *asked != ',' && (*asked < '0' || *asked > '9');) ++asked;
    int major = 0;
    while (*asked >= '0' && *asked <= '9') major = major * 10 + (*asked++ - '0');
    if (major != hostmetal_macos) return major < hostmetal_macos;
    for (; *asked == '.' || *asked == '_' || *asked == '0';) ++asked;
    return *asked < '1' || *asked > '9';
  }
  return 1;
}

#define HOSTMETAL_AVAILABLE_(...) #__VA_ARGS__
#define HOSTMETAL_AVAILABLE(...) hostmetal_available(HOSTMETAL_AVAILABLE_(__VA_ARGS__))
#define __builtin_available(...) (HOSTMETAL_AVAILABLE(__VA_ARGS__) != 0)

#ifdef __OBJC__
// The @ becomes @encode(int)[0] or [1]: not 0, and 0. A function of this name is still called, as
// its first argument is no platform; one that does not begin with a word does not parse.
#define available(...)                                                               \
  HOSTMETAL_SECOND(HOSTMETAL_PLATFORM(__VA_ARGS__, ), HOSTMETAL_ANOTHER_AVAILABLE, ) \
  (__VA_ARGS__)
#define HOSTMETAL_AT_AVAILABLE(...) encode(int)[!HOSTMETAL_AVAILABLE(__VA_ARGS__)]
#define HOSTMETAL_ANOTHER_AVAILABLE(...) available(__VA_ARGS__)
#define HOSTMETAL_SECOND(...) HOSTMETAL_SECOND_(__VA_ARGS__)
#define HOSTMETAL_SECOND_(a, b, ...) b
#define HOSTMETAL_PLATFORM(first, ...) HOSTMETAL_OF_##first
#define HOSTMETAL_OF_macOS , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_macos , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_iOS , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_ios , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_tvOS , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_tvos , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_watchOS , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_watchos , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_visionOS , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_visionos , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_macCatalyst , HOSTMETAL_AT_AVAILABLE,
#define HOSTMETAL_OF_maccatalyst , HOSTMETAL_AT_AVAILABLE,
#endif

#endif  // HOSTMETAL_AVAILABILITY_H_
