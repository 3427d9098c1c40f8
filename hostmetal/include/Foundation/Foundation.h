// GNUstep's Foundation, and what hosts call of Apple's that it has not: hostmetal/src/foundation.mm.
#ifndef HOSTMETAL_FOUNDATION_FOUNDATION_H_
#define HOSTMETAL_FOUNDATION_FOUNDATION_H_

#include_next <Foundation/Foundation.h>

#ifdef __OBJC__

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
// The macOS whose Metal this is, 14.0: hosts ask so for what they may call.
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
