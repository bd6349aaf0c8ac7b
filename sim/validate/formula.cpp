#include "validate/formula.hpp"

#include <fmt/format.h>
#include <muParser.h>

#include <cmath>
#include <map>

namespace kvcast::validate {
namespace {

mu::Parser parser_of(const std::string& text) {
  mu::Parser parser;
  parser.DefineNameChars("0123456789_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
  parser.SetExpr(text);
  return parser;
}

[[noreturn]] void refuse(const mu::Parser::exception_type& error, const std::string& text,
                         const SourceLocation& where) {
  throw UserError(where, fmt::format("\"{}\" is no formula: {}", text, error.GetMsg()));
}

}  // namespace

Formula::Formula(const std::string& text, const SourceLocation& where) : text_(text), where_(where) {
  try {
    mu::Parser parser = parser_of(text);
    for (const auto& [name, variable] : parser.GetUsedVar()) names_.push_back(name);
    // Evaluating with every variable defined reveals all other errors.
    std::map<std::string, double> ones;
    for (const std::string& name : names_) parser.DefineVar(name, &(ones[name] = 1));
    parser.Eval();
  } catch (const mu::Parser::exception_type& error) {
    refuse(error, text, where);
  }
}

double Formula::value(const std::function<double(const std::string&)>& number_of) const {
  std::map<std::string, double> numbers;
  for (const std::string& name : names_) numbers[name] = number_of(name);
  double result = 0;
  try {
    mu::Parser parser = parser_of(text_);
    for (auto& [name, number] : numbers) parser.DefineVar(name, &number);
    result = parser.Eval();
  } catch (const mu::Parser::exception_type& error) {
    refuse(error, text_, where_);
  }
  if (!std::isfinite(result)) throw UserError(where_, fmt::format("\"{}\" gives no finite number", text_));
  return result;
}

}  // namespace kvcast::validate
