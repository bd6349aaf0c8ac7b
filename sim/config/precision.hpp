// Storage formats of weights and the KV cache, and the bytes that an element and its scales take in each.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::config {

enum class Precision : unsigned char { kBf16, kFp8, kInt8, kInt4, kMxfp4, kNvfp4 };

// Formats of cached keys and values, which may differ: one precision is that of both.
struct CacheFormat {
  Precision keys = Precision::kBf16, values = Precision::kBf16;
  constexpr CacheFormat(Precision both = Precision::kBf16) : keys(both), values(both) {}
  constexpr CacheFormat(Precision of_keys, Precision of_values) : keys(of_keys), values(of_values) {}
  auto operator<=>(const CacheFormat&) const = default;
};

// Bytes of a matrix of weights of `rows` outputs and `columns` inputs, its scales included: kFp8 has a single-precision
// scale per block of 128 × 128 (DeepSeek-V3), kInt8 a half-precision scale per output (SmoothQuant), kInt4 a
// half-precision scale and a 4-bit zero per 128 inputs (AWQ, GPTQ), kMxfp4 a byte per 32 (OCP Microscaling 1.0) and
// kNvfp4 an FP8 scale per 16 (NVIDIA Transformer Engine).
double weight_bytes(Precision precision, double rows, double columns);

// Bytes of an element of a cached key or value of head_dim elements, mean of both, its share of the scales included:
// kFp8 has one scale per tensor (vLLM, TensorRT-LLM), kInt8 and kInt4 have a half-precision scale and zero for each
// head's key and value (LMDeploy), kMxfp4 a byte per 32 numbers and kNvfp4 an FP8 scale per 16.
double cache_element_bytes(CacheFormat format, double head_dim);

std::string_view precision_name(Precision precision);  // "bf16"
std::vector<std::string> weight_precisions();          // all names
std::string cache_name(CacheFormat format);            // "int8", or "int8 keys, int4 values"
// Returns std::nullopt for an unknown name.
std::optional<Precision> precision_from_name(std::string_view name);

}  // namespace kvcast::config
