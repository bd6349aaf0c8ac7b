#include "config/precision.hpp"

#include <cmath>
#include <iterator>

#include "base/error.hpp"

namespace kvcast::config {
namespace {

struct Format {
  std::string_view name;
  double bytes;                      // bytes of an element
  double scale_bytes;                // bytes of the scales and zeros of a block of weights ...
  double block_rows, block_columns;  // ... of this many outputs and inputs; 0 columns: a whole output
  double cache_scale_bytes;          // bytes of the scales of a head's key or value; negative: not a cache format
};

constexpr Format kFormats[] = {{"bf16", 2, 0, 1, 1, 0},      {"fp8", 1, 4, 128, 128, 0},
                               {"int8", 1, 2, 1, 0, 4},      {"int4", 0.5, 2.5, 1, 128, 4},
                               {"mxfp4", 0.5, 1, 1, 32, -1}, {"nvfp4", 0.5, 1, 1, 16, -1}};

const Format& format_of(Precision precision) { return kFormats[static_cast<std::size_t>(precision)]; }

}  // namespace

double weight_bytes(Precision precision, double rows, double columns) {
  const Format& f = format_of(precision);
  const double blocks =
      std::ceil(rows / f.block_rows) * (f.block_columns > 0 ? std::ceil(columns / f.block_columns) : 1);
  return rows * columns * f.bytes + blocks * f.scale_bytes;
}

double cache_element_bytes(Precision precision, double head_dim) {
  const Format& f = format_of(precision);
  KVCAST_CHECK(f.cache_scale_bytes >= 0);
  return f.bytes + f.cache_scale_bytes / head_dim;
}

std::string_view precision_name(Precision precision) { return format_of(precision).name; }

std::vector<std::string> weight_precisions() {
  std::vector<std::string> names;
  for (const Format& f : kFormats) names.emplace_back(f.name);
  return names;
}

std::vector<std::string> cache_precisions() {
  std::vector<std::string> names;
  for (const Format& f : kFormats) {
    if (f.cache_scale_bytes >= 0) names.emplace_back(f.name);
  }
  return names;
}

std::optional<Precision> precision_from_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].name == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

}  // namespace kvcast::config
