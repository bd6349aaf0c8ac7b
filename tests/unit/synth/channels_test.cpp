// Which channels of a head encode what, at prompts that leave no slow pair.
#include "synth/channels.hpp"

#include <catch2/catch.hpp>

namespace kvcast::tests {

using namespace trace;

namespace {

TEST_CASE("prompts that turn every pair leave content channels of its own to every head") {
  // Pair i of 512 dimensions turns 10000^(-2i/512) / 16 a token in the slow ones: the slowest 0.85 radians over 131072
  // tokens and 1.7 over 262144.
  const config::Rope yarn{10000, config::Rope::Scaling::kYarn, 16, 1, 4, 65536};
  ChannelModel model;
  for (const int head_dim : {256, 512}) {
    for (const std::int64_t tokens : {65536, 131072, 262144, 1048576}) {
      INFO(head_dim << " dimensions, " << tokens << " tokens");
      const PairRoles roles = pair_roles(model, yarn, head_dim, tokens);
      CHECK(roles.content.size() >= static_cast<std::size_t>(std::max(4, head_dim / 32)));
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const HeadChannels channels = head_channels(roles, model, Stream(seed));
        CHECK(channels.outliers.size() >= 1);
        CHECK(channels.content.size() >= 3);
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
