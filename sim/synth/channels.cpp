// Slow pairs encode content, faster ones position, and a few outlier channels with large means of opposite sign provide
// the sink's logit gap. "Round and Round We Go" (Barbero et al. 2025, arXiv:2410.06205) finds the first two in trained
// models, "Massive Activations" (Sun et al. 2024, arXiv:2402.17762) the third.
#include "synth/channels.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trace/rope.hpp"

namespace kvcast::trace {
namespace {

enum ChannelsDraw : std::uint64_t { kOutlierCount = 1 };

// Returns the first of the slowest pairs that make up a share and turn by at most this many radians over the prompt.
// Contexts longer than the frequencies were made for leave none, or too few of a wide head; the slowest of 16, four at
// least, are then used, since codes in one or two channels may cancel out.
int first_quiet(const std::vector<double>& frequencies, double share, double most_turn, std::int64_t prompt_tokens) {
  const auto pairs = static_cast<int>(frequencies.size());
  const int last = std::max(0, pairs - 2);
  const int wanted = std::clamp(static_cast<int>(std::lround(pairs * (1 - share))), 0, last);
  const auto turns = [&](int pair) {
    return frequencies[static_cast<std::size_t>(pair)] * static_cast<double>(prompt_tokens) > most_turn;
  };
  int first = wanted;
  while (first < last && turns(first)) ++first;
  const int least = std::max(4, pairs / 16);
  const bool few = least > 4 && pairs - first < least;
  return turns(first) || few ? std::max(wanted, pairs - least) : first;
}

}  // namespace

PairRoles pair_roles(const ChannelModel& model, const config::Rope& rope, int head_dim, std::int64_t prompt_tokens) {
  PairRoles roles;
  roles.head_dim = head_dim;
  roles.frequencies = rope_frequencies(rope, head_dim);
  const int pairs = head_dim / 2;
  const int content = first_quiet(roles.frequencies, model.content_share, model.content_turn, prompt_tokens);
  const int outlier = first_quiet(roles.frequencies, model.outlier_share, model.outlier_turn, prompt_tokens);
  for (int p = content; p < pairs; ++p) roles.content.push_back(p);
  for (int p = outlier; p < pairs; ++p) roles.outlier.push_back(p);
  for (int p = 0; p < content; ++p) {
    const double wavelength = 2 * std::numbers::pi / roles.frequencies[p];
    if (wavelength >= model.recency_shortest && wavelength <= model.recency_longest) roles.recency.push_back(p);
  }
  if (roles.recency.empty() && content > 0) roles.recency.push_back(content / 2);
  return roles;
}

HeadChannels head_channels(const PairRoles& roles, const ChannelModel& model, const Stream& stream) {
  const int half = roles.head_dim / 2;
  std::vector<int> candidates;
  for (const int p : roles.outlier) {
    candidates.push_back(p);
    candidates.push_back(p + half);
  }
  // Content keeps a quarter of its channels, and at least one.
  long wanted = std::lround(model.outliers * roles.head_dim / 128);
  if (model.outliers_spread > 0) {
    const auto choices = static_cast<std::uint64_t>(2 * model.outliers_spread + 1);
    wanted += static_cast<long>(stream.child({kOutlierCount}).below(0, choices)) - model.outliers_spread;
  }
  wanted = std::max(1L, wanted);
  const std::size_t most = 2 * roles.content.size() - std::max<std::size_t>(1, roles.content.size() / 2);
  const std::size_t count = std::min({static_cast<std::size_t>(wanted), candidates.size() - 1, most});
  HeadChannels channels;
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(candidates[i], candidates[i + stream.below(2 * i, candidates.size() - i)]);
    channels.outliers.push_back(candidates[i]);
    channels.outlier_sign.push_back((stream.bits(2 * i + 1) >> 63) != 0 ? 1.0f : -1.0f);
  }
  for (const int offset : {0, half}) {
    for (const int p : roles.content) {
      const bool outlier = std::count(channels.outliers.begin(), channels.outliers.end(), p + offset) > 0;
      if (!outlier) channels.content.push_back(p + offset);
    }
  }
  return channels;
}

}  // namespace kvcast::trace
