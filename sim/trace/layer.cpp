// Storage of one layer, and the scores of all decode steps as one matrix product per KV head.
#include <algorithm>

#include "base/error.hpp"
#include "base/floats.hpp"
#include "base/index.hpp"
#include "base/parallel.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {
namespace {

// Floats of a layer's values, 384 MB: up to 96 K tokens of eight heads all values are made once and kept.
constexpr std::size_t kKeptValues = std::size_t{3} << 25;
// Rows that one thread makes at a time for a visit.
constexpr std::size_t kPassingRows = 16 * Layer::kValueBlock;

}  // namespace

std::int64_t TraceInfo::longest_window() const {
  std::int64_t n = 0;
  while (n < prompt_queries() && query_positions[index(prompt_queries() - 1 - n)] == prompt_tokens - 1 - n) ++n;
  return n;
}

Layer::Layer(const TraceInfo& info, int layer_id, Cancel cancel, LayerStorage storage)
    : info_(std::make_shared<const TraceInfo>(info)),
      id_(layer_id),
      cancel_(std::move(cancel)),
      storage_(std::move(storage)),
      scores_made_(index(info.n_kv_heads)) {
  const std::size_t cached = index(info.n_kv_heads * info.positions() * info.head_dim);
  storage_.keys.reserve(cached), storage_.values.reserve(cached);
  storage_.queries.reserve(index(info.n_q_heads * info.n_queries() * info.head_dim));
  storage_.hidden.reserve(index(info.n_queries() * info.hidden));
}

float* Layer::mutable_keys(int kv_head) {
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  return storage_.keys.get() + index(kv_head * info_->positions() * info_->head_dim);
}

float* Layer::mutable_values(int kv_head) {
  values(kv_head);  // the maker must not overwrite later what is written here
  return head_values(kv_head);
}

float* Layer::mutable_queries(int q_head) {
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  return storage_.queries.get() + index(q_head * info_->n_queries() * info_->head_dim);
}

float* Layer::mutable_hidden() { return storage_.hidden.get(); }

void Layer::make_values_by(ValueMaker make) {
  const std::size_t cached = index(info_->n_kv_heads * info_->positions() * info_->head_dim);
  value_maker_ = std::move(make);
  values_made_ = std::make_unique<std::once_flag[]>(index(info_->n_kv_heads));
  values_whole_ = std::make_unique<std::atomic<bool>[]>(index(info_->n_kv_heads));
  if (cached <= kKeptValues) return;
  const std::size_t n = index(info_->n_kv_heads * value_blocks());
  blocks_ = std::make_unique<Blocks>();
  blocks_->made = std::make_unique<std::once_flag[]>(n);
  blocks_->at.resize(n);
  storage_.blocks.reserve(n * index(kValueBlock * info_->head_dim));
}

void Layer::make_values(int threads) const {
  parallel_for(index(info_->n_kv_heads), threads, [&](std::size_t head) { values(static_cast<int>(head)); });
}

float* Layer::head_values(int kv_head) const {
  return storage_.values.get() + index(kv_head * info_->positions() * info_->head_dim);
}

const float* Layer::value_block(int kv_head, std::int64_t block) const {
  const std::size_t i = index(kv_head * value_blocks() + block);
  std::call_once(blocks_->made[i], [&] {
    const std::int64_t first = block * kValueBlock, n = std::min(kValueBlock, info_->positions() - first);
    blocks_->at[i] = storage_.blocks.get() + blocks_->used++ * index(kValueBlock * info_->head_dim);
    value_maker_(kv_head, first, n, blocks_->at[i]);
  });
  return blocks_->at[i];
}

