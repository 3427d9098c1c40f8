#import "Engine.h"

#include <iostream>
#include <vector>

#import "Adder.h"

int run_engine(const float* a, const float* b, int count) {
  @autoreleasepool {
    NSError* error = nil;
    id<MTLDevice> device = [MTLCreateSystemDefaultDevice() autorelease];
    Adder* adder = [[[Adder alloc] initWithDevice:device error:&error] autorelease];
    if (!adder) {
      std::cerr << error.localizedDescription.UTF8String << "\n";
      return 1;
    }
    [adder setNumbers:a count:count forName:@"a"];
    [adder setNumbers:b count:count forName:@"b"];
    NSArray<NSNumber*>* sum = [adder sum];
    std::vector<float> numbers;
    for (NSNumber* number in sum) numbers.push_back(number.floatValue);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != a[i] + b[i]) return 2;
    }
    NSDictionary* result = @{@"count" : @(numbers.size()), @"last" : sum[numbers.size() - 1]};
    std::cout << [result[@"count"] intValue] << " sums, the last is "
              << [result[@"last"] floatValue] << "\n";
  }
  return 0;
}
