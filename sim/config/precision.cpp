#include "config/precision.hpp"

#include <cmath>
#include <iterator>

namespace kvcast::config {
namespace {

struct Format {
  std::string_view name;
  double bytes;                      // bytes of an element
  double scale_bytes;                // bytes of the scales and zeros of a block of weights ...
  double block_rows, block_columns;  // ... of this many outputs and inputs; 0 columns: a whole output
  double cache_scale_bytes;          // bytes of the scales of a head's key or value, ...
  double cache_block;                // ... or of so many of its numbers, if not 0
};

constexpr Format kFormats[] = {{"bf16", 2, 0, 1, 1, 0, 0},      {"fp8", 1, 4, 128, 128, 0, 0},
                               {"int8", 1, 2, 1, 0, 4, 0},      {"int4", 0.5, 2.5, 1, 128, 4, 0},
                               {"mxfp4", 0.5, 1, 1, 32, 1, 32}, {"nvfp4", 0.5, 1, 1, 16, 1, 16}};

const Format& format_of(Precision precision) { return kFormats[static_cast<std::size_t>(precision)]; }

}  // namespace

double weight_bytes(Precision precision, double rows, double columns) {
  const Format& f = format_of(precision);
  const double blocks =
      std::ceil(rows / f.block_rows) * (f.block_columns > 0 ? std::ceil(columns / f.block_columns) : 1);
  return rows * columns * f.bytes + blocks * f.scale_bytes;
}

double cache_element_bytes(CacheFormat format, double head_dim) {
  const auto element = [&](Precision precision) {
    const Format& f = format_of(precision);
    return f.bytes + f.cache_scale_bytes / (f.cache_block > 0 ? f.cache_block : head_dim);
  };
  return (element(format.keys) + element(format.values)) / 2;
}

std::string cache_name(CacheFormat format) {
  const std::string keys(precision_name(format.keys));
  return format.keys == format.values ? keys
                                      : keys + " keys, " + std::string(precision_name(format.values)) + " values";
}

std::string_view precision_name(Precision precision) { return format_of(precision).name; }

std::vector<std::string> weight_precisions() {
  std::vector<std::string> names;
  for (const Format& f : kFormats) names.emplace_back(f.name);
  return names;
}

std::optional<Precision> precision_from_name(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].name == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

}  // namespace kvcast::config
