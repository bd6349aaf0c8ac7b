// Rows are computed in blocks of a few queries: one matrix product per block with the held keys, then a softmax per
// row. If the held tokens are not contiguous, their keys are gathered once per call.
#include "policy/weights.hpp"

#include <algorithm>
#include <cmath>

#include "base/causal_sums.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "base/parallel.hpp"

namespace kvcast::policy {
namespace {

constexpr std::int64_t kRowsOfBlock = 128;

float scale_of(const trace::TraceInfo& info) { return 1.0f / std::sqrt(static_cast<float>(info.head_dim)); }

bool contiguous(const Held& held) {
  return held.empty() || held.back() - held.front() + 1 == static_cast<std::int32_t>(held.size());
}

}  // namespace

void require_prompt_queries(const trace::TraceInfo& info, std::int64_t first, std::string_view who) {
  const std::int64_t there = info.longest_window();
  if (first >= info.prompt_tokens - there) return;
  throw UserError(fmt::format(
      "{}: it needs the queries of prompt position{}, but the trace captured only the last {} of {} without "
      "a gap. {} a capture with more queries",
      who,
      first + 1 == info.prompt_tokens ? fmt::format(" {}", first)
                                      : fmt::format("s {} to {}", first, info.prompt_tokens - 1),
      there, info.prompt_tokens,
      info.file.empty() ? fmt::format("Set trace.window: {} or use", info.prompt_tokens - first) : "Use"));
}

void PromptRows::hold(int kv_head, const Held& held) {
  held_ = &held;
  keys_ = layer_.keys(kv_head);
  if (contiguous(held)) {
    keys_.data = keys_.row(held.empty() ? 0 : index(held.front()));
    keys_.rows = held.size();
    return;
  }
  gathered_.resize(held.size() * keys_.cols);
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::copy_n(keys_.row(index(held[i])), keys_.cols, gathered_.data() + i * keys_.cols);
  }
  keys_ = {gathered_.data(), held.size(), keys_.cols, keys_.cols};
}

void PromptRows::visit(int q_head, std::int64_t first, std::int64_t end, const VisitRow& visit) {
  const trace::TraceInfo& info = layer_.info();
  KVCAST_CHECK(held_ != nullptr && first >= info.prompt_tokens - info.longest_window() && end <= info.prompt_tokens);
  const MatrixView queries = layer_.queries(q_head);
  const auto visible = [&](std::int64_t position) {
    return index(std::upper_bound(held_->begin(), held_->end(), position) - held_->begin());
  };
  for (std::int64_t at = first; at < end; at += kRowsOfBlock) {
    const std::int64_t n = std::min(kRowsOfBlock, end - at);
    const std::size_t columns = visible(at + n - 1);
    if (columns == 0) continue;
    rows_.resize(index(n) * columns);
    MatrixView seen = keys_, block = queries;
    seen.rows = columns;
    block.data = queries.row(index(info.prompt_queries() - info.prompt_tokens + at));
    block.rows = index(n);
    multiply_transposed(block, seen, rows_.data(), columns, layer_.cancel());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::span row(rows_.data() + index(i) * columns, visible(at + i));
      if (row.empty()) continue;
      softmax(row, scale_of(info));
      visit(at + i, row);
    }
  }
}

void visit_prompt_rows(const trace::Layer& layer, int q_head, std::int64_t first, std::int64_t end, const Held& held,
                       const VisitRow& visit) {
  PromptRows rows(layer);
  rows.hold(q_head / layer.info().group(), held);
  rows.visit(q_head, first, end, visit);
}

WindowMoments measure_window(PromptRows& rows, int q_head, std::int64_t end, int window, std::size_t held,
                             Moments which) {
  const std::size_t columns = held - index(window);
  const bool all = which == Moments::kAll;
  WindowMoments out{std::vector<double>(columns), std::vector<double>(all ? columns : 0)};
  rows.visit(q_head, end - window, end, [&](std::int64_t, std::span<const float> weights) {
    for (std::size_t i = 0; i < columns; ++i) out.sum[i] += static_cast<double>(weights[i]);
    for (std::size_t i = 0; all && i < columns; ++i) {
      const double a = weights[i];
      out.squares[i] += a * a;
      out.entropy -= a * std::log(a + 1e-10);
    }
  });
  return out;
}

WindowMoments measure_window(const trace::Layer& layer, int q_head, std::int64_t end, int window, const Held& held,
                             Moments which) {
  PromptRows rows(layer);
  rows.hold(q_head / layer.info().group(), held);
  return measure_window(rows, q_head, end, window, held.size(), which);
}

std::vector<std::vector<double>> sum_prompt_weights(const trace::Layer& layer, int threads) {
  const trace::TraceInfo& info = layer.info();
  require_prompt_queries(info, 0, "sums over the queries of a prompt");
  std::vector<std::vector<double>> sums(index(info.n_q_heads));
  parallel_for(sums.size(), threads, [&](std::size_t q) {
    sums[q].assign(index(info.prompt_tokens), 0.0);
    MatrixView keys = layer.keys(static_cast<int>(q) / info.group()), queries = layer.queries(static_cast<int>(q));
    keys.rows = queries.rows = sums[q].size();
    add_causal_sums(queries, keys, scale_of(info), sums[q], layer.cancel());
  });
  return sums;
}

void step_weights(const trace::Layer& layer, int q_head, int t, const Held& held, std::vector<float>& out) {
  const float* const row = layer.decode_scores(q_head).row(index(t));
  out.resize(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) out[i] = row[held[i]];
  if (!out.empty()) softmax(out, scale_of(layer.info()));
}

}  // namespace kvcast::policy
