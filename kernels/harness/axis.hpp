// Axes: the parameters that a benchmark varies. A case is one value of every axis; all cases are the product of the
// axes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast::kernels {

// An error in the user's input; the message names the text found and the known values.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Values are kept as text: a whole number in decimal, or a word.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

// One value of each axis, in the order of the axes.
using Case = std::vector<std::pair<std::string, std::string>>;

// "name=a,b,c", "name=from:to:step" (both ends included), or "name[pow2]=a:b:step" and "name[pow2]=a,b" (powers of
// two). Throws UsageError for anything else, an empty list, a value given twice, or more than 4096 values.
Axis parse_axis(std::string_view text);

Axis numbers(std::string name, std::vector<std::int64_t> values);
Axis words(std::string name, std::vector<std::string> values);
// 1, 2, 4, ... and last itself.
std::vector<std::int64_t> doubling(std::int64_t last);

// All cases; the last axis varies fastest. No axes: one empty case.
std::vector<Case> product(const std::vector<Axis>& axes);

// Replaces the axes of the same name and leaves the others. Returns how many were replaced.
int replace_axes(std::vector<Axis>& axes, const std::vector<Axis>& with);

// "a=1 b=x", for messages and for the key of a row.
std::string describe(const Case& c);

// Returns true and the number if the whole text is a decimal whole number without leading zeros.
bool whole_number(std::string_view text, std::int64_t& out);

}  // namespace kvcast::kernels
