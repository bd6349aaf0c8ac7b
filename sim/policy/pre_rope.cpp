#include "policy/pre_rope.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/model.hpp"
#include "trace/rope.hpp"

namespace kvcast::policy {

std::vector<double> trace_frequencies(const trace::TraceInfo& info) {
  if (info.head_dim % 2 != 0) {
    throw UserError(
        {}, fmt::format("rotary position embedding needs an even head dimension, the trace has {}", info.head_dim));
  }
  config::Rope rope;
  rope.theta = info.rope_theta;
  if (const auto path = config::find_config_if_any("models", info.model, {})) {
    const config::Model model = config::read_model(*path);
    // The trace's own theta decides whether it is that model's embedding.
    if (model.rope.theta == rope.theta) rope = model.rope;
  }
  return trace::rope_frequencies(rope, info.head_dim);
}

std::vector<float> keys_before_rope(const trace::Layer& layer, int kv_head, std::int64_t tokens) {
  std::vector<double> backwards = trace_frequencies(layer.info());
  for (double& frequency : backwards) frequency = -frequency;
  trace::RotationTable table(std::move(backwards));
  const auto d = static_cast<std::size_t>(layer.info().head_dim);
  std::vector<float> out(static_cast<std::size_t>(tokens) * d);
  for (std::int64_t first = 0; first < tokens; first += trace::RotationTable::kBlock) {
    const auto n = static_cast<int>(std::min<std::int64_t>(trace::RotationTable::kBlock, tokens - first));
    table.fill(first, n);
    for (int i = 0; i < n; ++i) {
      const auto position = static_cast<std::size_t>(first + i);
      float* const key = out.data() + position * d;
      std::copy_n(layer.keys(kv_head).row(position), d, key);
      table.rotate(i, key);
    }
  }
  return out;
}

}  // namespace kvcast::policy
