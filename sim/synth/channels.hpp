// Assignment of a head's channels to roles, by the speed at which RoPE turns them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "config/model.hpp"
#include "synth/recipe.hpp"

namespace kvcast::trace {

// Roles of RoPE pairs, the same for all heads.
struct PairRoles {
  int head_dim = 0;
  std::vector<double> frequencies;  // radians per token
  std::vector<int> content;         // slow pairs, whose phase hardly changes over the prompt
  std::vector<int> outlier;         // slowest pairs, from which outlier channels are drawn
  std::vector<int> recency;         // pairs of medium wavelength, whose phase encodes the distance
};

PairRoles pair_roles(const ChannelModel& model, const config::Rope& rope, int head_dim, std::int64_t prompt_tokens);

// Channels of one KV head. Channels i and i + head_dim / 2 are pair i.
struct HeadChannels {
  std::vector<int> content;  // without outliers
  std::vector<int> outliers;
  std::vector<float> outlier_sign;  // sign of the queries in outlier channels; keys have the opposite one
};

HeadChannels head_channels(const PairRoles& roles, const ChannelModel& model, const Stream& stream);

}  // namespace kvcast::trace
