// Arithmetic over named numbers, as written in data files: "full.tpot / (rocket.tpot + 2)".
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace kvcast::validate {

// Supports numbers, + − * / ^, comparisons (1 or 0), && ||, ?:, parentheses, min, max, abs, and names made of letters,
// digits, _ and dots.
class Formula {
 public:
  // Throws UserError at `where` if the text is not a formula.
  Formula(const std::string& text, const SourceLocation& where);

  const std::string& text() const { return text_; }
  const SourceLocation& where() const { return where_; }
  const std::vector<std::string>& names() const { return names_; }  // each once, in alphabetical order

  // The value for the numbers that number_of gives the names; throws UserError if it is not finite.
  double value(const std::function<double(const std::string& name)>& number_of) const;

 private:
  std::string text_;
  SourceLocation where_;
  std::vector<std::string> names_;
};

}  // namespace kvcast::validate
