// One matrix product scores all full pages of the prompt for several steps at once: with the query split by sign into
// [q⁺ | q⁻], Σ_j max(q_j·min_j, q_j·max_j) = q⁺·max + q⁻·min. Pages that decoding fills are scored one at a time.
#include "policy_parts/page_scorer.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

constexpr int kStepsAtOnce = 16;

// Sums in the order of the matrix product, so that a page filled by decoding ties with an equal one of the prompt.
float product_in_order(const float* a, const float* b, std::size_t n) {
  float sum = 0;
  for (std::size_t j = 0; j < n; ++j) sum = std::fma(a[j], b[j], sum);
  return sum;
}

// log Σ exp(scale·x).
double log_sum(std::span<const float> row, float scale) {
  const auto most = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0;
  for (const float x : row) sum += std::exp(static_cast<double>(scale) * (static_cast<double>(x) - most));
  return static_cast<double>(scale) * most + std::log(sum);
}

// softmax() replaces weights below single precision by the smallest ones.
bool has_weight(float weight) { return weight > 1e-36f; }

// Scores of the pages without a weight: the logarithm of the sum of their weights over the heads, or of the maximum.
void rank_underflow(std::span<const std::vector<float>> products, bool largest, float scale, std::span<float> out) {
  if (std::all_of(out.begin(), out.end(), has_weight)) return;
  std::vector<double> sums;
  for (const std::vector<float>& row : products) sums.push_back(log_sum(row, scale));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (has_weight(out[i])) continue;
    double most = -HUGE_VAL, sum = 0;
    for (std::size_t h = 0; h < products.size(); ++h) {
      most = std::max(most, static_cast<double>(scale) * static_cast<double>(products[h][i]) - sums[h]);
    }
    for (std::size_t h = 0; h < products.size(); ++h) {
      sum += std::exp(static_cast<double>(scale) * static_cast<double>(products[h][i]) - sums[h] - most);
    }
    out[i] = static_cast<float>(largest ? most : most + std::log(sum));
  }
}

// Bounds that policies share if the list is the whole prompt; otherwise separate ones.
std::shared_ptr<const PageBounds> prompt_pages(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                               const PageScorer::Shape& shape) {
  if (tokens.whole()) {
    const auto shared = layer.page_bounds(shape.page, shape.first, shape.summary, shape.format);
    return {shared, &(*shared)[static_cast<std::size_t>(kv_head)]};
  }
  const std::int64_t full = tokens.prompt_tokens_kept() / shape.page;
  auto bounds = std::make_shared<PageBounds>(layer.info().head_dim, shape.page, full, shape.summary, shape.format);
  const MatrixView keys = layer.layer().keys(kv_head);
  for (std::int64_t i = 0; i < full * shape.page; ++i) {
    bounds->append(keys.row(static_cast<std::size_t>(tokens.position(i))));
  }
  return bounds;
}

}  // namespace

PageScorer::PageScorer(const LayerInput& layer, int kv_head, const TokenList& tokens, const Shape& shape)
    : layer_(layer.layer()),
      kv_head_(kv_head),
      members_(layer.info().group()),
      shape_(shape),
      before_(prompt_pages(layer, kv_head, tokens, shape)),
      full_before_(before_->full_pages()),
      tail_(layer.info().head_dim, shape.page, layer.info().decode_steps / shape.page + 2, shape.summary,
            shape.format) {
  KVCAST_CHECK(tokens.whole() || shape.first == 0);
  const MatrixView keys = layer_.keys(kv_head);
  const std::int64_t begin = shape.first + static_cast<std::int64_t>(full_before_) * shape.page;
  for (std::int64_t i = begin; i < tokens.prompt_tokens_kept(); ++i) {
    tail_.append(keys.row(static_cast<std::size_t>(tokens.position(i))));
  }
}

void PageScorer::append(int t) {
  const std::int64_t position = layer_.info().prompt_tokens + t;
  if (position >= shape_.first) tail_.append(layer_.keys(kv_head_).row(static_cast<std::size_t>(position)));
}

