// An attention trace: post-RoPE keys, values and queries of some layers of one sequence.
//
// It comes from a file (safetensors, memory-mapped) or a recipe; layers are converted to single precision one at a
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/floats.hpp"
#include "base/matrix.hpp"

namespace kvcast::trace {

struct TraceInfo {
  std::string file;                       // as it was opened; empty for a trace that is no file
  std::function<std::string()> identity;  // Trace::identity() of the whole trace; empty for one made by hand
  std::string model;
  std::string source;       // captured | synthetic
  std::vector<int> layers;  // captured layer ids, ascending
  int n_layers = 0, n_q_heads = 0, n_kv_heads = 0, head_dim = 0;
  double rope_theta = 0;
  std::int64_t prompt_tokens = 0;
  int decode_steps = 0;
  std::vector<std::int64_t> query_positions;    // ascending; ends with all decode positions
  std::map<std::string, std::string> optional;  // task, targets, turns, provenance and others: as written
  std::int64_t hidden = 0;                      // width of the hidden states, 0 if the trace has none

  std::int64_t positions() const { return prompt_tokens + decode_steps; }
  int group() const { return n_q_heads / n_kv_heads; }
  std::int64_t n_queries() const { return static_cast<std::int64_t>(query_positions.size()); }
  // Captured queries at prompt positions (all before the decode queries).
  std::int64_t prompt_queries() const { return n_queries() - decode_steps; }
  // Length of the gap-free run of captured queries at the end of the prompt: the longest observation window.
  std::int64_t longest_window() const;
};

// The memory of a layer: what one that is freed leaves to the next.
struct LayerStorage {
  ReusedFloats keys, values, queries, hidden, scores, passing, blocks;
};

// One captured layer in single precision. Immutable after construction, except scores made on first use by one thread
// at a time (replay computes them before it shares a layer between threads), and values if its maker deferred them.
//
// Belongs to one piece of work, whose `cancel` it carries: its rows throw Cancelled once that is requested. Loops that
// do more than a moment's work between two looks at a layer check it themselves.
class Layer {
 public:
  // Its maker fills all of the storage, whose content is undefined. Keeps a copy of the description.
  Layer(const TraceInfo& info, int layer_id, Cancel cancel = {}, LayerStorage storage = {});
  // Ends the layer's use.
  LayerStorage take_storage() { return std::move(storage_); }

  const TraceInfo& info() const { return *info_; }
  int id() const { return id_; }
  const Cancel& cancel() const { return cancel_; }
  // [positions × head_dim] of one KV head. Values may be made on first use, on any thread.
  MatrixView keys(int kv_head) const;
  MatrixView values(int kv_head) const;
  // Makes all values in parallel, for callers that need all of them.
  void make_values(int threads) const;
  // Sets `rows` to the values at these ascending positions, head_dim floats each.
  void value_rows(int kv_head, std::span<const std::int32_t> positions, std::vector<const float*>& rows) const;
  // Calls visit(q_head, the values of its KV head) for all query heads on several threads. Values of a long context are
  // made for the visit alone, a few heads at once: later most policies read a small part of them.
  void visit_values(int threads, const std::function<void(int q_head, MatrixView values)>& visit);
  // [n_queries × head_dim] of one query head, rows as query_positions.
  MatrixView queries(int q_head) const;
  // The query of a decode step, head_dim floats.
  const float* decode_query(int q_head, int step) const;
  // The last `window` prompt queries, [window × head_dim]. Throws UserError if the trace contains fewer, or they are
  // not the last ones without gaps.
  MatrixView window_queries(int q_head, int window) const;
  // [n_queries × hidden]; no rows if the trace has none.
  MatrixView hidden() const;

  // Raw scores q·k (not scaled) of all decode steps of a query head against all positions: [decode_steps × positions];
  // entries beyond a step's position exist and must not be used. Made by one matrix product per KV head and kept.
  MatrixView decode_scores(int q_head) const;
  void compute_scores(int threads) const;
  void drop_scores() const;

  // For makers of layers: storage as [head][row][head_dim]; hidden as [row][hidden].
  float* mutable_keys(int kv_head);
  float* mutable_values(int kv_head);
  float* mutable_queries(int q_head);
  float* mutable_hidden();
  // Used instead of mutable_values, because most policies select by keys alone. `make` fills rows first … first + n − 1
  // of a head, [n × head_dim]; first is a multiple of kValueBlock.
  using ValueMaker = std::function<void(int kv_head, std::int64_t first, std::int64_t n, float* out)>;
  static constexpr std::int64_t kValueBlock = 64;
  void make_values_by(ValueMaker make);

 private:
  std::int64_t value_blocks() const { return (info_->positions() + kValueBlock - 1) / kValueBlock; }  // of a head
  float* head_values(int kv_head) const;
  const float* value_block(int kv_head, std::int64_t block) const;
  std::size_t head_scores() const;  // floats
  void compute_head_scores(int kv_head) const;
  std::shared_ptr<const TraceInfo> info_;
  int id_;
  Cancel cancel_;
  mutable LayerStorage storage_;  // scores by KV head: [group · decode_steps × positions]
  ValueMaker value_maker_;
  std::unique_ptr<std::once_flag[]> values_made_;      // by KV head, if there is a maker
  std::unique_ptr<std::atomic<bool>[]> values_whole_;  // likewise, set when they are
  struct Blocks {
    std::unique_ptr<std::once_flag[]> made;  // [KV head × block]
    std::vector<float*> at;                  // likewise
    std::atomic<std::size_t> used{0};
  };
  // Only for a layer with too many values to make all of them in advance. Blocks of values are stored in the order in
  // which they are first requested, so that a few blocks occupy few pages of memory.
  std::unique_ptr<Blocks> blocks_;
  mutable std::vector<char> scores_made_;  // by KV head
};

class Trace {
 public:
  virtual ~Trace() = default;
  const TraceInfo& info() const { return info_; }
  // layer_index counts the captured layers from 0. Throws UserError with the location if the data is broken (non-finite
  // numbers), and Cancelled.
  std::unique_ptr<Layer> load(std::size_t layer_index, int threads, const Cancel& cancel = {},
                              LayerStorage storage = {}) const {
    return make_layer(layer_index, threads, cancel, std::move(storage));
  }
  // Determines its layers, for keys of experiments: content hash of a file, or recipe with seed and shape.
  virtual std::string identity() const = 0;

 protected:
  TraceInfo info_;

 private:
  virtual std::unique_ptr<Layer> make_layer(std::size_t layer_index, int threads, const Cancel& cancel,
                                            LayerStorage storage) const = 0;
};

// Opens and validates a file; throws UserError naming the file and the tensor or metadata key that is wrong.
std::unique_ptr<Trace> open_trace(const std::string& path);

}  // namespace kvcast::trace
