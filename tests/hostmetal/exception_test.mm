// C++ and Objective-C exceptions through Objective-C++ frames.
#include <exception>
#include <stdexcept>

#include "tests/hostmetal/harness.h"

namespace {

struct Counter {
  explicit Counter(int* n) : n_(n) {}
  ~Counter() { ++*n_; }
  int* n_;
};

struct Left {
  int left = 1;
  virtual ~Left() = default;
};
struct Right {
  int right = 2;
  virtual ~Right() = default;
};
struct Both : Left, Right {};

__attribute__((noinline)) void ThrowStd(int* cleaned) {
  Counter counter(cleaned);
  @autoreleasepool {
    throw std::runtime_error("from C++");
  }
}

__attribute__((noinline)) void ThrowObjc(int* cleaned) {
  Counter counter(cleaned);
  [NSException raise:NSInvalidArgumentException format:@"from %s", "Objective-C"];
}

// The way of a kernel: C++ handlers inside, Objective-C's around them.
template <typename Body>
std::string Guarded(Body body) {
  std::string said = "nothing";
  @try {
    try {
      body();
    } catch (const std::bad_alloc&) {
      said = "bad_alloc";
    } catch (const std::exception& e) {
      said = std::string("std: ") + e.what();
    }
  } @catch (NSException* e) {
    said = "objc: " + harness::Text([e reason]);
  }
  return said;
}

}  // namespace

TEST(exceptions_of_both_languages_in_one_frame) {
  int cleaned = 0;
  CHECK_EQ(Guarded([] {}), "nothing");
  CHECK_EQ(Guarded([&] { ThrowStd(&cleaned); }), "std: from C++");
  CHECK_EQ(Guarded([&] { ThrowObjc(&cleaned); }), "objc: from Objective-C");
  CHECK_EQ(Guarded([] { throw std::bad_alloc(); }), "bad_alloc");
  CHECK_EQ(cleaned, 2);
}

TEST(exceptions_pass_frames_of_the_other_language) {
  int cleaned = 0;
  std::string said;
  try {
    @try {
      ThrowStd(&cleaned);
    } @catch (NSException* e) {
      said = "wrong";
    }
  } catch (const std::runtime_error& e) {
    said = e.what();
  }
  CHECK_EQ(said, "from C++");
  @try {
    try {
      ThrowObjc(&cleaned);
    } catch (const std::exception&) {
      said = "wrong";
    } catch (int) {
      said = "wrong";
    }
  } @catch (NSException* e) {
    said = harness::Text([e name]);
  }
  CHECK_EQ(said, "NSInvalidArgumentException");
  CHECK_EQ(cleaned, 2);
}

TEST(exceptions_of_cxx_are_matched_by_type) {
  std::string said;
  auto caught = [&](auto thrower) {
    try {
      thrower();
    } catch (const Right& right) {
      said = "right " + std::to_string(right.right);
    } catch (int value) {
      said = "int " + std::to_string(value);
    } catch (const char* text) {
      said = text;
    } catch (Left* left) {
      said = "pointer " + std::to_string(left->left);
    } catch (...) {
      said = "other";
    }
    return said;
  };
  static Both both;
  CHECK_EQ(caught([] { throw Both(); }), "right 2");
  CHECK_EQ(caught([] { throw 7; }), "int 7");
  CHECK_EQ(caught([] { throw "text"; }), "text");
  CHECK_EQ(caught([] { throw static_cast<Both*>(&both); }), "pointer 1");
  CHECK_EQ(caught([] { throw 7.0; }), "other");
}

TEST(exceptions_are_thrown_again) {
  int cleaned = 0;
  std::string said;
  try {
    try {
      ThrowStd(&cleaned);
    } catch (...) {
      throw;
    }
  } catch (const std::exception& e) {
    said = e.what();
  }
  CHECK_EQ(said, "from C++");
  std::exception_ptr kept;
  try {
    throw Both();
  } catch (...) {
    kept = std::current_exception();
  }
  int right = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      std::rethrow_exception(kept);
    } catch (const Right& caught) {
      right += caught.right;
    }
  }
  CHECK_EQ(right, 4);
  bool finally = false;
  @try {
    @try {
      ThrowObjc(&cleaned);
    } @catch (NSString* text) {
      said = "wrong";
    } @finally {
      finally = true;
    }
  } @catch (NSException* e) {
    said = harness::Text([e reason]);
  }
  CHECK_EQ(said, "from Objective-C");
  CHECK(finally);
  CHECK_EQ(cleaned, 2);
}

TEST(exceptions_reach_catch_of_anything) {
  id caught = nil;
  @try {
    @throw [NSString stringWithUTF8String:"an object"];
  } @catch (id object) {
    caught = object;
  }
  CHECK_EQ(harness::Text(caught), "an object");
}
