// KIVI's quantised pairs as a second stage: everything that is there is read, most of it in few bits.
#pragma once

#include <memory>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct KiviSetting {
  int key_bits = 2, value_bits = 2;
  std::int64_t group = 32;     // tokens of a key channel, or channels of a value, that share a scale and a minimum
  std::int64_t residual = 32;  // R, a multiple of group: newest tokens left in half precision, about
  // Of n ≥ 1 tokens, how many have quantised keys and values when a step attends to them.
  std::int64_t packed_keys(std::int64_t n) const { return (n - 1) / residual * residual; }
  std::int64_t packed_values(std::int64_t n) const { return std::max<std::int64_t>(0, n - residual - 1); }
  // Bytes of an element in `bits` with its share of a half-precision scale and minimum.
  double packed_bytes(int bits) const { return bits / 8.0 + 4.0 / static_cast<double>(group); }
  // Of n tokens' keys and values, counted together, how many are packed: at most 2 n.
  double packed(double tokens) const;
  // Bytes of the keys and values of n tokens of one head.
  double bytes(double tokens, int head_dim) const;
};

// selector: what a step reads of the packed pairs; null: all of them. Not one that selects for query heads after a
// first stage that does, nor one with attention outputs of its own.
std::unique_ptr<Retrieval> read_quantised(const KiviSetting& setting, std::unique_ptr<Retrieval> selector = nullptr);

// UserError where residual is no multiple of the group.
KiviSetting read_kivi(const ParameterValues& values);

// Why the attention that a replay keeps does not show what rounding loses.
inline constexpr const char* kRoundingUnseen =
    "it rounds what it keeps, and the attention on targets that scores rest on does not see rounding";

// For policies that read all that they keep: `quantisation` none or kivi, and KIVI's parameters; the second stage that
// these ask for. Not after a first stage that selects for query heads.
std::vector<Parameter> quantisation_parameters();
std::unique_ptr<Retrieval> read_as_stored(const ParameterValues& values);

// What stands for `count` numbers `stride` apart after quantisation to `bits` and back: round((x − min) / scale) ·
// scale
// + min, scale = (max − min) / (2^bits − 1). In place.
void quantise(float* x, std::int64_t count, std::size_t stride, int bits);

}  // namespace kvcast::policy
