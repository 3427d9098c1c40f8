// Text of os_log's messages.
#include "hostmetal/src/log_message.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "hostmetal/msl/lib/log_conversion.h"

namespace hostmetal {
namespace {

constexpr int kWidest = 1000;  // of a field, whatever an argument says

float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign *
         (exponent ? ldexpf(float(1024 + mantissa), exponent - 25) : ldexpf(float(mantissa), -24));
}

// Arguments of a record, one after the other.
class Arguments {
 public:
  explicit Arguments(const metallib_log_record& record)
      : at_(reinterpret_cast<const char*>(&record + 1)), left_(record.n_arguments) {}

  bool Next() {
    if (!left_) return false;
    --left_;
    memcpy(&head_, at_, sizeof head_);
    numbers_ = at_ + sizeof head_;
    at_ = numbers_ + (head_.bytes * head_.count + 7) / 8 * 8;
    return true;
  }
  void Skip() {
    while (Next()) {
    }
  }
  const char* at() const { return at_; }
  unsigned count() const { return head_.count; }
  bool pointer() const { return head_.kind == METALLIB_LOG_POINTER; }

  double Real(unsigned i) const {
    if (head_.kind == METALLIB_LOG_BFLOAT) {
      const uint32_t bits = uint32_t(uint16_t(Bits(i))) << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    if (head_.kind == METALLIB_LOG_FLOAT) {
      if (head_.bytes == 2) return FromHalf(uint16_t(Bits(i)));
      float value;
      double wide;
      const uint64_t bits = Bits(i);
      memcpy(&value, &bits, 4);
      memcpy(&wide, &bits, 8);
      return head_.bytes == 8 ? wide : value;
    }
    return head_.kind == METALLIB_LOG_SIGNED ? double(int64_t(Whole(i))) : double(Whole(i));
  }

  // As C passes it: less than an int becomes one, with its sign.
  uint64_t Whole(unsigned i) const {
    if (head_.kind == METALLIB_LOG_FLOAT || head_.kind == METALLIB_LOG_BFLOAT) {
      const double value = Real(i);
      if (!(fabs(value) < 9.2e18))
        return value > 0 ? INT64_MAX : value < 0 ? uint64_t(INT64_MIN) : 0;
      return uint64_t(int64_t(value));
    }
    const uint64_t bits = Bits(i);
    const unsigned width = 8 * head_.bytes;
    if (head_.kind != METALLIB_LOG_SIGNED || width == 64) return bits;
    return uint64_t(int64_t(bits << (64 - width)) >> (64 - width));
  }
  unsigned bytes() const { return head_.bytes; }

 private:
  uint64_t Bits(unsigned i) const {
    uint64_t bits = 0;
    memcpy(&bits, numbers_ + i * head_.bytes, std::min<size_t>(head_.bytes, sizeof bits));
    return bits;
  }

  const char* at_;
  unsigned left_;
  metallib_log_argument head_ = {};
  const char* numbers_ = nullptr;
};

// The flags, width and precision of a conversion, with numbers where it has stars.
std::string Fields(const char* begin, const char* end, Arguments* arguments) {
  std::string out = "%";
  bool point = false;
  for (const char* c = begin; c < end && strchr("-+ #0123456789.*", *c);) {
    if (*c == '.') point = true;
    if (*c == '*') {
      ++c;
      const int value = arguments->Next() ? int(arguments->Whole(0)) : 0;
      const int most = std::max(-kWidest, std::min(kWidest, value));
      if (point && most < 0) {
        out.pop_back();  // a negative precision is none
      } else {
        out += std::to_string(most);
      }
    } else if (*c >= '1' && *c <= '9') {
      int value = 0;
      for (; *c >= '0' && *c <= '9'; ++c) value = std::min(kWidest, 10 * value + (*c - '0'));
      out += std::to_string(value);
    } else {
      out += *c++;
    }
  }
  return out;
}

template <class T>
void Print(const std::string& spec, T value, std::string* out) {
  char buffer[2 * kWidest + 512];
  const int n = snprintf(buffer, sizeof buffer, spec.c_str(), value);
  if (n > 0) out->append(buffer, std::min<size_t>(size_t(n), sizeof buffer - 1));
}

void PrintOne(const std::string& fields, const _msl::LogConversion& c, const Arguments& a,
              unsigned i, std::string* out) {
  if (strchr("fFeEgGaA", c.letter)) {
    Print(fields + c.letter, a.Real(i), out);
  } else if (c.letter == 'p') {
    Print(fields + 'p', reinterpret_cast<const void*>(a.Whole(i)), out);
  } else if (c.letter == 'c') {
    Print(fields + 'c', int(a.Whole(i)), out);
  } else {
    uint64_t value = a.Whole(i);
    // An int that is printed as uint, and the other way round; a shorter length cuts.
    unsigned bytes = std::max(4u, a.bytes());
    if (c.length) bytes = std::min(bytes, unsigned(c.length));
    const unsigned unused = 64 - 8 * bytes;
    value <<= unused;
    const bool is_signed = c.letter == 'd' || c.letter == 'i';
    value = is_signed ? uint64_t(int64_t(value) >> unused) : value >> unused;
    Print(fields + "ll" + c.letter, (unsigned long long)value, out);
  }
}

std::string Text(const char* format, Arguments* arguments) {
  std::string out;
  for (unsigned i = 0; format[i];) {
    if (format[i] != '%') {
      out += format[i++];
      continue;
    }
    const unsigned begin = ++i;
    const _msl::LogConversion c(format, begin);
    i = c.at;
    if (c.letter == '%') {
      out += '%';
      continue;
    }
    if (!c.letter || !strchr("diouxXcfFeEgGaAp", c.letter)) {  // of a format that is no literal
      out.append(format + begin - 1, i - begin + 1);
      continue;
    }
    const std::string fields = Fields(format + begin, format + i, arguments);
    if (!arguments->Next()) {
      out += "<no argument>";
      continue;
    }
    for (unsigned k = 0; k < arguments->count(); ++k) {
      if (k) out += ',';
      PrintOne(fields, c, *arguments, k, &out);
    }
  }
  return out;
}

}  // namespace

std::string LogLevelName(int level) {
  static const char* const kNames[] = {"", "debug", "info", "notice", "error", "fault"};
  return level > 0 && level < 6 ? kNames[level] : "";
}

LogMessage ReadLog(const metallib_log_record& record) {
  LogMessage message;
  const char *subsystem = record.subsystem, *category = record.category, *format = record.format,
             *kernel = record.kernel;
  if (record.flags & METALLIB_LOG_INLINE) {
    Arguments all(record);
    all.Skip();
    const char* at = all.at();
    for (const char** text : {&subsystem, &category, &format, &kernel}) {
      if (!*text) continue;
      *text = at;
      at += strlen(at) + 1;
    }
  }
  message.named = subsystem || category;
  message.subsystem = subsystem ? subsystem : "";
  message.category = category ? category : "";
  message.level = record.level;
  message.kernel = kernel ? kernel : "";
  std::copy_n(record.thread, 3, message.thread);
  Arguments arguments(record);
  message.text = Text(format ? format : "", &arguments);
  return message;
}

std::string LogMessage::Line() const {
  std::string line = "[" + kernel + "] thread (" + std::to_string(thread[0]) + ", " +
                     std::to_string(thread[1]) + ", " + std::to_string(thread[2]) + "), " +
                     LogLevelName(level);
  if (named) line += ", " + subsystem + ":" + category;
  return line + ": " + text;
}

}  // namespace hostmetal
