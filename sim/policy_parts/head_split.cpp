// Full heads read everything. Streaming heads read their sink and window and, with compensation, one more pair: the
// means of the keys and values that left, which enters the softmax as often as tokens left (weight D·exp(q·k̂/√d)).
#include "policy_parts/head_split.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"

namespace kvcast::policy {
namespace {

// Running means of the pairs that have left one KV head.
struct Departed {
  std::int64_t count = 0, next = 0;  // next: first position that has not left yet
  std::vector<double> keys, values;  // sums
};

class SplitSelector final : public Selector {
 public:
  SplitSelector(const LayerInput& layer, const HeadSplit& split)
      : layer_(layer.layer()), split_(split), full_(split.full[index(layer.layer().id())]), departed_(full_.size()) {
    const auto d = index(layer_.info().head_dim);
    for (Departed& head : departed_) {
      head.next = split.sink;
      head.keys.assign(d, 0.0), head.values.assign(d, 0.0);
    }
    outputs_.resize(split.compensate ? index(layer_.info().n_q_heads) * d : 0);
  }

  void prefill(LayerSelection& resident) override { fill(layer_.info().prompt_tokens, resident); }

  void step(int t, LayerSelection& out) override {
    const std::int64_t tokens = layer_.info().prompt_tokens + t + 1;
    fill(tokens, out);
    for (std::size_t h = 0; h < full_.size(); ++h) {
      if (full_[h] || tokens <= split_.sink + split_.recent) continue;
      // Evicts before attention, as StreamingLLM does; with recent = 0 the current token itself is evicted.
      out.heads[h].evicted.push_back(static_cast<std::int32_t>(tokens - 1 - split_.recent));
      if (split_.compensate) compensate(static_cast<int>(h), t, out.heads[h].attended);
    }
  }

  std::span<const float> output(int q_head) const override {
    const int kv_head = q_head / layer_.info().group();
    if (departed_[index(kv_head)].count == 0) return {};
    const auto d = index(layer_.info().head_dim);
    return std::span(outputs_).subspan(index(q_head) * d, d);
  }

 private:
  void fill(std::int64_t tokens, LayerSelection& out) const {
    out.reset(full_.size(), false);
    for (std::size_t h = 0; h < full_.size(); ++h) {
      std::vector<std::int32_t>& list = out.heads[h].attended;
      const std::int64_t sinks = full_[h] ? tokens : std::min(split_.sink, tokens);
      append_range(0, sinks, list);
      append_range(std::max(sinks, tokens - split_.recent), tokens, list);
    }
  }

  void compensate(int kv_head, int t, const std::vector<std::int32_t>& attended) {
    const trace::TraceInfo& info = layer_.info();
    const MatrixView keys = layer_.keys(kv_head), values = layer_.values(kv_head);
    Departed& gone = departed_[index(kv_head)];
    const std::int64_t end = info.prompt_tokens + t + 1 - split_.recent;
    for (; gone.next < end; ++gone.next, ++gone.count) {
      for (std::size_t j = 0; j < keys.cols; ++j) {
        gone.keys[j] += static_cast<double>(keys.row(index(gone.next))[j]);
        gone.values[j] += static_cast<double>(values.row(index(gone.next))[j]);
      }
    }
    const double scale = 1 / std::sqrt(static_cast<double>(info.head_dim)), count = static_cast<double>(gone.count);
    for (int g = 0; g < info.group(); ++g) {
      const int q_head = kv_head * info.group() + g;
      const float* const query = layer_.decode_query(q_head, t);
      const float* const scores = layer_.decode_scores(q_head).row(index(t));
      double mean_score = 0;
      for (std::size_t j = 0; j < keys.cols; ++j) mean_score += static_cast<double>(query[j]) * gone.keys[j] / count;
      mean_score *= scale;
      double most = mean_score;
      for (const std::int32_t i : attended) most = std::max(most, scale * static_cast<double>(scores[i]));
      double sum = count * std::exp(mean_score - most);
      std::vector<double> output(gone.values);
      for (double& x : output) x *= sum / count;
      for (const std::int32_t i : attended) {
        const double weight = std::exp(scale * static_cast<double>(scores[i]) - most);
        sum += weight;
        for (std::size_t j = 0; j < values.cols; ++j)
          output[j] += weight * static_cast<double>(values.row(index(i))[j]);
      }
      for (std::size_t j = 0; j < values.cols; ++j) {
        outputs_[index(q_head) * values.cols + j] = static_cast<float>(output[j] / sum);
      }
    }
  }

  const trace::Layer& layer_;
  const HeadSplit& split_;
  const std::vector<bool>& full_;
  std::vector<Departed> departed_;
  std::vector<float> outputs_;
};

class SplitPolicy final : public Policy {
 public:
  explicit SplitPolicy(std::function<HeadSplit(const Lengths&)> of_request) : of_request_(std::move(of_request)) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    const HeadSplit& split = at(request);
    split.profile->check_shape(layer.info());
    return std::make_unique<SplitSelector>(layer, split);
  }

  // Keys and values that leave are read once and summed.
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const HeadSplit& split = at(shape.request());
    const auto left = [&](std::int64_t end) { return std::max<std::int64_t>(0, end - split.sink - split.recent); };
    const auto gone = static_cast<double>(left(shape.stop()) - left(shape.start));
    if (!split.compensate || gone <= 0) return;
    const Dims m(*shape.model);
    const double lists = shape.batch * streaming_share(split) * m.kv_heads;
    sum_up(m, lists * gone, 2 * lists * gone * m.row(), 2 * lists * m.row(), ops, ops.ready());
  }

