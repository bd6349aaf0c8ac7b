// Random properties of requests, each a function of the seed, the request's number and the purpose alone.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "config/traffic.hpp"

namespace kvcast::traffic {

enum class Purpose : std::uint64_t { kGap = 1, kPrompt, kOutput, kGroup, kRow, kContent, kAnswer, kQuestion };

// The stream of a purpose; its i-th number belongs to request i.
inline Stream stream_of(std::uint64_t seed, Purpose purpose) {
  return Stream(seed).child({static_cast<std::uint64_t>(purpose)});
}

// Time before request i, in units of the mean time: of mean 1 and this coefficient of variation. A gamma distribution
// has the shape 1 / cv².
double unit_gap(const Stream& stream, std::int64_t i, config::Traffic::Process process, double cv);

// Output tokens under the traffic's factor on them.
std::int64_t scaled_outputs(const config::Traffic& traffic, std::int64_t tokens);

// Prompt or output tokens of requests, outputs before their factor.
class TokenCounts {
 public:
  // which: kPrompt or kOutput. Reads the file of lengths if there is one.
  TokenCounts(const config::Traffic& traffic, Purpose which);

  std::int64_t of(std::int64_t request) const;  // at least 1, at most config::kMaxTokens

 private:
  config::LengthDistribution lengths_;
  Stream stream_;
  double mu_ = 0, sigma_ = 0;  // of the logarithm of a lognormal length
  std::vector<std::int64_t> column_;
};

}  // namespace kvcast::traffic
