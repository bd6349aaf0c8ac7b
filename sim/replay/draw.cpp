#include "replay/draw.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "policy/growth.hpp"

namespace kvcast::replay {
namespace {

// Index of the captured layer that represents `layer`; ties go to the lower one because captured layers ascend.
std::size_t nearest_captured(const ReplayResult& replay, int layer) {
  const bool compressed = layer >= replay.dense_layers;
  std::size_t best = replay.layers.size();
  for (std::size_t i = 0; i < replay.layers.size(); ++i) {
    if (compressed && replay.layers[i].layer < replay.dense_layers) continue;
    const auto distance = [&](std::size_t k) { return std::abs(replay.layers[k].layer - layer); };
    if (best == replay.layers.size() || distance(i) < distance(best)) best = i;
  }
  if (best == replay.layers.size()) {
    throw UserError(
        fmt::format("the trace has only layers below first_dense_layers ({}), which the policy does not compress",
                    replay.dense_layers));
  }
  return best;
}

}  // namespace

Draw::Draw(const ReplayResult& replay, const config::Model& model, int batch, Stream stream)
    : Draw(replay, model, batch, std::min(kWarmupSteps, replay.decode_steps - 1), std::optional(stream)) {}

Draw Draw::in_order(const ReplayResult& replay, const config::Model& model, int batch, int first) {
  return {replay, model, batch, first, std::nullopt};
}

Draw::Draw(const ReplayResult& replay, const config::Model& model, int batch, int first, std::optional<Stream> stream)
    : replay_(replay), stream_(stream), batch_(batch), first_step_(first) {
  KVCAST_CHECK(batch >= 1 && first >= 0 && first < replay.decode_steps);
  counted_tokens_ = replay.prompt_tokens + replay.decode_steps;
  for (int layer = 0; layer < model.layers; ++layer) nearest_.push_back(nearest_captured(replay, layer));
  for (const LayerCounts& layer : replay.layers) {
    std::vector<policy::HeadCounts>& grown = grown_.emplace_back();
    for (int step = first_step_; step < replay.decode_steps; ++step) {
      const policy::GrowthBy later(replay.growth, replay.prompt_tokens + step + 1, counted_tokens_);
      for (const policy::HeadCounts& head : layer.at(step)) grown.push_back(later(head));
      varies_ = varies_ || !std::equal(grown.end() - layer.heads, grown.end(), grown.begin());
    }
  }
}

std::span<const policy::HeadCounts> Draw::heads(int layer, std::int64_t step) {
  const std::size_t captured = nearest_.at(static_cast<std::size_t>(layer));
  const auto heads = static_cast<std::size_t>(replay_.layers[captured].heads);
  const auto steps = static_cast<std::uint64_t>(replay_.decode_steps - first_step_);
  drawn_.clear();
  for (int sequence = 0; sequence < batch_; ++sequence) {
    std::uint64_t seen = step;
    if (stream_) {
      const Stream stream = stream_->child({static_cast<std::uint64_t>(sequence), static_cast<std::uint64_t>(layer)});
      seen = stream.below(seen, steps);
    }
    KVCAST_CHECK(seen < steps);
    const auto first = grown_[captured].begin() + static_cast<std::ptrdiff_t>(seen * heads);
    drawn_.insert(drawn_.end(), first, first + static_cast<std::ptrdiff_t>(heads));
  }
  return drawn_;
}

double Draw::prompt_density(int layer) const {
  return layer < replay_.dense_layers ? 1 : replay_.layers[nearest_.at(layer)].prompt.density;
}

}  // namespace kvcast::replay
