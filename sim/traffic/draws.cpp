#include "traffic/draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/csv.hpp"
#include "config/framework.hpp"
#include "traffic/numbers.hpp"

namespace kvcast::traffic {
namespace {

using Kind = config::LengthDistribution::Kind;
using config::kMaxTokens;

// Marsaglia and Tsang 2000: a gamma variate of a shape of at least 1 from pairs of a normal and a uniform number, of
// which 95 % and more are accepted.
double gamma_of_large_shape(const Stream& stream, double shape) {
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (std::uint64_t i = 0;; i += 2) {
    const double x = stream.normal(i), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - stream.uniform(i + 1)) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

std::vector<std::int64_t> read_column(const std::string& path, const char* name) {
  std::vector<std::int64_t> column;
  for (const CsvCells& row : read_table(path, "the lengths", {"prompt_tokens", "output_tokens"})) {
    column.push_back(tokens_of(row.text(name), name, 1, [&] { return row.where(name); }));
  }
  if (column.empty()) throw UserError({path, 0, 0}, "the file has no lengths");
  return column;
}

// Requests that take both lengths from one file draw one row, since the two depend on each other.
bool one_file(const config::Traffic& traffic) {
  const config::LengthDistribution &prompts = traffic.prompt_tokens, &outputs = traffic.output_tokens;
  return prompts.kind == Kind::kFile && outputs.kind == Kind::kFile && prompts.file == outputs.file;
}

}  // namespace

double unit_gap(const Stream& stream, std::int64_t i, config::Traffic::Process process, double cv) {
  const auto number = static_cast<std::uint64_t>(i);
  if (process == config::Traffic::Process::kConstant) return 1;
  if (process == config::Traffic::Process::kPoisson) return -std::log(1 - stream.uniform(number));
  const double shape = 1 / (cv * cv);
  const Stream own = stream.child({number});
  if (shape >= 1) return gamma_of_large_shape(own.child({0}), shape) / shape;
  return gamma_of_large_shape(own.child({0}), shape + 1) * std::pow(1 - own.child({1}).uniform(0), 1 / shape) / shape;
}

std::int64_t scaled_outputs(const config::Traffic& traffic, std::int64_t tokens) {
  if (traffic.length_factor == 1) return tokens;
  return std::clamp<std::int64_t>(std::llround(traffic.length_factor * static_cast<double>(tokens)), 1, kMaxTokens);
}

TokenCounts::TokenCounts(const config::Traffic& traffic, Purpose which)
    : lengths_(which == Purpose::kPrompt ? traffic.prompt_tokens : traffic.output_tokens),
      stream_(stream_of(traffic.seed, one_file(traffic) ? Purpose::kRow : which)) {
  if (lengths_.kind == Kind::kLognormal) {
    const double variance = std::log1p(lengths_.cv * lengths_.cv);
    mu_ = std::log(lengths_.mean) - variance / 2, sigma_ = std::sqrt(variance);
  } else if (lengths_.kind == Kind::kFile) {
    column_ = read_column(lengths_.file, which == Purpose::kPrompt ? "prompt_tokens" : "output_tokens");
  }
}

std::int64_t TokenCounts::of(std::int64_t request) const {
  const auto i = static_cast<std::uint64_t>(request);
  switch (lengths_.kind) {
    case Kind::kFixed:
      break;
    case Kind::kLognormal:
      return std::llround(std::clamp<double>(std::exp(mu_ + sigma_ * stream_.normal(i)), 1, kMaxTokens));
    case Kind::kUniform: {
      const auto values = static_cast<std::uint64_t>(lengths_.high - lengths_.low + 1);
      return lengths_.low + static_cast<std::int64_t>(stream_.below(i, values));
    }
    case Kind::kFile:
      return column_[stream_.below(i, column_.size())];
  }
  return static_cast<std::int64_t>(lengths_.mean);
}

}  // namespace kvcast::traffic
