// How a policy states its work: ops of one layer, added between "keys are appended" and "attention is done".
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "config/model.hpp"
#include "graph/op.hpp"
#include "policy/selection.hpp"

namespace kvcast::policy {

// One layer's prefill of the whole batch, after its attention over [start, stop()).
struct PrefillLayer {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t prompt_tokens = 0;
  // A block of the prompt, for policies that read it so (Policy::prompt_blocks); all others act once, after all of it.
  std::int64_t start = 0, end = 0;  // end 0: the prompt's
  std::int64_t stop() const { return end > 0 ? end : prompt_tokens; }
  bool last() const { return stop() == prompt_tokens; }
  std::int64_t length() const { return stop() - start; }
};

// Attention of one layer over tokens [start, end) of each prompt of the batch.
struct PrefillChunk {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t start = 0, end = 0;
  double held = 0;     // tokens before `start` that a head still holds
  double density = 1;  // share of the causal pairs that sparse prompt attention computes, from the replay
  double length() const { return static_cast<double>(end - start); }
  // Query-key pairs of a head: what is held, and the causal part of the chunk itself.
  double pairs() const { return length() * held + length() * (length() + 1) / 2; }
};

// One layer of one decode step of the whole batch.
struct DecodeLayer {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t tokens = 0;  // context L of each sequence, the new token included
  // [batch × heads]: what the replay saw, drawn for each sequence; heads are KV heads, or query heads (per_query_head).
  std::span<const HeadCounts> heads;
  bool per_query_head = false;

  int heads_per_sequence() const { return static_cast<int>(heads.size()) / batch; }
  // Σ over sequences and heads.
  double sum(std::int64_t HeadCounts::*field) const;
  double largest(std::int64_t HeadCounts::*field) const;
};

// Adds ops to the graph of one layer. A kernel's launch on the host, and the framework's overhead, are added by
// lowering.
class LayerOps {
 public:
  virtual ~LayerOps() = default;

  using After = std::initializer_list<graph::OpId>;

  // The op after which this layer's query and the appended key and value exist (decode), or its attention is done
  // (prefill).
  virtual graph::OpId ready() const = 0;
  // What ready() was for the layer before in the same decode step, for work that starts a layer ahead; ready() in the
  // first layer.
  virtual graph::OpId ready_before() const { return ready(); }
  // One kernel on a stream, after the ops named and what its lane holds before.
  virtual graph::OpId kernel(graph::Lane lane, graph::Kind kind, const char* label, const graph::Work& work,
                             After after) = 0;
  virtual graph::OpId host(graph::Lane thread, graph::Kind kind, const char* label, graph::HostCall call, double count,
                           After after) = 0;
  virtual graph::OpId copy(graph::Lane lane, const char* label, const graph::Copy& copy, After after) = 0;
  virtual graph::OpId cpu(const char* label, const graph::CpuWork& work, After after) = 0;
  virtual graph::OpId join(graph::Lane lane, After after) = 0;
  // Attention over what the step reads, with the framework's own factors (expanded heads) applied; usually the last op.
  virtual graph::OpId attention(const graph::DecodeAttention& work, After after) = 0;

  // Ops that later steps wait for, by (name, this layer), within graph::WorkSource::kReach; −1: none, or no longer.
  virtual void note(std::string_view event, graph::OpId op) = 0;
  virtual graph::OpId noted(std::string_view event) const = 0;
  // The next layers of this step go on after this op: call exactly once in decode_layer.
  virtual void done(graph::OpId op) = 0;
};

}  // namespace kvcast::policy
