// A conversion in a format of os_log. Plain C++: the compiler checks formats with it, and the runtime
// makes text (hostmetal/src/log_message.cc).
#pragma once

namespace _msl {

constexpr bool log_one_of(char c, const char* set) {
  for (; *set; ++set) {
    if (c == *set) return true;
  }
  return false;
}

// A conversion of `format`, which begins behind its %, and where it ends.
struct LogConversion {
  unsigned at = 0;
  unsigned stars = 0;  // arguments that give a width or a precision
  unsigned count = 1;
  int length = 0;  // bytes that the length modifier names; 0 without one
  char letter = 0;

  template <class Text>
  constexpr LogConversion(Text format, unsigned from) : at(from) {
    while (log_one_of(format[at], "-+ #0")) ++at;
    number(format);
    if (format[at] == '.') {
      ++at;
      number(format);
    }
    if (format[at] == 'v') {
      count = unsigned(format[++at] - '0');
      ++at;
      if (count < 2 || count > 4) return;
    }
    if (format[at] == 'h') {
      length = format[at + 1] == 'h' ? 1 : format[at + 1] == 'l' ? 4 : 2;
      at += length == 2 ? 1 : 2;
    } else if (log_one_of(format[at], "lqjzt")) {
      length = 8;
      at += format[at + 1] == 'l' ? 2 : 1;
    }
    letter = format[at];
    if (letter) ++at;
  }

 private:
  template <class Text>
  constexpr void number(Text format) {
    if (format[at] == '*') {
      ++stars;
      ++at;
    }
    while (format[at] >= '0' && format[at] <= '9') ++at;
  }
};

}  // namespace _msl
