// Work of a step in the order of the released systems: the inputs of the CPU are copied to the host; static attention
// runs on the GPU while the CPU searches and attends; outputs (d elements) and log-sum-exps (one float) of all query
// heads return; one kernel merges them. Static tokens are the same for all query heads, so their keys and values are
// read once per KV head even if the CPU selects by query head.
#include "policy_parts/host_attention.hpp"
#include "policy/fields.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "policy/costs.hpp"

namespace kvcast::policy {

Range StaticTokens::host(std::int64_t prompt, std::int64_t tokens) const {
  const std::int64_t begin = std::min(sink, tokens);
  return {begin, std::max(begin, (generated_stay ? prompt : tokens) - recent)};
}

namespace {

class HostSearchSelector final : public Selector {
 public:
  HostSearchSelector(const LayerInput& layer, const StaticTokens& fixed, bool per_query_head, const MakeSearch& make)
      : info_(layer.info()), fixed_(fixed), per_query_head_(per_query_head) {
    width_ = per_query_head ? info_.group() : 1;
    searches_.resize(info_.n_kv_heads);
    parallel_for(searches_.size(), hardware_threads(),
                 [&](std::size_t h) { searches_[h] = make(layer, static_cast<int>(h)); });
  }

  void prefill(LayerSelection& resident) override {
    resident.reset(searches_.size() * width_, per_query_head_);
    for (HeadSelection& head : resident.heads) add_static(info_.prompt_tokens, head);
  }

  void step(int t, LayerSelection& out) override {
    out.reset(searches_.size() * width_, per_query_head_);
    const std::int64_t tokens = info_.prompt_tokens + t + 1;
    const Range before = fixed_.host(info_.prompt_tokens, tokens - 1), host = fixed_.host(info_.prompt_tokens, tokens);
    for (std::size_t h = 0; h < searches_.size(); ++h) {
      const std::span<HeadSelection> heads = std::span(out.heads).subspan(h * width_, width_);
      searches_[h]->step(t, host, heads);
      for (HeadSelection& head : heads) {
        head.counts.cpu_attended = head.attended.size();
        if (host.size() > before.size()) head.evicted.push_back(static_cast<std::int32_t>(host.end - 1));
        add_static(tokens, head);
      }
    }
  }

  std::span<const float> output(int q_head) const override {
    return searches_[q_head / info_.group()]->output(q_head % info_.group());
  }

  std::span<const float> log_weights(int q_head) const override {
    return searches_[q_head / info_.group()]->log_weights(q_head % info_.group());
  }

 private:
  // Adds the sink before and the window after the tokens found.
  void add_static(std::int64_t tokens, HeadSelection& head) const {
    const Range host = fixed_.host(info_.prompt_tokens, tokens);
    std::vector<std::int32_t> list;
    append_range(0, host.begin, list);
    list.insert(list.end(), head.attended.begin(), head.attended.end());
    append_range(host.end, tokens, list);
    head.attended = std::move(list);
  }

