// Selections recorded elsewhere: by `kvcast replay --selections`, or by a system that is being studied. A method can
// thus be timed without writing it in C++.
//
// Selection: the recorded lists, for the layers, heads and steps of the trace. Lines with step −1 give the tokens
//   resident after the prompt; without them the whole prompt is.
// Cost, each step: an index of `index_bytes` per cached token and KV head is read, every entry (`index_tokens` tokens)
//   scored by each query head, and the best entries are found by a top-k (index_bytes 0: choosing costs nothing); the
//   tokens in `fetched` are copied from host memory, keys and values apart and one copy a contiguous run, before
//   attention gathers the tokens in `attended`.
// Storage: all tokens where the record fetches and evicts nothing and everything is resident after the prompt; else the
//   tokens attended to, and the whole cache in pinned host memory if the record fetches from it. The index in HBM.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "policies/all.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/host_pages.hpp"

namespace kvcast::policy {
namespace {

using nlohmann::json;

// The lists of a file: by layer, the selection after the prompt (step −1) and then one per step.
struct Record {
  std::string path;
  bool per_query_head = false;
  bool fetches = false, drops = false;  // some token comes from the host; some token leaves the GPU
  std::map<int, std::map<int, LayerSelection>> layers;
};

class RecordReader {
 public:
  explicit RecordReader(std::string path) { record_.path = std::move(path); }

  Record read() {
    const std::string text = read_whole_file(record_.path, "the recorded selections");
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find('\n', from), text.size());
      ++line_;
      if (end > from)
        add(json::parse(text.begin() + static_cast<std::ptrdiff_t>(from),
                        text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false));
      from = end + 1;
    }
    if (record_.layers.empty()) fail("the file holds no selections");
    check_complete();
    return std::move(record_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw UserError({record_.path, line_, 0}, what); }

  int whole(const json& line, const char* key, int low) const {
    const auto at = line.find(key);
    if (at == line.end() || !at->is_number_integer() || at->get<std::int64_t>() < low ||
        at->get<std::int64_t>() > 1'000'000) {
      fail(fmt::format("\"{}\" must be an integer of at least {}", key, low));
    }
    return at->get<int>();
  }

  // Ascending token positions.
  std::vector<std::int32_t> positions(const json& line, const char* key, bool needed) const {
    const auto at = line.find(key);
    if (at == line.end() && !needed) return {};
    std::vector<std::int32_t> out;
    bool good = at != line.end() && at->is_array();
    for (std::size_t i = 0; good && i < at->size(); ++i) {
      const json& x = (*at)[i];
      good = x.is_number_integer() && x.get<std::int64_t>() >= (out.empty() ? 0 : out.back() + 1) &&
             x.get<std::int64_t>() <= 100'000'000;
      if (good) out.push_back(x.get<std::int32_t>());
    }
    if (!good) fail(fmt::format("\"{}\" must be a list of ascending token positions", key));
    return out;
  }

  void add(const json& line) {
    if (!line.is_object()) fail("expected a JSON object per line");
    for (const auto& [key, value] : line.items()) {
      static const std::set<std::string> known = {"layer",    "step",    "kv_head", "q_head",
                                                  "attended", "fetched", "evicted"};
      if (!known.contains(key))
        throw UserError({record_.path, line_, 0}, fmt::format("unknown key \"{}\"", key), {known.begin(), known.end()});
    }
    const bool by_query = line.contains("q_head");
    if (by_query == line.contains("kv_head")) fail("expected either \"kv_head\" or \"q_head\"");
    if (!record_.layers.empty() && by_query != record_.per_query_head) fail("the lines before select for other heads");
    record_.per_query_head = by_query;
    LayerSelection& selection = record_.layers[whole(line, "layer", 0)][whole(line, "step", -1)];
    selection.per_query_head = by_query;
    const auto head = static_cast<std::size_t>(whole(line, by_query ? "q_head" : "kv_head", 0));
    if (head != selection.heads.size())
      fail(fmt::format("head {} follows head {}", head, static_cast<std::int64_t>(selection.heads.size()) - 1));
    HeadSelection& lists = selection.heads.emplace_back();
    lists.attended = positions(line, "attended", true);
    lists.fetched = positions(line, "fetched", false);
    lists.evicted = positions(line, "evicted", false);
    lists.counts.fetched_runs = count_runs(lists.fetched);
    record_.fetches = record_.fetches || !lists.fetched.empty();
    record_.drops = record_.drops || !lists.evicted.empty();
  }

