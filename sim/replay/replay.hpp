// Runs a policy over the captured layers of a trace: its selections, the traffic that they cause, and how much of full
// attention they keep.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policy/policy.hpp"
#include "policy/recorder.hpp"
#include "replay/oracle.hpp"
#include "replay/target_recall.hpp"

namespace kvcast::replay {

// Similarity of a policy's attention to full attention; means over layer, decode step and query head.
struct Proxies {
  double recall_mass_mean = 0;   // share of the full softmax mass on the tokens attended to
  double recall_mass_p10 = 0;    // its 10th percentile
  double output_error_mean = 0;  // ‖o − o_full‖ / ‖o_full‖, o from a softmax over the attended tokens alone
  double topk_overlap_mean = 0;  // |attended ∩ the |attended| tokens of largest score| / |attended|
  double attended_mean = 0;      // tokens; a list shared by several query heads counts for each of them
  double distinct_mean = 0;      // different tokens that a head attends to in any of the steps, likewise
  double corrected_mean = 0;     // share of heads and steps that waited for pages of their own selection, likewise
};

// One captured layer: the counts of every head at every step.
struct LayerCounts {
  int layer = 0;
  bool per_query_head = false;
  int heads = 0;
  std::vector<policy::HeadCounts> counts;  // [decode steps × heads]
  std::vector<std::int64_t> resident;      // tokens per head on the GPU after prefill
  std::vector<std::int64_t> distinct;      // different tokens attended to in any step, per head
  std::vector<double> recall_mass;         // share of the softmax mass kept, per query head, mean over the steps
  // [decode steps × heads], with the step before, mean over the query heads of a list; not stored with replays.
  std::vector<double> query_cosine;
  // replay/steps.hpp: of the keys that each head attends to in the last step; only if asked for, not stored.
  std::vector<double> log_volume;
  policy::PromptAttention prompt;

  std::span<const policy::HeadCounts> at(int step) const {
    return std::span(counts).subspan(static_cast<std::size_t>(step) * static_cast<std::size_t>(heads),
                                     static_cast<std::size_t>(heads));
  }
};

// Sparse attention over the prompt: means over the captured layers from `first` of the model on, of which dense ones
// compute everything; none if no layer is sparse.
std::optional<policy::PromptAttention> prompt_attention(std::span<const LayerCounts> layers, int first = 0);

// One step's selection; step −1 contains what is resident after prefill.
struct StepSelection {
  int layer = 0;
  int step = 0;
  policy::LayerSelection selection;
};

struct ReplayOptions {
  int threads = 1;               // layers run in parallel
  bool keep_selections = false;  // costs memory: all positions of all steps
  bool log_volume = false;       // costs time: head_dim² for each key
  // Query heads (layer, head) whose attention gives nothing, whatever the policy selects: what heads contribute
  // (CompressKV, Fig. 6). Proxies and target recall miss them; selections and costs stay.
  std::vector<std::pair<int, int>> excluded = {};
  // Lengths of the request that the trace is a sample of; none: as long as the trace.
  std::optional<policy::Lengths> request = {};
};

struct ReplayResult {
  std::string trace_source;  // captured | synthetic
  std::int64_t prompt_tokens = 0;
  int decode_steps = 0;
  bool per_query_head = false;  // of the compressed layers
  int dense_layers = 0;         // first layers that the policy leaves uncompressed
  policy::Growth growth;
  Proxies proxies;
  std::string task;           // as the trace names it; empty if it names none
  TargetRecall targets;       // of the compressed layers; no steps if the trace has no targets
  graph::ByteCounts traffic;  // one sequence, mean per decode step, all captured layers together
  std::vector<LayerCounts> layers;
  std::vector<StepSelection> selections;  // by layer, then step; empty unless kept
};

// The captured layers of a trace, ready to be replayed with a cache of this precision; the trace must outlive them.
// Throws Cancelled, as do all replays over these layers once `cancel` is requested.
std::vector<std::unique_ptr<Oracle>> prepare(const trace::Trace& trace, int threads,
                                             config::CacheFormat cache = config::Precision::kBf16,
                                             const Cancel& cancel = {});

// The same layers part by part, each freed before the next: one at a time, or all `together`.
class LayerParts {
 public:
  // Freed layers leave their memory to `spare`, from which the next ones take theirs. The trace and `spare` must
  // outlive it.
  LayerParts(const trace::Trace& trace, bool together, config::CacheFormat cache, Cancel cancel,
             trace::LayerStorage& spare)
      : trace_(trace), together_(together), cache_(cache), cancel_(std::move(cancel)), spare_(spare) {}
  ~LayerParts() { free_layers(); }
  LayerParts(const LayerParts&) = delete;
  LayerParts& operator=(const LayerParts&) = delete;

  // Makes the next part; false if there is none.
  bool next(int threads);
  bool is_last() const { return next_ == trace_.info().layers.size(); }
  std::span<const std::unique_ptr<Oracle>> layers() const { return layers_; }

 private:
  void free_layers();
  const trace::Trace& trace_;
  bool together_;
  config::CacheFormat cache_;
  Cancel cancel_;
  trace::LayerStorage& spare_;
  std::size_t next_ = 0;
  std::vector<std::unique_ptr<Oracle>> layers_;
};

// A replay that is given the layers of a trace in their order, in parts: all together if the policy surveys them.
class Replay {
 public:
  // The policy must outlive it. Throws UserError if it does not suit the request.
  Replay(const trace::TraceInfo& info, policy::Policy& policy, ReplayOptions options = {});
  Replay(Replay&&) noexcept;
  ~Replay();
  // Throws as replay().
  void add(std::span<const std::unique_ptr<Oracle>> layers, int threads);
  ReplayResult result();  // once, of all layers

 private:
  struct Layer;
  trace::TraceInfo info_;
  policy::Policy& policy_;
  ReplayOptions options_;
  policy::Lengths request_;
  std::vector<Layer> done_;
};

// Gives equal results for any number of threads. May run on the same layers concurrently with other policies. Throws
// UserError if the trace lacks what the policy needs, and Cancelled if that is requested of the layers.
ReplayResult replay(std::span<const std::unique_ptr<Oracle>> layers, policy::Policy& policy,
                    const ReplayOptions& options = {});
// The same with as few layers at once as the policy allows.
ReplayResult replay(const trace::Trace& trace, policy::Policy& policy, const ReplayOptions& options = {},
                    config::CacheFormat cache = config::Precision::kBf16, const Cancel& cancel = {});

// Writes one JSON object per line, in order of layer, step, head: the output of `--selections`. The first line names
// the trace by its identity, unless that is empty.
void write_selections(const ReplayResult& result, std::ostream& out, const std::string& trace_identity = "");

// Everything except the selections, for the store's cache of replays; from_json reads what to_json wrote.
nlohmann::json to_json(const ReplayResult& result);
ReplayResult replay_from_json(const nlohmann::json& json);

}  // namespace kvcast::replay
