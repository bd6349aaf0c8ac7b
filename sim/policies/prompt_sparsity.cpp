#include "policies/prompt_sparsity.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/composition.hpp"

namespace kvcast::policy {

SparsePrompt::SparsePrompt(std::unique_ptr<Policy> inner, const SourceLocation& where)
    : WrappedPolicy(std::move(inner)), where_(where) {
  if (dynamic_cast<const SparsePrompt*>(inner_.get()) != nullptr) {
    throw UserError(where, "then: the prompt has a sparse pattern already, and a second one would not be applied");
  }
}

void SparsePrompt::check(const Lengths& request) const {
  inner_->check(request);
  if (inner_->prompt_blocks({}, 0, request).tokens == 0) return;
  throw UserError(where_,
                  "then: the sparse pattern needs the whole prompt, but this policy reads the prompt in blocks");
}

Parameter then_parameter() {
  return policy_parameter("then", "full", "policy that handles the cache after the prompt");
}

std::unique_ptr<Policy> read_then(const ParameterValues& values) { return read_policy(values, "then"); }

double causal_pairs(std::int64_t tokens) { return static_cast<double>(tokens) * (static_cast<double>(tokens) + 1) / 2; }

namespace {

// Returns the query that is looked at in the part-th of `rows` equal parts of `there` queries. Its place within the
// part differs from part to part, so that periodic positions, such as the ends of tiles, are sampled as often as they
// occur.
std::int64_t looked_at(std::int64_t part, std::int64_t rows, std::int64_t there) {
  constexpr double kGolden = 0.6180339887498949;
  const std::int64_t first = part * there / rows, next = (part + 1) * there / rows;
  const double turn = kGolden * (part + 1);
  return first + static_cast<std::int64_t>((turn - std::floor(turn)) * static_cast<double>(next - first));
}

}  // namespace

double prompt_recall(const trace::Layer& layer, int q_head, const Keeps& keeps) {
  constexpr std::int64_t kRows = 128;
  const trace::TraceInfo& info = layer.info();
  const std::int64_t there = std::min(info.longest_window(), info.prompt_tokens), rows = std::min(kRows, there);
  if (rows == 0) return 1;
  const MatrixView all = layer.queries(q_head);
  std::vector<std::int64_t> positions;
  std::vector<float> queries, scores(index(rows * info.prompt_tokens));
  for (std::int64_t r = 0; r < rows; ++r) {
    positions.push_back(info.prompt_tokens - there + looked_at(r, rows, there));
    const float* const query = all.row(index(info.prompt_queries() - info.prompt_tokens + positions.back()));
    queries.insert(queries.end(), query, query + all.cols);
  }
  MatrixView keys = layer.keys(q_head / info.group());
  keys.rows = index(info.prompt_tokens);
  multiply_transposed({queries.data(), index(rows), all.cols, all.cols}, keys, scores.data(), keys.rows);
  double sum = 0;
  for (std::size_t r = 0; r < positions.size(); ++r) {
    const std::span row(scores.data() + r * keys.rows, index(positions[r] + 1));
    softmax(row, 1 / std::sqrt(static_cast<float>(info.head_dim)));
    for (std::size_t j = 0; j < row.size(); ++j) {
      if (keeps(positions[r], j)) sum += row[j];
    }
  }
  return sum / rows;
}

OpId sum_last_queries(const Dims& m, double heads, double rows, double keys, LayerOps& ops) {
  const Kernel look{KernelClass::kScore, (heads * keys + rows) * m.row(), rows * keys * kScoreBytes,
                    2 * rows * keys * m.d};
  const OpId looked = ops.compute(Kind::kIndex, "last queries' scores", look, {ops.ready()});
  const Kernel sums{KernelClass::kReduce, 3 * rows * keys * kScoreBytes, 2 * heads * keys * kScoreBytes,
                    6 * rows * keys};
  return ops.compute(Kind::kIndex, "softmax, column and diagonal sums", sums, {looked});
}

OpId sparse_attention(const PrefillChunk& chunk, LayerOps& ops, OpId after) {
  return ops.compute(Kind::kAttention, "sparse prefill attention", causal_attention(chunk), {after});
}

}  // namespace kvcast::policy
