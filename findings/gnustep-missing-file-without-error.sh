#!/bin/bash
# NSString's stringWithContentsOfFile:encoding:error: of a missing file: expected was nil and an NSError, as for a
# file that is not UTF-8. GNUstep returns nil and leaves the error nil, too.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v gnustep-config > /dev/null && gcc -x objective-c -c /dev/null -o "$folder/none.o" 2> /dev/null ||
  { echo "needs: apt-get install gobjc libgnustep-base-dev"; exit 2; }
cd "$folder"
printf '\xff\xfe\x80' > bytes
cat > read.m <<'EOF'
#import <Foundation/Foundation.h>
#define TEXT(x) #x
#define VERSION(x) TEXT(x)
static int told(NSString *path) {
  NSError *error = nil;
  NSString *text = [NSString stringWithContentsOfFile:path encoding:NSUTF8StringEncoding error:&error];
  printf("got: %s and %s error of %s\n", text ? "text" : "nil", error ? "an" : "no", [path UTF8String]);
  return error != nil;
}
int main(void) {
  NSAutoreleasePool *pool = [NSAutoreleasePool new];
  printf("GNUstep base %s\nexpected: nil and an error of both files\n", VERSION(GNUSTEP_BASE_VERSION));
  int damaged = told(@"bytes"), missing = told(@"missing");
  [pool drain];
  return damaged && !missing ? 0 : 1;
}
EOF
gcc $(gnustep-config --objc-flags | sed 's/-MMD//; s/-MP//') read.m -o read $(gnustep-config --base-libs)
./read
