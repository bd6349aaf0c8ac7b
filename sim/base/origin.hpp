// Origins of numbers. Every prediction states its origin and its uncertainty.
#pragma once

#include <string>
#include <string_view>

namespace kvcast {

// Ordered from best to worst; a result that depends on several numbers has the worst of their origins.
enum class Origin : unsigned char {
  kExact,         // follows from the input alone (bytes of a tensor, tokens attended)
  kMeasured,      // with kvcast's kernels on the device named
  kFitted,        // a model fitted to measurements, inside its range
  kLiterature,    // measured by others, source named
  kDatasheet,     // stated by the manufacturer
  kAssumed,       // our own judgement without a source; shown as such everywhere
  kExtrapolated,  // outside the range in which the number was established
};

std::string_view origin_name(Origin origin);
// Throws UserError for an unknown name.
Origin origin_from_name(std::string_view name);

inline Origin worse(Origin a, Origin b) { return a > b ? a : b; }

// A number, its origin, and the relative half-width of its uncertainty interval (0.1: the truth is expected within ±10
// %).
struct Value {
  double value = 0;
  Origin origin = Origin::kAssumed;
  double uncertainty = 0;
  std::string source;  // paper section, data sheet, measurement

  operator double() const { return value; }
};

}  // namespace kvcast
