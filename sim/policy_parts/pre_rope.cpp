#include "policy_parts/pre_rope.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/model.hpp"
#include "trace/rope.hpp"

namespace kvcast::policy {

std::vector<double> trace_frequencies(const trace::TraceInfo& info) {
  if (info.head_dim % 2 != 0) {
    throw UserError(
        {}, fmt::format("rotary position embedding requires an even head dimension; the trace has {}", info.head_dim));
  }
  config::Rope rope;
  rope.theta = info.rope_theta;
  if (const auto path = config::find_config_if_any("models", info.model, {})) {
    const config::Model model = config::read_model(*path);
    // The model's embedding applies only if the trace has the same theta.
    if (model.rope.theta == rope.theta) rope = model.rope;
  }
  return trace::rope_frequencies(rope, info.head_dim);
}

std::vector<float> turned_back(const trace::TraceInfo& info, const MatrixView& rows, std::int64_t first) {
  std::vector<double> backwards = trace_frequencies(info);
  for (double& frequency : backwards) frequency = -frequency;
  trace::RotationTable table(std::move(backwards));
  constexpr std::int64_t kBlock = trace::RotationTable::kBlock;
  std::vector<float> out(rows.rows * rows.cols);
  std::int64_t begin = -1;  // first position of the run in the table
  for (std::size_t i = 0; i < rows.rows; ++i) {
    const std::int64_t position = first + static_cast<std::int64_t>(i), run = position / kBlock * kBlock;
    if (run != begin) table.fill(begin = run, static_cast<int>(kBlock));
    std::copy_n(rows.row(i), rows.cols, out.data() + i * rows.cols);
    table.rotate(static_cast<int>(position - run), out.data() + i * rows.cols);
  }
  return out;
}

std::vector<float> keys_before_rope(const trace::Layer& layer, int kv_head, std::int64_t tokens) {
  MatrixView keys = layer.keys(kv_head);
  keys.rows = tokens;
  return turned_back(layer.info(), keys, 0);
}

}  // namespace kvcast::policy
