// Selections recorded elsewhere: by `kvcast replay --selections`, or by a system that is being studied. A method can
// thus be timed without writing it in C++.
//
// Selection: the recorded lists, for the layers, heads and steps of the trace. Lines with step −1 give the tokens
//   resident after the prompt; without them the whole prompt is.
// Cost, each step: an index of `index_bytes` per cached token and KV head is read, every entry (`index_tokens` tokens)
//   scored by each query head, and the best entries are found by a top-k (index_bytes 0: nothing is scored); then
//   `kernels` further kernels read `kernel_bytes` per cached token and KV head, all together; the
//   tokens in `fetched`, resident ones too, are copied from host memory, keys and values apart and one copy a
//   contiguous run, before attention gathers the tokens in `attended`. If the record fetches, the new token is copied
//   to host memory.
// Storage: all tokens where the record fetches and evicts nothing and everything is resident after the prompt. Else the
//   largest of the tokens resident after the prompt, those attended to, and those resident after the last step with
//   the tokens generated later, which only heads that neither fetch nor evict keep; records by query head hold copies
//   for each of them unless all heads hold the same tokens. The whole cache in pinned host memory if the record fetches
//   from it. The index in HBM.
// Growth: the share of heads that only append: each step attends to the tokens of the step before and one more, and the
//   head neither fetches nor leaves out resident tokens. A head that selects pages while the last one fills does not.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policies/all.hpp"
#include "policies/recorded_selections.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/pass_parts.hpp"

namespace kvcast::policy::replayed {
namespace {

struct ReplayedSetting {
  std::string selections;
  double index_bytes = 0;
  std::int64_t index_tokens = 1;
  std::int64_t kernels = 0;
  double kernel_bytes = 0;
  std::optional<double> growth;

  std::int64_t entries(std::int64_t tokens) const {
    return index_bytes > 0 ? (tokens + index_tokens - 1) / index_tokens : 0;
  }
};

class RecordedSelector final : public Selector {
 public:
  RecordedSelector(const RecordedSelections& record, const ReplayedSetting& setting, const LayerInput& layer)
      : info_(layer.info()), record_(record), s_(setting) {
    if (!record.trace.empty() && info_.identity && info_.identity() != record.trace) {
      fail(fmt::format("they were recorded on {}, {} is {}", record.trace,
                       info_.file.empty() ? "the trace" : info_.file, info_.identity()));
    }
    if (record.prompt_tokens != info_.prompt_tokens) {
      fail(fmt::format("a prompt of {} tokens, the trace has {}", record.prompt_tokens, info_.prompt_tokens));
    }
    const auto at = record.layers.find(layer.layer().id());
    if (at == record.layers.end()) fail(fmt::format("no selections for layer {}", layer.layer().id()));
    steps_ = &at->second;
    const auto heads = index(record.per_query_head ? info_.n_q_heads : info_.n_kv_heads);
    if (steps_->begin()->second.heads.size() != heads) {
      fail(fmt::format("{} heads, the trace has {}", steps_->begin()->second.heads.size(), heads));
    }
    if (record.steps() < info_.decode_steps) {
      fail(fmt::format("{} decode steps, the trace has {}", record.steps(), info_.decode_steps));
    }
  }

  void prefill(LayerSelection& resident) override {
    if (record_.has_prompt_lists()) return copy(-1, resident);
    const LayerSelection& any = steps_->begin()->second;
    resident.reset(any.heads.size(), any.per_query_head);
    for (HeadSelection& head : resident.heads) {
      for (std::int32_t i = 0; i < info_.prompt_tokens; ++i) head.attended.push_back(i);
    }
  }

  void step(int t, LayerSelection& out) override { copy(t, out); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError({record_.path, 0, 0}, "the recorded selections do not fit the trace: " + what);
  }

  void copy(int step, LayerSelection& out) const {
    out = steps_->at(step);
    if (step < 0) return;
    for (HeadSelection& head : out.heads) head.counts.scored = s_.entries(info_.prompt_tokens + step + 1);
  }

