#include "config/precision.hpp"

#include <cmath>
#include <iterator>
#include <utility>

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

constexpr Format kFormats[] = {
    {"bf16", 2, 0, 1, 1, 0, 0},       {"fp8", 1, 4, 128, 128, 0, 0},     {"int8", 1, 2, 1, 0, 4, 0},
    {"int4", 0.5, 2.5, 1, 128, 4, 0}, {"mxfp4", 0.5, 1, 1, 32, 1, 32},   {"nvfp4", 0.5, 1, 1, 16, 1, 16},
    {"int3", 0.375, 0, 1, 0, 4, 0},   {"codebook4", 0.5, 0, 1, 0, 2, 0}, {"codebook3", 0.375, 0, 1, 0, 2, 0}};
constexpr std::size_t kWeightFormats = 6;

// vllm-project/vllm, quantization/turboquant/config.py.
constexpr std::pair<std::string_view, CacheFormat> kTurboQuant[] = {
    {"turboquant_k8v4", {Precision::kFp8, Precision::kInt4, true}},
    {"turboquant_4bit_nc", {Precision::kCodebook4, Precision::kInt4, true}},
    {"turboquant_k3v4_nc", {Precision::kCodebook3, Precision::kInt4, true}},
    {"turboquant_3bit_nc", {Precision::kCodebook3, Precision::kInt3, true}}};

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
  for (const auto& [name, of] : kTurboQuant) {
    if (of == format) return std::string(name);
  }
  const std::string keys(precision_name(format.keys));
  return format.keys == format.values ? keys
                                      : keys + " keys, " + std::string(precision_name(format.values)) + " values";
}

std::string_view precision_name(Precision precision) { return format_of(precision).name; }

std::vector<std::string> weight_precisions() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kWeightFormats; ++i) names.emplace_back(kFormats[i].name);
  return names;
}

std::optional<Precision> precision_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kWeightFormats; ++i) {
    if (kFormats[i].name == name) return static_cast<Precision>(i);
  }
  return std::nullopt;
}

std::vector<std::string> cache_formats() {
  std::vector<std::string> names = weight_precisions();
  for (const auto& [name, format] : kTurboQuant) names.emplace_back(name);
  return names;
}

std::optional<CacheFormat> cache_from_name(std::string_view name) {
  for (const auto& [known, format] : kTurboQuant) {
    if (known == name) return format;
  }
  return precision_from_name(name);
}

}  // namespace kvcast::config
