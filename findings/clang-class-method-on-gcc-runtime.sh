#!/bin/bash
# A class method added at run time to a class that clang compiled for GCC's Objective-C runtime: class_addMethod says YES,
# and the method is not found. Of the same file compiled by GCC it is. Needs Debian's clang-19, gobjc and libobjc-12-dev.
set -eu
for tool in clang-19 gcc; do
  command -v $tool > /dev/null || { echo "$tool is missing: apt-get install clang-19 gobjc libobjc-12-dev"; exit 2; }
done
include=$(gcc -print-file-name=include)
[ -e "$include/objc/runtime.h" ] || { echo "objc/runtime.h is missing: apt-get install libobjc-12-dev"; exit 2; }
[ -x "$(gcc -print-prog-name=cc1obj)" ] || { echo "GCC's Objective-C is missing: apt-get install gobjc"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > own.m <<'END'
#include <objc/runtime.h>
#include <stdio.h>
@interface Own { Class isa; }
@end
@implementation Own
@end
static int nine(id self, SEL name) { return 9; }
int main(void) {
  Class of_class = object_getClass((id)objc_lookUpClass("Own"));
  SEL name = sel_registerTypedName("nine", "i16@0:8");
  int added = class_addMethod(of_class, name, (IMP)nine, "i16@0:8");
  printf("added %d, found %d\n", added, class_getInstanceMethod(of_class, name) != 0);
  return 0;
}
END
clang-19 -w -fobjc-runtime=gcc -idirafter "$include" own.m -L"$(dirname "$(gcc -print-file-name=libobjc.so)")" -lobjc -o by_clang
gcc -w own.m -lobjc -o by_gcc
clang-19 --version | head -1
gcc --version | head -1
echo "expected: added 1, found 1 (by gcc: $(./by_gcc))"
got=$(./by_clang)
echo "got:      $got (by clang)"
[ "$(./by_gcc)" = "added 1, found 1" ] && [ "$got" = "added 1, found 0" ]