  // Every layer has the same steps, 0 and following, and the same heads.
  void check_complete() const {
    const auto& first = record_.layers.begin()->second;
    for (const auto& [layer, steps] : record_.layers) {
      int expected = steps.begin()->first == -1 ? -1 : 0;
      for (const auto& [step, selection] : steps) {
        if (step != expected++) fail(fmt::format("layer {} has no step {}", layer, expected - 1));
        if (selection.heads.size() != first.begin()->second.heads.size()) {
          fail(fmt::format("layer {} step {} has {} heads, other lines have {}", layer, step, selection.heads.size(),
                           first.begin()->second.heads.size()));
        }
      }
      if (steps.size() != first.size())
        fail(fmt::format("layer {} has {} steps, the first layer {}", layer, steps.size(), first.size()));
    }
  }

  Record record_;
  int line_ = 0;
};

struct ReplayedSetting {
  std::string selections;
  double index_bytes = 0;
  std::int64_t index_tokens = 1;

  std::int64_t entries(std::int64_t tokens) const {
    return index_bytes > 0 ? (tokens + index_tokens - 1) / index_tokens : 0;
  }
};

class RecordedSelector final : public Selector {
 public:
  RecordedSelector(const Record& record, const ReplayedSetting& setting, const LayerInput& layer)
      : info_(layer.info()), record_(record), s_(setting) {
    const auto at = record.layers.find(layer.layer().id());
    if (at == record.layers.end()) fail(fmt::format("no selections for layer {}", layer.layer().id()));
    steps_ = &at->second;
    const auto heads = static_cast<std::size_t>(record.per_query_head ? info_.n_q_heads : info_.n_kv_heads);
    if (steps_->begin()->second.heads.size() != heads) {
      fail(fmt::format("{} heads, the trace has {}", steps_->begin()->second.heads.size(), heads));
    }
    if (steps_->rbegin()->first + 1 < info_.decode_steps) {
      fail(fmt::format("{} decode steps, the trace has {}", steps_->rbegin()->first + 1, info_.decode_steps));
    }
  }

  void prefill(LayerSelection& resident) override {
    if (steps_->begin()->first == -1) return copy(-1, resident);
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
    const std::int64_t visible = info_.prompt_tokens + step + 1;
    for (HeadSelection& head : out.heads) {
      if (!head.attended.empty() && head.attended.back() >= visible) {
        fail(fmt::format("step {} attends to position {}, {} tokens are visible", step, head.attended.back(), visible));
      }
      if (step >= 0) head.counts.scored = s_.entries(visible);
    }
  }

  const trace::TraceInfo& info_;
  const Record& record_;
  const ReplayedSetting& s_;
  const std::map<int, LayerSelection>* steps_;
};

class Replayed final : public Policy {
 public:
  Replayed(Record record, const ReplayedSetting& setting, const Lengths& lengths)
      : record_(std::move(record)), s_(setting) {
    // The record grows with the context as far as its last step attends to more tokens than its first.
    const auto& steps = record_.layers.begin()->second;
    const int last = steps.rbegin()->first;
    if (last > 0) growth_ = std::clamp((attended(steps.at(last)) - attended(steps.at(0))) / last, 0.0, 1.0);
    if (steps.begin()->first == -1) {
      record_.drops = record_.drops || attended(steps.at(-1)) < static_cast<double>(lengths.prompt_tokens);
    }
  }

