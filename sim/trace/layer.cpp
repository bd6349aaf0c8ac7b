// Storage of one layer, and the scores of all decode steps as one matrix product per KV head.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/index.hpp"
#include "base/parallel.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {
std::int64_t TraceInfo::longest_window() const {
  std::int64_t n = 0;
  while (n < prompt_queries() && query_positions[index(prompt_queries() - 1 - n)] == prompt_tokens - 1 - n) ++n;
  return n;
}

Layer::Layer(const TraceInfo& info, int layer_id, Cancel cancel)
    : info_(std::make_shared<const TraceInfo>(info)),
      id_(layer_id),
      cancel_(std::move(cancel)),
      keys_(uninitialised_floats(index(info.n_kv_heads * info.positions() * info.head_dim))),
      values_(uninitialised_floats(index(info.n_kv_heads * info.positions() * info.head_dim))),
      queries_(uninitialised_floats(index(info.n_q_heads * info.n_queries() * info.head_dim))),
      hidden_(uninitialised_floats(index(info.n_queries() * info.hidden))),
      scores_(index(info.n_kv_heads)) {}

float* Layer::mutable_keys(int kv_head) {
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  return keys_.get() + index(kv_head * info_->positions() * info_->head_dim);
}

float* Layer::mutable_values(int kv_head) {
  values(kv_head);  // the maker must not overwrite later what is written here
  return values_.get() + index(kv_head * info_->positions() * info_->head_dim);
}

float* Layer::mutable_queries(int q_head) {
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  return queries_.get() + index(q_head * info_->n_queries() * info_->head_dim);
}

float* Layer::mutable_hidden() { return hidden_.get(); }

void Layer::make_values_by(ValueMaker make) {
  value_maker_ = std::move(make);
  values_made_ = std::make_unique<std::once_flag[]>(index(info_->n_kv_heads));
}

void Layer::make_values(int threads) const {
  parallel_for(index(info_->n_kv_heads), threads, [&](std::size_t head) { values(static_cast<int>(head)); });
}

MatrixView Layer::keys(int kv_head) const {
  cancel_.check();
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  const std::size_t d = index(info_->head_dim);
  return {keys_.get() + index(kv_head * info_->positions()) * d, index(info_->positions()), d, d};
}

MatrixView Layer::values(int kv_head) const {
  cancel_.check();
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  if (value_maker_) {
    std::call_once(values_made_[index(kv_head)], [&] {
      value_maker_(kv_head, values_.get() + index(kv_head * info_->positions() * info_->head_dim));
    });
  }
  const std::size_t d = index(info_->head_dim);
  return {values_.get() + index(kv_head * info_->positions()) * d, index(info_->positions()), d, d};
}

MatrixView Layer::queries(int q_head) const {
  cancel_.check();
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  const std::size_t d = index(info_->head_dim);
  return {queries_.get() + index(q_head * info_->n_queries()) * d, index(info_->n_queries()), d, d};
}

const float* Layer::decode_query(int q_head, int step) const {
  KVCAST_CHECK(step >= 0 && step < info_->decode_steps);
  return queries(q_head).row(index(info_->prompt_queries() + step));
}

MatrixView Layer::window_queries(int q_head, int window) const {
  if (window < 1 || window > info_->longest_window()) {
    throw UserError(fmt::format(
        "the last {} needed, but the trace captured only the last {} of {} without a gap. {} a capture with more "
        "queries",
        window == 1 ? "prompt query is" : fmt::format("{} prompt queries are", window), info_->longest_window(),
        info_->prompt_tokens, info_->file.empty() ? fmt::format("Set trace.window: {} or use", window) : "Use"));
  }
  MatrixView view = queries(q_head);
  view.data = view.row(index(info_->prompt_queries() - window));
  view.rows = index(window);
  return view;
}

MatrixView Layer::hidden() const {
  if (info_->hidden == 0) return {};
  const std::size_t width = index(info_->hidden);
  return {hidden_.get(), index(info_->n_queries()), width, width};
}

void Layer::compute_head_scores(int kv_head) const {
  auto& scores = scores_[index(kv_head)];
  if (scores) return;
  const std::size_t steps = index(info_->decode_steps);
  const std::size_t d = index(info_->head_dim);
  const std::size_t rows = index(info_->group()) * steps;
  // The group's decode queries are separated by the prompt queries of each head; copied next to each other they make
  // one product.
  const auto together = uninitialised_floats(rows * d);
  for (int g = 0; g < info_->group(); ++g) {
    const float* const first = decode_query(kv_head * info_->group() + g, 0);
    std::copy_n(first, steps * d, together.get() + index(g) * steps * d);
  }
  auto made = uninitialised_floats(rows * index(info_->positions()));
  multiply_transposed({together.get(), rows, d, d}, keys(kv_head), made.get(), index(info_->positions()), cancel_);
  scores = std::move(made);
}

MatrixView Layer::decode_scores(int q_head) const {
  cancel_.check();
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  const int kv_head = q_head / info_->group();
  compute_head_scores(kv_head);
  const std::size_t steps = index(info_->decode_steps);
  const std::size_t columns = index(info_->positions());
  const float* const first = scores_[index(kv_head)].get() + index(q_head % info_->group()) * steps * columns;
  return {first, steps, columns, columns};
}

void Layer::compute_scores(int threads) const {
  parallel_for(scores_.size(), threads, [&](std::size_t head) { compute_head_scores(static_cast<int>(head)); });
}

void Layer::drop_scores() const {
  for (auto& scores : scores_) scores.reset();
}

}  // namespace kvcast::trace
