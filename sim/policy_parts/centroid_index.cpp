// Multiplies blocks of centroids with all keys, one matrix product per query head and block. Keys are ranked by the
// logarithm of their weight, q·k/√d − log Σ, so that weights too small for single precision keep their order.
#include "policy_parts/centroid_index.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/index.hpp"
#include "base/log_sum_exp.hpp"
#include "policy_parts/ranking.hpp"

namespace kvcast::policy {
namespace {

constexpr std::size_t kCentroidsAtOnce = 128;  // enough for the products to outweigh the packing of the keys

// Copies rows of a matrix.
std::vector<float> gather(const MatrixView& all, std::span<const std::size_t> rows) {
  std::vector<float> out(rows.size() * all.cols);
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(all.row(rows[i]), all.cols, out.data() + i * all.cols);
  return out;
}

void normalise_rows(std::vector<float>& rows, std::size_t d) {
  for (std::size_t at = 0; at < rows.size(); at += d) {
    const float norm = std::sqrt(dot(rows.data() + at, rows.data() + at, d));
    if (norm > 0) std::for_each_n(rows.begin() + at, d, [&](float& x) { x /= norm; });
  }
}

}  // namespace

std::vector<std::int64_t> centroid_positions(CentroidQueries which, std::int64_t count, std::int64_t prompt,
                                             const Stream& stream) {
  KVCAST_CHECK(count >= 1 && count <= prompt);
  std::vector<std::int64_t> out(index(count));
  std::iota(out.begin(), out.end(), which == CentroidQueries::kLast ? prompt - count : 0);
  if (which == CentroidQueries::kUniform) {
    for (std::int64_t& i : out) i = i * prompt / count;
  }
  if (which == CentroidQueries::kRandom) {
    // Selection sampling (Knuth, The Art of Computer Programming, volume 2, algorithm S).
    std::size_t taken = 0;
    for (std::int64_t i = 0; taken < out.size(); ++i) {
      const auto wanted = static_cast<double>(out.size() - taken), left = static_cast<double>(prompt - i);
      if (stream.uniform(static_cast<std::uint64_t>(i)) * left < wanted) out[taken++] = i;
    }
  }
  return out;
}

std::vector<std::size_t> query_rows(const trace::TraceInfo& info, std::span<const std::int64_t> positions) {
  std::vector<std::size_t> rows;
  for (const std::int64_t position : positions) {
    const auto found = std::lower_bound(info.query_positions.begin(), info.query_positions.end(), position);
    if (found == info.query_positions.end() || *found != position) {
      throw UserError(
          fmt::format("ctkvr needs the query of prompt position {} as one of {} centroids; the trace captured only {} "
                      "prompt queries, the last {} without a gap. Reduce centroids{} or use a capture with "
                      "more queries",
                      position, positions.size(), info.prompt_queries(), info.longest_window(),
                      info.file.empty() ? fmt::format(", set trace.window: {}", positions.size()) : ""));
    }
    rows.push_back(index(found - info.query_positions.begin()));
  }
  return rows;
}

CentroidLists::CentroidLists(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows, Range host,
                             std::size_t length)
    : length_(std::min(length, index(host.size()))) {
  const trace::TraceInfo& info = layer.info();
  const std::size_t prompt = index(info.prompt_tokens), d = index(info.head_dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(info.head_dim));
  MatrixView keys = layer.keys(kv_head);
  keys.rows = prompt;
  const Floats scores = uninitialised_floats(std::min(kCentroidsAtOnce, rows.size()) * prompt);
  std::vector<float> best(std::min(kCentroidsAtOnce, rows.size()) * index(host.size()));
  std::vector<std::int32_t> list;
  Ranking ranking;
  lists_.reserve(rows.size() * length_);
  for (std::size_t first = 0; first < rows.size(); first += kCentroidsAtOnce) {
    const auto block = rows.subspan(first, std::min(kCentroidsAtOnce, rows.size() - first));
    std::fill(best.begin(), best.end(), -std::numeric_limits<float>::infinity());
    for (int g = 0; g < info.group(); ++g) {
      const std::vector<float> queries = gather(layer.queries(kv_head * info.group() + g), block);
      multiply_transposed({queries.data(), block.size(), d, d}, keys, scores.get(), prompt, layer.cancel());
      for (std::size_t c = 0; c < block.size(); ++c) {
        const float* const row = scores.get() + c * prompt;
        const auto log_sum = static_cast<float>(log_sum_exp({row, prompt}, scale));
        float* const out = best.data() + c * index(host.size());
        for (std::size_t i = 0; i < index(host.size()); ++i) {
          out[i] = std::max(out[i], scale * row[index(host.begin) + i] - log_sum);
        }
      }
    }
    for (std::size_t c = 0; c < block.size(); ++c) {
      ranking.select(std::span(best).subspan(c * index(host.size()), index(host.size())), length_, list);
      for (const std::int32_t i : list) lists_.push_back(i + static_cast<std::int32_t>(host.begin));
    }
  }
}

std::vector<float> query_similarity(const trace::Layer& layer, int kv_head, std::span<const std::size_t> rows) {
  const trace::TraceInfo& info = layer.info();
  const std::size_t steps = index(info.decode_steps), d = index(info.head_dim), n = rows.size() + steps;
  std::vector<std::size_t> all(rows.begin(), rows.end());
  for (std::size_t t = 0; t < steps; ++t) all.push_back(index(info.prompt_queries()) + t);
  std::vector<float> best(steps * n, -2.0f), cosines(steps * n);
  for (int g = 0; g < info.group(); ++g) {
    std::vector<float> queries = gather(layer.queries(kv_head * info.group() + g), all);
    normalise_rows(queries, d);
    multiply_transposed({queries.data() + rows.size() * d, steps, d, d}, {queries.data(), n, d, d}, cosines.data(), n);
    for (std::size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], cosines[i]);
  }
  return best;
}

}  // namespace kvcast::policy