  std::unique_ptr<Selector> selector(const LayerInput& layer) const override {
    return std::make_unique<RecordedSelector>(record_, s_, layer);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    graph::OpId op = ops.ready();
    if (s_.index_bytes > 0) {
      const double read = s_.index_bytes * static_cast<double>(shape.tokens) * shape.batch * m.kv_heads;
      const double chosen = shape.sum(&HeadCounts::attended) / static_cast<double>(shape.heads.size());
      op = score_and_rank(shape, read, 2 * m.group * read / m.element,
                          std::ceil(chosen / static_cast<double>(s_.index_tokens)), ops, op);
    }
    const double fetched = shape.sum(&HeadCounts::fetched);
    if (fetched > 0) {
      graph::Copy copy;
      copy.kind = graph::CopyKind::kMemcpyAsync;
      copy.runs = 2 * shape.sum(&HeadCounts::fetched_runs);
      copy.run_bytes = 2 * fetched * m.row() / copy.runs;
      op = ops.copy(graph::Lane::kCopyA, "fetch tokens", copy, {fetch_ids(fetched, {}, ops, op)});
    }
    ops.done(ops.attention(attention_over(shape, gathered_unit(shape)), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const bool partial = record_.fetches || record_.drops;
    const double held = partial ? shape.attended : static_cast<double>(shape.tokens);
    std::vector<MemoryItem> items = {
        {graph::Pool::kHbm, "KV cache", kv_bytes(shape, held, partial && record_.per_query_head)}};
    if (record_.fetches) items.push_back(host_copy(shape));
    if (s_.index_bytes > 0) {
      items.push_back({graph::Pool::kHbm, "index",
                       s_.index_bytes * static_cast<double>(shape.tokens) * shape.batch * shape.model->n_kv_heads *
                           shape.model->layers});
    }
    return items;
  }

  Growth growth() const override {
    return {.attended = growth_, .scored = s_.index_bytes > 0 ? 1.0 / static_cast<double>(s_.index_tokens) : 0};
  }

 private:
  static double attended(const LayerSelection& selection) {
    double total = 0;
    for (const HeadSelection& head : selection.heads) total += static_cast<double>(head.attended.size());
    return total / static_cast<double>(selection.heads.size());
  }

  Record record_;
  ReplayedSetting s_;
  double growth_ = 0;
};

const Fields<ReplayedSetting>& replayed_fields() {
  static const Fields<ReplayedSetting> all =
      Fields<ReplayedSetting>()
          .add({.key = "selections",
                .fallback = std::string("none"),
                .unit = "",
                .meaning = "file of selections, one JSON object per line as `kvcast replay --selections` writes them",
                .names = {"none", "<path>"}},
               &ReplayedSetting::selections)
          .add(real("index_bytes", 0, "bytes of an index per cached token and KV head that each step reads to choose",
                    0, 1e6),
               &ReplayedSetting::index_bytes)
          .add(whole("index_tokens", 1, "tokens", "tokens per entry of the index: the page size of page summaries", 1,
                     1e6),
               &ReplayedSetting::index_tokens);
  return all;
}

}  // namespace

Descriptor describe_replayed() {
  Descriptor d;
  d.name = "replayed";
  d.sentence = "Replays the selections of a file, so that a method can be timed without being written in C++.";
  d.category = "recorded";
  d.paper = "none: the record's own";
  d.parameters = replayed_fields().parameters();
  d.formulas = {"traffic: index_bytes·n_kv·L + 2·attended·d·b a step; host to device 2·fetched·d·b",
                "storage: 2·n_kv·L·d·b, or 2·n_kv·attended·d·b where tokens are evicted or fetched"};
  d.needs = [](const ParameterValues&, const Lengths&) {
    return ReplayNeeds{.unseen = "the recorded selections belong to one trace, which is no sample of a benchmark"};
  };
  d.make = [](const ParameterValues& values, const Lengths& lengths) -> std::unique_ptr<Policy> {
    const ReplayedSetting s = replayed_fields().read(values);
    if (s.selections == "none") {
      throw UserError(values.where("selections"), "replayed needs the file of selections: `selections: FILE.jsonl`");
    }
    return std::make_unique<Replayed>(RecordReader(s.selections).read(), s, lengths);
  };
  return d;
}

}  // namespace kvcast::policy
