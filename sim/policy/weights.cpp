// Rows come in blocks of a few queries: one matrix product a block against the held keys, then a softmax a row. Where
// the held tokens are not one contiguous piece, their keys are gathered once a call.
#include "policy/weights.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

float scale_of(const trace::TraceInfo& info) { return 1.0f / std::sqrt(static_cast<float>(info.head_dim)); }

bool contiguous(const Held& held) {
  return held.empty() || held.back() - held.front() + 1 == static_cast<std::int32_t>(held.size());
}

// Keys of the held tokens; `storage` holds them where they had to be gathered.
MatrixView held_keys(const trace::Layer& layer, int kv_head, const Held& held, std::vector<float>& storage) {
  MatrixView keys = layer.keys(kv_head);
  if (contiguous(held)) {
    keys.data = keys.row(held.empty() ? 0 : index(held.front()));
    keys.rows = held.size();
    return keys;
  }
  storage.resize(held.size() * keys.cols);
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::copy_n(keys.row(index(held[i])), keys.cols, storage.data() + i * keys.cols);
  }
  return {storage.data(), held.size(), keys.cols, keys.cols};
}

}  // namespace

void require_prompt_queries(const trace::TraceInfo& info, std::int64_t first, std::string_view who) {
  const std::int64_t there = info.longest_window();
  if (first >= info.prompt_tokens - there) return;
  throw UserError(fmt::format(
      "{}: the queries of prompt positions {} to {} are needed, the trace holds the last {} of its {} without a gap",
      who, first, info.prompt_tokens - 1, there, info.prompt_tokens));
}

void visit_prompt_rows(const trace::Layer& layer, int q_head, std::int64_t first, std::int64_t end, const Held& held,
                       const VisitRow& visit) {
  const trace::TraceInfo& info = layer.info();
  KVCAST_CHECK(first >= info.prompt_tokens - info.longest_window() && end <= info.prompt_tokens);
  std::vector<float> storage, rows;
  const MatrixView keys = held_keys(layer, q_head / info.group(), held, storage);
  const MatrixView queries = layer.queries(q_head);
  const auto visible = [&](std::int64_t position) {
    return index(std::upper_bound(held.begin(), held.end(), position) - held.begin());
  };
  for (std::int64_t at = first; at < end; at += kRowsAtOnce) {
    const std::int64_t n = std::min(kRowsAtOnce, end - at);
    const std::size_t columns = visible(at + n - 1);
    if (columns == 0) continue;
    rows.resize(index(n) * columns);
    MatrixView seen = keys, block = queries;
    seen.rows = columns;
    block.data = queries.row(index(info.prompt_queries() - info.prompt_tokens + at));
    block.rows = index(n);
    multiply_transposed(block, seen, rows.data(), columns);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::span row(rows.data() + index(i) * columns, visible(at + i));
      if (row.empty()) continue;
      softmax(row, scale_of(info));
      visit(at + i, row);
    }
  }
}

WindowMoments measure_window(const trace::Layer& layer, int q_head, std::int64_t end, int window, const Held& held,
                             Moments which) {
  const std::size_t columns = held.size() - index(window);
  const bool all = which == Moments::kAll;
  WindowMoments out{std::vector<double>(columns), std::vector<double>(all ? columns : 0)};
  visit_prompt_rows(layer, q_head, end - window, end, held, [&](std::int64_t, std::span<const float> weights) {
    for (std::size_t i = 0; i < columns; ++i) out.sum[i] += static_cast<double>(weights[i]);
    for (std::size_t i = 0; all && i < columns; ++i) {
      const double a = weights[i];
      out.squares[i] += a * a;
      out.entropy -= a * std::log(a + 1e-10);
    }
  });
  return out;
}

void step_weights(const trace::Layer& layer, int q_head, int t, const Held& held, std::vector<float>& out) {
  const float* const row = layer.decode_scores(q_head).row(index(t));
  out.resize(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) out[i] = row[held[i]];
  if (!out.empty()) softmax(out, scale_of(layer.info()));
}

}  // namespace kvcast::policy
