#!/bin/bash
# Ne(NaN, 1) by Highway: expected was true on every target, as `!=` in C++. It is false for AVX2 and AVX-512, whose
# comparison is an ordered one, and true for SSE4 and below: the same code differs by the machine. (x86 with AVX2)
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
[ -e /usr/include/hwy/highway.h ] || { echo "needs: apt-get install libhwy-dev g++"; exit 2; }
cd "$folder"
cat > ne.cc <<'EOF'
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ne.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <cmath>
#include <cstdio>
HWY_BEFORE_NAMESPACE();
namespace HWY_NAMESPACE {
int Unequal() {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  const int unequal = !AllFalse(d, hwy::HWY_NAMESPACE::Ne(Set(d, std::nanf("")), Set(d, 1.0f)));
  std::printf("%s: %d\n", hwy::TargetName(HWY_TARGET), unequal);
  return unequal;
}
}  // namespace HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
HWY_EXPORT(Unequal);
int main() {
  std::printf("Highway %d.%d\nexpected: 1 on every target\ngot:\n", HWY_MAJOR, HWY_MINOR);
  int seen = 0;
  for (auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    seen |= 1 << HWY_DYNAMIC_DISPATCH(Unequal)();
  }
  return seen == 3 ? 0 : 1;  // both answers
}
#endif
EOF
c++ -I. -O1 -std=c++17 ne.cc -o ne -lhwy && ./ne
