// Errors in the words of the public function that made a node: Python calls it and its arguments by
// other names than the op (metal_ops/ops/_declared.py notes them at the node).

#ifndef METAL_OPS_KERNELS_TENSORFLOW_PUBLIC_WORDS_H_
#define METAL_OPS_KERNELS_TENSORFLOW_PUBLIC_WORDS_H_

#include <cctype>
#include <initializer_list>
#include <sstream>
#include <string>

namespace metal_ops {

constexpr char kPublicWords[] = "_metal_ops_function";

// A sentence of a kernel, "Softshrink: features must ...", by the note "softshrink features=x".
inline std::string InPublicWords(const std::string& op, const std::string& note, std::string text) {
  if (note.empty() || text.rfind(op + ": ", 0) != 0) return text;
  std::istringstream words(note);
  std::string function, pair;
  words >> function;
  text.replace(0, op.size(), function);
  while (words >> pair) {
    const size_t equals = pair.find('=');
    const std::string theirs = pair.substr(0, equals), ours = pair.substr(equals + 1);
    // Where a sentence speaks of arguments: other words may be spelled like one.
    for (const std::string& before :
         {function + ": ", std::string(" as in "), std::string(" like "), std::string(" and ")}) {
      for (size_t at = 0; (at = text.find(before + theirs, at)) != std::string::npos;) {
        at += before.size();
        const size_t end = at + theirs.size();
        const bool whole =
            end == text.size() ||
            (!std::isalnum(static_cast<unsigned char>(text[end])) && text[end] != '_');
        if (whole) text.replace(at, theirs.size(), ours);
      }
    }
  }
  return text;
}

}  // namespace metal_ops

#endif  // METAL_OPS_KERNELS_TENSORFLOW_PUBLIC_WORDS_H_