  const trace::TraceInfo& info_;
  const RecordedSelections& record_;
  const ReplayedSetting& s_;
  const std::map<int, LayerSelection>* steps_;
};

class Replayed final : public Policy {
 public:
  Replayed(RecordedSelections record, const ReplayedSetting& setting) : record_(std::move(record)), s_(setting) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return std::make_unique<RecordedSelector>(record_, s_, layer);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    // Later steps may fetch any token, generated ones included.
    if (record_.fetches) back_up_token(shape, 1, HostLayout::kNhd, ops);
    OpId op = ops.ready();
    if (s_.index_bytes > 0) {
      const double read = s_.index_bytes * shape.mean_tokens() * shape.batch * m.kv_heads;
      const double chosen = shape.sum(&HeadCounts::attended) / shape.heads.size();
      op = score_and_rank(shape, read, 2 * m.group * read / m.element, std::ceil(chosen / s_.index_tokens), ops, op);
    }
    const double further = s_.kernel_bytes * shape.mean_tokens() * shape.batch * m.kv_heads;
    for (std::int64_t i = 0; i < s_.kernels; ++i) {
      const Kernel work{KernelClass::kElementwise, further / s_.kernels};
      op = ops.compute(Kind::kIndex, "declared kernel", work, {op});
    }
    const double fetched = shape.sum(&HeadCounts::fetched);
    if (fetched > 0) {
      Copy copy{.kind = CopyKind::kMemcpyAsync, .runs = 2 * shape.sum(&HeadCounts::fetched_runs)};
      copy.run_bytes = 2 * fetched * m.row() / copy.runs;
      op = ops.copy(Lane::kCopyA, "fetch tokens", copy, {fetch_ids(fetched, {}, ops, op)});
    }
    ops.done(ops.attention(attention_over(shape, gathered_unit(shape)), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    std::vector<MemoryItem> items = {
        in_hbm(Owner::kKvCache,
               kv_bytes(shape, held(shape), record_.partial && record_.per_query_head && !record_.same_tokens))};
    if (record_.fetches) items.push_back(host_copy(shape));
    if (s_.index_bytes > 0) {
      items.push_back(in_hbm(
          Owner::kIndex, s_.index_bytes * shape.tokens * shape.batch * shape.model->n_kv_heads * shape.model->layers));
    }
    return items;
  }

  Growth growth(const Lengths&) const override {
    return {.attended = attended_growth(), .scored = s_.index_bytes > 0 ? 1.0 / s_.index_tokens : 0};
  }

 private:
  double attended_growth() const { return s_.growth.value_or(record_.growing); }

  // Returns the tokens that a head holds, mean over layers and heads.
  double held(const MemoryShape& shape) const {
    const auto tokens = static_cast<double>(shape.tokens), steps = static_cast<double>(record_.steps());
    if (!record_.partial) return tokens;
    const double generated = tokens - record_.prompt_tokens;
    // The recorded steps see 1 to `steps` generated tokens; shape.attended is their mean.
    const double attended = shape.attended + attended_growth() * (generated - (steps + 1) / 2);
    const double kept = record_.after_last + record_.keeping * (generated - steps);
    return std::min(tokens, std::max({attended, kept, record_.after_prompt}));
  }

  RecordedSelections record_;
  ReplayedSetting s_;
};

Fields<ReplayedSetting> replayed_fields() {
  return Fields<ReplayedSetting>()
      .add({.key = "selections",
            .fallback = std::string("none"),
            .unit = "",
            .meaning = "file of selections, one JSON object per line as `kvcast replay --selections` writes them",
            .names = {"none", "<path>"}},
           &ReplayedSetting::selections)
      .add(real("index_bytes", 0, "bytes of an index per cached token and KV head that each step reads to choose", 0,
                1e6),
           &ReplayedSetting::index_bytes)
      .add(whole("index_tokens", 1, "tokens", "tokens per entry of the index: the page size of page summaries", 1, 1e6),
           &ReplayedSetting::index_tokens)
      .add(whole("kernels", 0, "", "further kernels per layer and step, one after the other", 0, 1000),
           &ReplayedSetting::kernels)
      .add(real("kernel_bytes", 0, "bytes per cached token and KV head that these read, all together", 0, 1e6),
           &ReplayedSetting::kernel_bytes)
      .add(real_or("growth", "recorded",
                   "tokens that each generated token adds to what a later step attends to; recorded: the share of "
                   "heads that only append",
                   0, 1),
           &ReplayedSetting::growth);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "replayed";
  d.sentence = "Replays the selections of a file, so that a method can be timed without being written in C++.";
  d.category = Category::kRecorded;
  d.paper = "none: the record's own";
  d.parameters = replayed_fields().parameters();
  d.formulas = {
      "traffic: n_kv·(index_bytes + kernel_bytes)·L + 2·n_kv·attended·d·b per step; host to device 2·n_kv·fetched·d·b; "
      "device to "
      "host 2·n_kv·d·b and the numbers of the fetched tokens if the record fetches",
      "storage: HBM 2·n_kv·held·d·b + n_kv·index_bytes·L; pinned DRAM 2·n_kv·L·d·b if the record fetches",
      "held: L if nothing is fetched, evicted or missing after the prompt; else the largest of the tokens resident "
      "after the prompt, those attended to, and those resident after the last step plus the tokens generated later, "
      "which only heads that neither fetch nor evict keep",
      "growth: a head only appends if each step attends to the tokens of the step before and one more, and it neither "
      "fetches tokens nor leaves out resident ones (known only from lines with step −1)",
      "records by query head: n_q instead of n_kv for attended and fetched tokens, and for held ones unless all heads "
      "of a layer hold the same"};
  d.needs = [](const ParameterValues&, const Lengths&) {
    return ReplayNeeds{.unseen = "the recorded selections belong to one trace, which is no sample of a benchmark"};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    const ReplayedSetting s = replayed_fields().read(values);
    if (s.selections == "none") {
      throw UserError(values.where("selections"), "replayed needs the file of selections: `selections: FILE.jsonl`");
    }
    if (s.kernel_bytes > 0 && s.kernels == 0) {
      throw UserError(values.where("kernel_bytes"),
                      "kernel_bytes needs `kernels:`, the number of kernels that read them");
    }
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(s.selections, unknown) || !std::ifstream(s.selections)) {
      throw UserError(values.where("selections"),
                      fmt::format("selections: cannot read the recorded selections {}; a relative path starts from the "
                                  "working directory",
                                  s.selections));
    }
    // A record belongs to one prompt.
    return made_by_request([s](const Lengths& request) -> std::unique_ptr<Policy> {
      return std::make_unique<Replayed>(read_selections(s.selections, request.prompt_tokens), s);
    });
  };
  return d;
}

}  // namespace kvcast::policy::replayed