  PromptBlocks prompt_blocks(const config::Model&, int layer, const Lengths& request) const override {
    const HeadSplit& split = at(request);
    const std::vector<bool>& full = heads_of(split, layer);
    const auto whole = static_cast<double>(std::count(full.begin(), full.end(), true));
    return {split.block, split.sink + split.recent, whole / static_cast<double>(full.size())};
  }

  void decode_layer(const DecodeLayer& drawn, LayerOps& ops) const override {
    const std::vector<HeadCounts> heads = own_heads(drawn);
    DecodeLayer shape = drawn;
    shape.heads = heads;
    const double evicted = shape.sum(&HeadCounts::evicted);
    OpId ready = ops.ready();
    if (evicted > 0 && at(shape.sequences[0].request).compensate) {
      // Reads the pair that leaves and the means, and writes the means; this includes the read of the means by
      // attention.
      const Dims m(*shape.model);
      ready = sum_up(m, evicted, 4 * evicted * m.row(), 2 * evicted * m.row(), ops, ready);
    }
    ops.done(ops.attention(attention_over(shape, 0), {ready}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const HeadSplit& split = at(shape.lengths);
    const double streaming = streaming_share(split);
    const auto tokens = static_cast<double>(shape.tokens);
    const double held = std::min(tokens, static_cast<double>(split.sink + split.recent));
    std::vector<MemoryItem> items = {
        {graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, (1 - streaming) * tokens + streaming * held)}};
    if (split.compensate) items.push_back({graph::Pool::kHbm, graph::Owner::kDroppedMeans, kv_bytes(shape, streaming)});
    return items;
  }

  Growth growth(const Lengths& request) const override { return {.attended = 1 - streaming_share(at(request))}; }

 private:
  // A head's tokens follow from its kind; the layer whose replay represents this one may have other kinds of heads.
  std::vector<HeadCounts> own_heads(const DecodeLayer& drawn) const {
    const auto each = static_cast<std::size_t>(drawn.heads_per_sequence());
    std::vector<HeadCounts> heads(drawn.heads.begin(), drawn.heads.end());
    for (std::size_t i = 0; i < drawn.sequences.size(); ++i) {
      const HeadSplit& split = at(drawn.sequences[i].request);
      const std::vector<bool>& full = heads_of(split, drawn.layer);
      const std::int64_t tokens = drawn.sequences[i].tokens, held = std::min(tokens, split.sink + split.recent);
      for (std::size_t h = 0; h < each; ++h) {
        const bool whole = full[h % full.size()];
        heads[i * each + h].attended = whole ? tokens : held;
        heads[i * each + h].evicted = !whole && tokens > held ? 1 : 0;
      }
    }
    return heads;
  }

  static const std::vector<bool>& heads_of(const HeadSplit& split, int layer) {
    return split.full[std::min(index(layer), split.full.size() - 1)];
  }

  static double streaming_share(const HeadSplit& split) {
    const auto heads = static_cast<double>(split.full.size() * split.full[0].size());
    return 1 - static_cast<double>(count_full(split.full)) / heads;
  }

  const HeadSplit& at(const Lengths& request) const {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = splits_.try_emplace(request);
    if (fresh) found->second = of_request_(request);
    return found->second;
  }

  // Adds `pairs` to the means of their heads.
  static OpId sum_up(const Dims& m, double pairs, double read, double write, LayerOps& ops, OpId after) {
    Kernel work{KernelClass::kReduce, read, write};
    work.flops = 2 * pairs * m.d;
    return ops.compute(Kind::kIndex, "means of dropped pairs", work, {after});
  }

  std::function<HeadSplit(const Lengths&)> of_request_;
  mutable std::mutex mutex_;
  mutable std::map<Lengths, HeadSplit> splits_;
};

}  // namespace

std::vector<std::vector<double>> kv_head_scores(const Profile& profile, const std::string& kind, HeadReduce reduce) {
  std::vector<std::vector<double>> out;
  const int members = profile.n_q_heads / profile.n_kv_heads;
  for (int layer = 0; layer < profile.n_layers; ++layer) {
    const std::vector<double>& heads = profile.head_scores(kind, layer);
    std::vector<double>& row = out.emplace_back();
    for (auto first = heads.begin(); first != heads.end(); first += members) {
      row.push_back(reduce == HeadReduce::kMax ? *std::max_element(first, first + members)
                                               : std::accumulate(first, first + members, 0.0) / members);
    }
  }
  return out;
}

FullHeads best_heads(const std::vector<std::vector<double>>& scores, std::int64_t n) {
  std::vector<std::pair<std::size_t, std::size_t>> order;
  FullHeads full;
  for (std::size_t layer = 0; layer < scores.size(); ++layer) {
    full.emplace_back(scores[layer].size(), false);
    for (std::size_t h = 0; h < scores[layer].size(); ++h) order.emplace_back(layer, h);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return scores[a.first][a.second] > scores[b.first][b.second]; });
  order.resize(std::min(order.size(), index(std::max<std::int64_t>(0, n))));
  for (const auto& [layer, head] : order) full[layer][head] = true;
  return full;
}

std::int64_t count_full(const FullHeads& full) {
  std::int64_t n = 0;
  for (const std::vector<bool>& layer : full) n += std::count(layer.begin(), layer.end(), true);
  return n;
}

std::unique_ptr<Policy> split_heads(std::function<HeadSplit(const Lengths&)> of_request) {
  return std::make_unique<SplitPolicy>(std::move(of_request));
}

}  // namespace kvcast::policy
