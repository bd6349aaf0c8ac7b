// Storage formats of weights and the KV cache, and the bytes that an element and its scales take in each.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::config {

// kInt3 and those after it are of caches alone: codes of rotated keys, in a codebook of 16 or 8 numbers.
enum class Precision : unsigned char { kBf16, kFp8, kInt8, kInt4, kMxfp4, kNvfp4, kInt3, kCodebook4, kCodebook3 };

// Formats of cached keys and values, which may differ: one precision is that of both.
struct CacheFormat {
  Precision keys = Precision::kBf16, values = Precision::kBf16;
  bool turboquant = false;  // vLLM's TurboQuant, whose kernel unpacks a pair once for each query head
  constexpr CacheFormat(Precision both = Precision::kBf16) : keys(both), values(both) {}
  constexpr CacheFormat(Precision of_keys, Precision of_values, bool turbo = false)
      : keys(of_keys), values(of_values), turboquant(turbo) {}
  bool rotated() const { return keys >= Precision::kCodebook4; }  // keys and queries, before keys are packed
  auto operator<=>(const CacheFormat&) const = default;
};

// Bytes of a matrix of weights of `rows` outputs and `columns` inputs, its scales included: kFp8 has a single-precision
// scale per block of 128 × 128 (DeepSeek-V3), kInt8 a half-precision scale per output (SmoothQuant), kInt4 a
// half-precision scale and a 4-bit zero per 128 inputs (AWQ, GPTQ), kMxfp4 a byte per 32 (OCP Microscaling 1.0) and
// kNvfp4 an FP8 scale per 16 (NVIDIA Transformer Engine).
double weight_bytes(Precision precision, double rows, double columns);

// Bytes of an element of a cached key or value of head_dim elements, mean of both, its share of the scales included:
// kFp8 has one scale per tensor (vLLM, TensorRT-LLM), kInt8 and kInt4 have a half-precision scale and zero for each
// head's key and value (LMDeploy), as kInt3 has, kMxfp4 a byte per 32 numbers and kNvfp4 an FP8 scale per 16; codes of
// keys have a half-precision norm.
double cache_element_bytes(CacheFormat format, double head_dim);

std::string_view precision_name(Precision precision);  // "bf16"
std::vector<std::string> weight_precisions();          // those of weights, each of which a cache may have too
std::string cache_name(CacheFormat format);            // "int8", or "int8 keys, int4 values"
// Return std::nullopt for a name that is no precision of weights, or no format of a cache.
std::optional<Precision> precision_from_name(std::string_view name);
std::optional<CacheFormat> cache_from_name(std::string_view name);
std::vector<std::string> cache_formats();  // names of one format for keys and values together

}  // namespace kvcast::config