void Layer::visit_values(int threads, const std::function<void(int q_head, MatrixView values)>& visit) {
  const int group = info_->group();
  if (blocks_ == nullptr) {
    make_values(threads);
    return parallel_for(index(info_->n_q_heads), threads, [&](std::size_t head) {
      visit(static_cast<int>(head), values(static_cast<int>(head) / group));
    });
  }
  const int at_once = std::min(info_->n_kv_heads, (threads + group - 1) / group);
  const std::size_t d = index(info_->head_dim), rows = index(info_->positions()), chunks = rows / kPassingRows + 1;
  float* const passing = storage_.passing.reserve(index(at_once) * rows * d);
  for (int first = 0; first < info_->n_kv_heads; first += at_once) {
    const std::size_t heads = index(std::min(at_once, info_->n_kv_heads - first));
    parallel_for(heads * chunks, threads, [&](std::size_t i) {
      const std::size_t row = i % chunks * kPassingRows, n = std::min(kPassingRows, rows - row);
      value_maker_(first + static_cast<int>(i / chunks), static_cast<std::int64_t>(row), static_cast<std::int64_t>(n),
                   passing + (i / chunks * rows + row) * d);
    });
    parallel_for(heads * index(group), threads, [&](std::size_t i) {
      const float* const of_head = passing + i / index(group) * rows * d;
      visit(first * group + static_cast<int>(i), {of_head, rows, d, d});
    });
  }
}

MatrixView Layer::keys(int kv_head) const {
  cancel_.check();
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  const std::size_t d = index(info_->head_dim);
  return {storage_.keys.get() + index(kv_head * info_->positions()) * d, index(info_->positions()), d, d};
}

MatrixView Layer::values(int kv_head) const {
  cancel_.check();
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  if (value_maker_) {
    std::call_once(values_made_[index(kv_head)], [&] {
      constexpr std::int64_t kRows = kPassingRows;  // between two looks at a request to stop
      for (std::int64_t at = 0; at < info_->positions(); at += kRows) {
        value_maker_(kv_head, at, std::min(kRows, info_->positions() - at),
                     head_values(kv_head) + index(at * info_->head_dim));
      }
      values_whole_[index(kv_head)] = true;
    });
  }
  const std::size_t d = index(info_->head_dim);
  return {head_values(kv_head), index(info_->positions()), d, d};
}

void Layer::value_rows(int kv_head, std::span<const std::int32_t> positions, std::vector<const float*>& rows) const {
  cancel_.check();
  KVCAST_CHECK(kv_head >= 0 && kv_head < info_->n_kv_heads);
  const std::size_t d = index(info_->head_dim);
  rows.resize(positions.size());
  if (blocks_ == nullptr || values_whole_[index(kv_head)]) {
    const MatrixView all = values(kv_head);
    std::ranges::transform(positions, rows.begin(), [&](std::int32_t position) { return all.row(index(position)); });
    return;
  }
  std::int64_t last = -1;
  const float* block = nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t wanted = positions[i] / kValueBlock;
    if (wanted != last) block = value_block(kv_head, wanted), last = wanted;
    rows[i] = block + index(positions[i] % kValueBlock) * d;
  }
}

MatrixView Layer::queries(int q_head) const {
  cancel_.check();
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  const std::size_t d = index(info_->head_dim);
  return {storage_.queries.get() + index(q_head * info_->n_queries()) * d, index(info_->n_queries()), d, d};
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
  return {storage_.hidden.get(), index(info_->n_queries()), width, width};
}

std::size_t Layer::head_scores() const { return index(info_->group() * info_->decode_steps * info_->positions()); }

void Layer::compute_head_scores(int kv_head) const {
  char& done = scores_made_[index(kv_head)];
  if (done != 0) return;
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
  float* const made =
      storage_.scores.reserve(index(info_->n_kv_heads) * head_scores()) + index(kv_head) * head_scores();
  multiply_transposed({together.get(), rows, d, d}, keys(kv_head), made, index(info_->positions()), cancel_);
  done = 1;
}

MatrixView Layer::decode_scores(int q_head) const {
  cancel_.check();
  KVCAST_CHECK(q_head >= 0 && q_head < info_->n_q_heads);
  const int kv_head = q_head / info_->group();
  compute_head_scores(kv_head);
  const std::size_t steps = index(info_->decode_steps);
  const std::size_t columns = index(info_->positions());
  const float* const first =
      storage_.scores.get() + index(kv_head) * head_scores() + index(q_head % info_->group()) * steps * columns;
  return {first, steps, columns, columns};
}

void Layer::compute_scores(int threads) const {
  storage_.scores.reserve(index(info_->n_kv_heads) * head_scores());
  parallel_for(scores_made_.size(), threads, [&](std::size_t head) { compute_head_scores(static_cast<int>(head)); });
}

void Layer::drop_scores() const {
  storage_.scores.reset();
  std::ranges::fill(scores_made_, 0);
}

}  // namespace kvcast::trace
