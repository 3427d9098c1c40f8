#import "Engine.h"
#import "numbers.h"

int main(int argc, const char* argv[]) {
  float a[100], b[100];
  fill_numbers(a, 100, 1.0f);
  fill_numbers(b, 100, 0.5f);
  return run_engine(a, b, 100);
}
