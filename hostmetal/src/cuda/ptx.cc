// Text edits of PTX. The text is LLVM's own output without comments (gpu.py), an item after the
// other.
#include "hostmetal/src/cuda/ptx.h"

#include <string.h>

#include <set>

namespace hostmetal {
namespace cuda {
namespace {

bool IsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$';
}
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

size_t SkipSpace(std::string_view t, size_t at) {
  while (at < t.size() && IsSpace(t[at])) ++at;
  return at;
}

// Where the item that starts at `at` ends. Functions end with their body, declarations and
// variables with ';'.
size_t ItemEnd(std::string_view t, size_t at) {
  int depth = 0;
  bool is_function = false;
  for (size_t i = at; i < t.size(); ++i) {
    char c = t[i];
    if (depth == 0 && c == '.' &&
        (t.substr(i, 6) == ".entry" || (t.substr(i, 5) == ".func" && !IsName(t[i + 5])))) {
      is_function = true;
    }
    if (c == '{' || c == '(') ++depth;
    if (c == '}' || c == ')') --depth;
    if (depth == 0 && (c == ';' || (c == '}' && is_function))) return i + 1;
  }
  return t.size();
}

// The name that an item declares: the first word outside parentheses that is no directive and no
// number.
std::string_view ItemName(std::string_view item) {
  int depth = 0;
  for (size_t i = 0; i < item.size(); ++i) {
    char c = item[i];
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (depth || !IsName(c)) continue;
    size_t end = i;
    while (end < item.size() && IsName(item[end])) ++end;
    bool directive = i > 0 && item[i - 1] == '.';
    bool number = c >= '0' && c <= '9';
    if (!directive && !number) return item.substr(i, end - i);
    i = end - 1;
  }
  return {};
}

uint64_t Bytes(const uint8_t* from, size_t size, bool is_signed) {
  uint64_t v = 0;
  memcpy(&v, from, size);
  if (is_signed && size < 8 && (from[size - 1] & 0x80)) v |= ~uint64_t{0} << (8 * size);
  return v;
}

std::string Hex(uint64_t v, int digits) {
  static const char kDigits[] = "0123456789ABCDEF";
  std::string out(size_t(digits), '0');
  for (int i = digits - 1; i >= 0; --i, v >>= 4) out[size_t(i)] = kDigits[v & 15];
  return out;
}

// `ld.global.nc.u32 %r4, [_msl_fc_name+4];` at `at` as a move of the number, appended to `out`. 0:
// it is no such load.
size_t MoveForLoad(std::string_view t, size_t at, std::string_view variable, const uint8_t* value,
                   std::string* out) {
  size_t end = t.find(';', at);
  if (end == t.npos) return 0;
  std::string_view load = t.substr(at, end - at);
  size_t open = load.find('['), space = load.find_first_of(" \t");
  if (open == load.npos || space > open || load.substr(open + 1, variable.size()) != variable) {
    return 0;
  }
  size_t offset = 0, i = open + 1 + variable.size();
  if (load[i] == '+') {
    for (++i; i < load.size() && load[i] >= '0' && load[i] <= '9'; ++i) {
      offset = offset * 10 + size_t(load[i] - '0');
    }
  }
  if (i >= load.size() || load[i] != ']') return 0;
  std::string_view mnemonic = load.substr(0, space);
  std::string_view type = mnemonic.substr(mnemonic.rfind('.') + 1);
  if (mnemonic.find(".v2") != mnemonic.npos || mnemonic.find(".v4") != mnemonic.npos) return 0;
  size_t bits = 0;
  for (char c : type.substr(1)) bits = bits * 10 + size_t(c - '0');
  size_t size = bits / 8;
  if (size == 0 || size > 8 || offset + size > 16) return 0;
  size_t first = SkipSpace(load, space), comma = load.find(',', first);
  std::string_view target = load.substr(first, comma - first);
  uint64_t v = Bytes(value + offset, size, type[0] == 's');
  if (target.substr(0, 3) == "%rs") {
    *out += "mov.b16 \t" + std::string(target) + ", 0x" + Hex(v, 4) + ";";
  } else if (target.substr(0, 3) == "%rd") {
    *out += "mov.b64 \t" + std::string(target) + ", 0x" + Hex(v, 16) + ";";
  } else if (target.substr(0, 2) == "%f" && size == 4) {
    *out += "mov.f32 \t" + std::string(target) + ", 0f" + Hex(v, 8) + ";";
  } else if (target.substr(0, 2) == "%r") {
    *out += "mov.b32 \t" + std::string(target) + ", 0x" + Hex(v, 8) + ";";
  } else {
    return 0;
  }
  return end + 1 - at;
}

}  // namespace

std::string EntryName(std::string_view kernel) {
  std::string name = "msl_";
  for (char c : kernel) {
    if (IsName(c) && c != '$') {
      name += c;
    } else {
      static const char kDigits[] = "0123456789abcdef";
      name += {'$', kDigits[uint8_t(c) >> 4], kDigits[uint8_t(c) & 15]};
    }
  }
  return name;
}

PtxFile::PtxFile(std::string_view text) {
  // .version, .target and .address_size are lines of their own.
  size_t at = text.find(".address_size");
  at = at == text.npos ? text.size() : text.find('\n', at);
  if (at == text.npos) at = text.size();
  header_ = text.substr(0, at);
  while ((at = SkipSpace(text, at)) < text.size()) {
    size_t end = ItemEnd(text, at);
    std::string_view item = text.substr(at, end - at);
    items_.push_back({item, ItemName(item), {}});
    at = end;
  }
  for (size_t i = 0; i < items_.size(); ++i) by_name_[items_[i].name].push_back(i);
  for (Item& item : items_) {
    std::set<std::string_view> seen;
    for (size_t i = 0; i < item.text.size(); ++i) {
      if (!IsName(item.text[i])) continue;
      size_t end = i;
      while (end < item.text.size() && IsName(item.text[end])) ++end;
      std::string_view word = item.text.substr(i, end - i);
      if (word != item.name && by_name_.count(word) && seen.insert(word).second) {
        item.uses.push_back(word);
      }
      i = end;
    }
  }
}

std::string PtxFile::Extract(const std::string& entry, const metallib_function_constant* constants,
                             const metallib_constant_value* values, size_t count) const {
  std::vector<bool> wanted(items_.size());
  std::vector<std::string_view> open = {entry};
  while (!open.empty()) {
    auto found = by_name_.find(open.back());
    open.pop_back();
    if (found == by_name_.end()) continue;
    for (size_t i : found->second) {
      if (wanted[i]) continue;
      wanted[i] = true;
      open.insert(open.end(), items_[i].uses.begin(), items_[i].uses.end());
    }
  }
  std::map<std::string, size_t, std::less<>> variables;
  for (size_t i = 0; i < count; ++i) variables[std::string("_msl_fc_") + constants[i].name] = i;
  std::string out(header_);
  out += '\n';
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!wanted[i]) continue;
    auto variable = variables.find(items_[i].name);
    if (variable != variables.end()) {
      // 16 bytes of value and, behind them, whether it is defined.
      const metallib_constant_value& v = values[variable->second];
      out += ".global .align 16 .b8 " + variable->first + "[32] = {";
      for (int b = 0; b < 17; ++b) {
        out += (b ? ", " : "") + std::to_string(b == 16     ? int(v.defined != 0)
                                                : v.defined ? v.bytes[b]
                                                            : 0);
      }
      out += "};\n";
      continue;
    }
    std::string_view text = items_[i].text;
    size_t copied = 0;
    for (size_t at = text.find("ld.global"); at != text.npos && count;
         at = text.find("ld.global", at + 1)) {
      size_t name = text.find("[_msl_fc_", at), end = text.find(';', at);
      if (name == text.npos) break;
      if (name > end) continue;
      size_t stop = name + 1;
      while (stop < text.size() && IsName(text[stop])) ++stop;
      auto constant = variables.find(text.substr(name + 1, stop - name - 1));
      if (constant == variables.end()) continue;
      static const uint8_t kZeros[16] = {};
      const metallib_constant_value& v = values[constant->second];
      std::string move;
      size_t length = MoveForLoad(text, at, constant->first, v.defined ? v.bytes : kZeros, &move);
      if (!length) continue;
      out += text.substr(copied, at - copied);
      out += move;
      copied = at + length;
    }
    out += text.substr(copied);
    out += '\n';
  }
  return out;
}

}  // namespace cuda
}  // namespace hostmetal