void PageScorer::make_block(int t) {
  const trace::TraceInfo& info = layer_.info();
  const auto d = static_cast<std::size_t>(info.head_dim);
  block_ = t;
  block_steps_ = std::min(kStepsAtOnce, info.decode_steps - t);
  const std::size_t n = block_steps_ * rows();
  queries_.resize(n * 2 * d);
  scores_.resize(n * full_before_);
  std::vector<const float*> heads(members_);
  std::vector<float> combined(d);
  for (int step = 0; step < block_steps_; ++step) {
    for (int g = 0; g < members_; ++g) {
      heads[g] = layer_.decode_query(kv_head_ * members_ + g, t + step);
    }
    if (combines_queries(shape_.group)) {
      combine_queries(shape_.group, heads, d, combined);
      heads[0] = combined.data();
    }
    for (std::size_t row = 0; row < rows(); ++row) {
      split_signs(heads[row], d, queries_.data() + (static_cast<std::size_t>(step) * rows() + row) * 2 * d);
    }
  }
  multiply_transposed({queries_.data(), n, 2 * d, 2 * d}, before_->rows(), scores_.data(), full_before_);
}

void PageScorer::fill_row(int t, std::size_t row, std::size_t n, std::span<float> out) const {
  const std::size_t index = static_cast<std::size_t>(t - block_) * rows() + row;
  const std::size_t before = std::min(n, full_before_);
  std::copy_n(scores_.data() + index * full_before_, before, out.begin());
  const MatrixView tail = tail_.rows();
  for (std::size_t i = before; i < n; ++i) {
    out[i] = product_in_order(queries_.data() + index * tail.cols, tail.row(i - full_before_), tail.cols);
  }
}

void PageScorer::score(int t, std::size_t n, float scale, std::vector<float>& out) {
  KVCAST_CHECK(n <= pages());
  if (block_steps_ == 0 || t < block_ || t >= block_ + block_steps_) make_block(t);
  work_.resize(rows());
  for (std::size_t row = 0; row < rows(); ++row) {
    work_[row].resize(n);
    fill_row(t, row, n, work_[row]);
  }
  reduce_rows(n, scale, out);
}

void PageScorer::score_queries(std::span<const float* const> heads, std::size_t n, float scale,
                               std::vector<float>& out) {
  KVCAST_CHECK(n <= pages() && heads.size() == static_cast<std::size_t>(members_));
  const auto d = static_cast<std::size_t>(layer_.info().head_dim);
  std::vector<float> combined(d), split(2 * d);
  if (combines_queries(shape_.group)) combine_queries(shape_.group, heads, d, combined);
  const MatrixView before = before_->rows(), tail = tail_.rows();
  work_.resize(rows());
  for (std::size_t row = 0; row < rows(); ++row) {
    split_signs(combines_queries(shape_.group) ? combined.data() : heads[row], d, split.data());
    work_[row].resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float* const bounds = i < full_before_ ? before.row(i) : tail.row(i - full_before_);
      work_[row][i] = dot(split.data(), bounds, 2 * d);
    }
  }
  reduce_rows(n, scale, out);
}

void PageScorer::reduce_rows(std::size_t n, float scale, std::vector<float>& out) {
  out.resize(n);
  if (combines_queries(shape_.group)) {
    std::copy_n(work_[0].begin(), n, out.begin());
    return;
  }
  if (shape_.ranks_underflow) products_ = work_;
  const std::vector<std::span<float>> heads(work_.begin(), work_.end());
  reduce_group(shape_.group, heads, scale, out);
  const Group g = shape_.group;
  if (shape_.ranks_underflow && by_weights(g)) rank_underflow(products_, g == Group::kMaxWeights, scale, out);
}

void PageScorer::score_head(int t, int member, std::size_t n, std::vector<float>& out) {
  KVCAST_CHECK(n <= pages() && !combines_queries(shape_.group));
  if (block_steps_ == 0 || t < block_ || t >= block_ + block_steps_) make_block(t);
  out.resize(n);
  fill_row(t, member, n, out);
}

}  // namespace kvcast::policy
