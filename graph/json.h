// Writes JSON. The answers of the C interface are JSON, as Python reads it without generated code.

#ifndef METAL_OPS_GRAPH_JSON_H_
#define METAL_OPS_GRAPH_JSON_H_

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace metal_ops::fusion {

inline std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

// A list of values that are JSON already.
inline std::string JsonList(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const std::string& value : values) {
    if (out.size() > 1) out += ", ";
    out += value;
  }
  return out + "]";
}

inline std::string JsonStrings(const std::vector<std::string>& texts) {
  std::vector<std::string> values;
  for (const std::string& text : texts) values.push_back(JsonString(text));
  return JsonList(values);
}

inline std::string JsonObject(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out = "{";
  for (const auto& [name, value] : members) {
    if (out.size() > 1) out += ", ";
    out += JsonString(name) + ": " + value;
  }
  return out + "}";
}

}  // namespace metal_ops::fusion

#endif  // METAL_OPS_GRAPH_JSON_H_
