#include "replay/parts.hpp"

#include <algorithm>

#include "policy/growth.hpp"
#include "replay/draw.hpp"

namespace kvcast::replay {
namespace {

// Returns the layer with steps [first, last) instead of all after the warm-up, their counts moved to the context of the
// steps that they represent.
LayerCounts with_steps(const LayerCounts& layer, const policy::Growth& growth, std::int64_t prompt, int first,
                       int last) {
  LayerCounts part = layer;
  const int steps = static_cast<int>(layer.counts.size()) / layer.heads;
  for (int step = kWarmupSteps; step < steps; ++step) {
    const int taken = first + (step - kWarmupSteps) % (last - first);
    for (int head = 0; head < layer.heads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      part.counts[static_cast<std::size_t>(step * layer.heads) + h] =
          policy::grown(layer.at(taken)[h], growth, prompt + taken, prompt + step);
    }
  }
  return part;
}

// Returns the replay without the layers that its policy compresses.
ReplayResult without_compressed(const ReplayResult& replay) {
  ReplayResult part;
  part.trace_source = replay.trace_source;
  part.prompt_tokens = replay.prompt_tokens, part.decode_steps = replay.decode_steps;
  part.per_query_head = replay.per_query_head, part.dense_layers = replay.dense_layers;
  part.growth = replay.growth;
  part.proxies.attended_mean = replay.proxies.attended_mean;
  for (const LayerCounts& layer : replay.layers) {
    if (layer.layer < replay.dense_layers) part.layers.push_back(layer);
  }
  return part;
}

bool equal_counts(const ReplayResult& a, const ReplayResult& b) {
  return std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(),
                    [](const LayerCounts& x, const LayerCounts& y) { return x.counts == y.counts; });
}

}  // namespace

std::vector<ReplayResult> parts(const ReplayResult& replay) {
  std::vector<const LayerCounts*> layers;
  for (const LayerCounts& layer : replay.layers) {
    if (layer.layer >= replay.dense_layers) layers.push_back(&layer);
  }
  const ReplayResult empty = without_compressed(replay);
  const int half = (replay.decode_steps - kWarmupSteps) / 2;
  const bool halved = 2 * layers.size() < kMostParts && half >= 1;
  std::vector<ReplayResult> out(halved ? 2 * layers.size() : std::min<std::size_t>(kMostParts, layers.size()), empty);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!halved) {
      out[i % out.size()].layers.push_back(*layers[i]);
      continue;
    }
    const int middle = kWarmupSteps + half;
    out[2 * i].layers.push_back(with_steps(*layers[i], replay.growth, replay.prompt_tokens, kWarmupSteps, middle));
    out[2 * i + 1].layers.push_back(
        with_steps(*layers[i], replay.growth, replay.prompt_tokens, middle, replay.decode_steps));
  }
  const bool same = std::ranges::all_of(out, [&](const ReplayResult& part) { return equal_counts(part, out[0]); });
  if (same || out.size() < 2) out.clear();
  return out;
}

}  // namespace kvcast::replay
