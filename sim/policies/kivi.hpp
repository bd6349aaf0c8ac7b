// KIVI's quantised pairs as a second stage: all pairs are read, most of them in few bits.
#pragma once

#include <memory>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct KiviSetting {
  int key_bits = 2, value_bits = 2;
  std::int64_t group = 32;     // tokens of a key channel, or channels of a value, that share a scale and a minimum
  std::int64_t residual = 32;  // R, a multiple of group: about the number of newest tokens in half precision
  // Number of quantised keys and values among n ≥ 1 tokens when a step attends to them.
  std::int64_t packed_keys(std::int64_t n) const { return (n - 1) / residual * residual; }
  std::int64_t packed_values(std::int64_t n) const { return std::max<std::int64_t>(0, n - residual - 1); }
  // Bytes of an element in `bits`, including its share of a half-precision scale and minimum.
  double packed_bytes(int bits) const { return bits / 8.0 + 4.0 / static_cast<double>(group); }
  // Number of packed keys and values of n tokens, counted together: at most 2 n.
  double packed(double tokens) const;
  // Bytes of the keys and values of n tokens of one head.
  double bytes(double tokens, int head_dim) const;
};

// selector: selects the packed pairs that a step reads; null: all of them. It must not select by query head after a
// first stage that does, nor have attention outputs of its own.
std::unique_ptr<Retrieval> read_quantised(const KiviSetting& setting, std::unique_ptr<Retrieval> selector = nullptr);

// Throws UserError unless residual is a multiple of the group.
KiviSetting read_kivi(const ParameterValues& values);

// The reason why replayed attention does not show the loss from rounding.
inline constexpr const char* kRoundingUnseen =
    "it rounds the cache, and scores are based on the attention on targets, which does not show rounding";

// For policies that read everything they keep: the parameter `quantisation` (none or kivi) with KIVI's parameters, and
// the second stage for their values. Not after a first stage that selects by query head.
std::vector<Parameter> quantisation_parameters();
std::unique_ptr<Retrieval> read_as_stored(const ParameterValues& values);

// Quantises `count` numbers `stride` apart to `bits` and back, in place: round((x − min) / scale) · scale + min, scale
// = (max − min) / (2^bits − 1).
void quantise(float* x, std::int64_t count, std::size_t stride, int bits);

}  // namespace kvcast::policy