  const trace::TraceInfo& info_;
  StaticTokens fixed_;
  bool per_query_head_;
  std::size_t width_;
  std::vector<std::unique_ptr<HostSearch>> searches_;
};

Copy copy_of(Direction direction, double runs, double bytes, Lane issuer) {
  return {.direction = direction, .runs = runs, .run_bytes = bytes / runs, .issuer = issuer};
}

// Keys and values are two arrays: two pieces per sequence.
void offload(const config::Model& model, int batch, double tokens, LayerOps& ops) {
  const Dims m(model);
  if (tokens <= 0) return;
  const double bytes = batch * 2 * m.kv_heads * tokens * m.row();
  ops.copy(Lane::kBackup, "offload to host", copy_of(Direction::kDeviceToHost, 2.0 * batch, bytes, Lane::kBackupThread),
           {ops.ready()});
}

}  // namespace

std::unique_ptr<Selector> search_host(const LayerInput& layer, const StaticTokens& fixed, bool per_query_head,
                                      const MakeSearch& make) {
  return std::make_unique<HostSearchSelector>(layer, fixed, per_query_head, make);
}

void offload_prompt(const PrefillLayer& shape, const StaticTokens& fixed, LayerOps& ops) {
  const std::int64_t prompt = shape.prompt_tokens;
  offload(*shape.model, shape.batch, static_cast<double>(fixed.host(prompt, prompt).size()), ops);
}

void offload_token(const DecodeLayer& shape, LayerOps& ops) {
  if (shape.largest(&HeadCounts::evicted) > 0) offload(*shape.model, shape.batch, 1, ops);
}

OpId send_to_host(const char* label, double bytes, LayerOps& ops, OpId after) {
  const OpId copied = ops.copy(Lane::kCopyA, label, copy_of(Direction::kDeviceToHost, 1, bytes, Lane::kHost), {after});
  return ops.host(Lane::kHost, Kind::kSync, "wait for the copy", HostCall::kStreamSync, 1, {copied});
}

CpuWork cpu_attention(const DecodeLayer& shape) {
  const Dims m(*shape.model);
  const auto rows = static_cast<double>(shape.heads.size());
  const double found = shape.sum(&HeadCounts::cpu_attended) / rows;
  return {.items = rows,
          .bytes_per_item = found * 2 * m.row(),
          .flops_per_item = 4 * (shape.per_query_head ? 1 : m.group) * found * m.d,
          .unit_bytes = m.row(),
          .places_per_item = 2 * found,
          .region_bytes = 2 * shape.mean_tokens() * m.row()};
}

void attend_and_merge(const DecodeLayer& shape, LayerOps& ops, OpId queries_left, OpId cpu_done) {
  const Dims m(*shape.model);
  DecodeAttention work;
  work.rows = shape.batch * m.kv_heads;
  work.group = m.group;
  work.head_dim = m.d;
  work.tokens = shape.sum(&HeadCounts::attended) / (shape.per_query_head ? m.group : 1);
  work.longest = shape.largest(&HeadCounts::attended);
  work.element_bytes = m.element;
  const OpId on_gpu = ops.attention(work, {queries_left});
  const double outputs = shape.batch * m.q_heads * (m.row() + kScoreBytes);
  const OpId back = ops.copy(Lane::kCopyB, "outputs of the CPU",
                             copy_of(Direction::kHostToDevice, 1, outputs, Lane::kHost), {cpu_done});
  Kernel merge{KernelClass::kElementwise, 2 * outputs, shape.batch * m.q_heads * m.row()};
  merge.flops = 4 * shape.batch * m.q_heads * m.d;
  // A block for each query head, a thread for each dimension; registers allow an SM twelve of these.
  merge.blocks = shape.batch * m.q_heads, merge.threads = m.d, merge.per_sm = 12;
  ops.done(ops.compute(Kind::kAttention, "merge", merge, {on_gpu, back}));
}

std::vector<MemoryItem> split_cache(const MemoryShape& shape, std::int64_t on_gpu) {
  const std::int64_t held = std::min(on_gpu, shape.tokens);
  return {{graph::Pool::kHbm, graph::Owner::kKvCache, kv_bytes(shape, static_cast<double>(held))},
          {graph::Pool::kDram, graph::Owner::kHostCache, kv_bytes(shape, static_cast<double>(shape.tokens - held))}};
}

Fields<StaticTokens> static_fields(std::int64_t sink, std::int64_t recent) {
  return Fields<StaticTokens>()
      .add(whole("sink", sink, "tokens", "first tokens, which stay on the GPU; not counted as selected"),
           &StaticTokens::sink)
      .add(whole("recent", recent, "tokens", "last tokens, which stay on the GPU; not counted as selected"),
           &StaticTokens::recent);
}

}  // namespace kvcast::policy
