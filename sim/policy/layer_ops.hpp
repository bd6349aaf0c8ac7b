// The interface through which a policy states its work: ops of one layer, between "keys are appended" and "attention is
// done".
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "config/model.hpp"
#include "graph/op.hpp"
#include "policy/selection.hpp"

namespace kvcast::policy {

// The vocabulary in which policies state their work.
using graph::Copy;
using graph::CopyKind;
using graph::CpuWork;
using graph::DecodeAttention;
using graph::Direction;
using graph::Gemm;
using graph::HostCall;
using graph::Kernel;
using graph::KernelClass;
using graph::Kind;
using graph::Lane;
using graph::OpId;
using graph::PrefillAttention;
using graph::TopK;

// One layer's prefill of the whole batch, after its attention over [start, stop()).
struct PrefillLayer {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t prompt_tokens = 0;
  // A block of the prompt, for policies that read it in blocks (Policy::prompt_blocks); all others act once, after the
  // prompt.
  std::int64_t start = 0, end = 0;  // end 0: the end of the prompt
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
  double held = 0;     // tokens before `start` that a head still keeps
  double density = 1;  // share of the causal pairs that sparse prompt attention computes, from the replay
  double length() const { return static_cast<double>(end - start); }
  // Query-key pairs of a head: those with held tokens, and the causal part of the chunk itself.
  double pairs() const { return length() * held + length() * (length() + 1) / 2; }
};

// One layer of one decode step of the whole batch.
struct DecodeLayer {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t tokens = 0;  // context L of each sequence, the new token included
  // [batch × heads]: counts of the replay, drawn for each sequence; heads are KV heads, or query heads
  // (per_query_head).
  std::span<const HeadCounts> heads;
  bool per_query_head = false;

  int heads_per_sequence() const { return static_cast<int>(heads.size()) / batch; }
  // Sum and maximum over sequences and heads.
  double sum(std::int64_t HeadCounts::*field) const;
  double largest(std::int64_t HeadCounts::*field) const;
};

// Adds ops to the graph of one layer. Lowering adds the launches of kernels on the host and the framework's overhead.
class LayerOps {
 public:
  virtual ~LayerOps() = default;

  using After = std::initializer_list<OpId>;

  // The op after which this layer's query and the appended key and value exist (decode), or its attention is done
  // (prefill).
  virtual OpId ready() const = 0;
  // The result of ready() in the layer before of the same decode step, for work that starts one layer ahead; ready() in
  // the first layer.
  virtual OpId ready_before() const { return ready(); }
  // Adds one kernel on a stream, after the named ops and earlier work of its lane.
  virtual OpId kernel(Lane lane, Kind kind, const char* label, const graph::Work& work, After after) = 0;
  // The same on the stream of the model.
  OpId compute(Kind kind, const char* label, const graph::Work& work, After after) {
    return kernel(Lane::kCompute, kind, label, work, after);
  }
  virtual OpId host(Lane thread, Kind kind, const char* label, HostCall call, double count, After after) = 0;
  virtual OpId copy(Lane lane, const char* label, const Copy& copy, After after) = 0;
  virtual OpId cpu(const char* label, const CpuWork& work, After after) = 0;
  virtual OpId join(Lane lane, After after) = 0;
  // Adds attention over the tokens that the step reads, with the framework's factors (expanded heads) applied; usually
  // the last op.
  virtual OpId attention(const DecodeAttention& work, After after) = 0;

  // Ops that later steps wait for, by (event, this layer), within graph::WorkSource::kReach steps; −1 if there is none,
  // or no longer.
  virtual void note(std::string_view event, OpId op) = 0;
  virtual OpId noted(std::string_view event) const = 0;
  // The next layers of this step wait for this op. Call exactly once in decode_layer.
  virtual void done(OpId op) = 0;
};

}  // namespace kvcast::policy
