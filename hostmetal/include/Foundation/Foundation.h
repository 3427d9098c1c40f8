// GNUstep's Foundation, and Apple's functions that hosts call and that it does not have:
// hostmetal/src/foundation.mm.
#ifndef HOSTMETAL_FOUNDATION_FOUNDATION_H_
#define HOSTMETAL_FOUNDATION_FOUNDATION_H_

#include_next <Foundation/Foundation.h>
// As Apple's does.
#include <CoreFoundation/CoreFoundation.h>
#include <mach/mach.h>

#ifdef __OBJC__

// A reference that the caller releases, of an object, and back.
#if __has_feature(objc_arc)
static inline CFTypeRef CFBridgingRetain(id object) { return (__bridge_retained CFTypeRef)object; }
static inline id CFBridgingRelease(CFTypeRef object) { return (__bridge_transfer id)object; }
#else
static inline CFTypeRef CFBridgingRetain(id object) { return CFRetain((CFTypeRef)object); }
static inline id CFBridgingRelease(CFTypeRef object) { return (id)CFAutorelease(object); }
#endif

typedef NSUInteger NSDataReadingOptions;

@interface NSData (Hostmetal)
+ (instancetype)dataWithContentsOfFile:(NSString*)path
                               options:(NSDataReadingOptions)options
                                 error:(NSError**)error;
+ (instancetype)dataWithContentsOfURL:(NSURL*)url
                              options:(NSDataReadingOptions)options
                                error:(NSError**)error;
- (instancetype)initWithContentsOfFile:(NSString*)path
                               options:(NSDataReadingOptions)options
                                 error:(NSError**)error;
- (instancetype)initWithContentsOfURL:(NSURL*)url
                              options:(NSDataReadingOptions)options
                                error:(NSError**)error;
@end

// Newer releases of GNUstep bring their own.
#if GNUSTEP_BASE_MINOR_VERSION < 29
typedef struct {
  NSInteger majorVersion;
  NSInteger minorVersion;
  NSInteger patchVersion;
} NSOperatingSystemVersion;

typedef NS_ENUM(NSInteger, NSProcessInfoThermalState) {
  NSProcessInfoThermalStateNominal = 0,
  NSProcessInfoThermalStateFair = 1,
  NSProcessInfoThermalStateSerious = 2,
  NSProcessInfoThermalStateCritical = 3,
};

@interface NSProcessInfo (Hostmetal)
// The macOS whose Metal this is, 15.0, with residency sets, math modes and Metal 3.2: hosts ask for
// it to know which API they may call.
- (NSOperatingSystemVersion)operatingSystemVersion;
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version;
- (NSProcessInfoThermalState)thermalState;
- (BOOL)isLowPowerModeEnabled;
@end
#endif

@interface NSFileManager (Hostmetal)
- (NSURL*)temporaryDirectory;
- (NSString*)destinationOfSymbolicLinkAtPath:(NSString*)path error:(NSError**)error;
@end

#endif  // __OBJC__

#endif  // HOSTMETAL_FOUNDATION_FOUNDATION_H_
