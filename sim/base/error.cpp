#include "base/error.hpp"

#include "base/failure.hpp"

namespace kvcast {

std::string format_location(const SourceLocation& where) {
  std::string text = where.file;
  if (text.starts_with("--") && where.line == 1) {  // a command-line argument is its own location
    return text + (where.column > 1 ? fmt::format(" (character {} of the value): ", where.column) : ": ");
  }
  if (where.line > 0) text += fmt::format("{}{}", text.empty() ? "line " : ":", where.line);
  if (where.line > 0 && where.column > 0) text += fmt::format(":{}", where.column);
  return text.empty() ? text : text + ": ";
}

namespace {
std::string with_known(const std::string& what, const std::vector<std::string>& known) {
  return known.empty() ? what : fmt::format("{}; known: {}", what, fmt::join(known, ", "));
}
}  // namespace

UserError::UserError(const SourceLocation& where, const std::string& what, const std::vector<std::string>& known)
    : std::runtime_error(shortened(format_location(where) + with_known(what, known))), where_(where) {}

void invariant_broken(const char* expression, const char* file, int line) {
  throw BrokenInvariant(fmt::format("broken invariant at {}:{}: {}\nThis is a defect of kvcast, not of your input.",
                                    file, line, expression));
}

}  // namespace kvcast
