// The interface through which a policy states its work: ops of one layer, between "keys are appended" and "attention is
// done".
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

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
using graph::Owner;
using graph::PrefillAttention;
using graph::TopK;

// Lengths of one request: what is known of it when its prompt has been read, on which a policy's work may depend.
struct Lengths {
  std::int64_t prompt_tokens = 0;
  std::int64_t decode_steps = 0;                                       // tokens expected
  std::int64_t bound() const { return prompt_tokens + decode_steps; }  // S_max
  auto operator<=>(const Lengths&) const = default;
};

// One layer's prefill of `batch` equal prompts, after its attention over [start, stop()).
struct PrefillLayer {
  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 1;
  std::int64_t prompt_tokens = 0;
  // A block of the prompt, for policies that read it in blocks (Policy::prompt_blocks); all others act once, after the
  // prompt.
  std::int64_t start = 0, end = 0;  // end 0: the end of the prompt
  std::int64_t decode_steps = 0;    // tokens expected of each request
  Lengths request() const { return {prompt_tokens, decode_steps}; }
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

// A sequence in a decode step.
struct Sequence {
  std::int64_t tokens = 0;  // context L, the new token included
  Lengths request;
  bool operator==(const Sequence&) const = default;
};

// One layer of one decode step of sequences of any lengths.
struct DecodeLayer {
  DecodeLayer() = default;
  DecodeLayer(const config::Model& of, int number, std::span<const Sequence> all, std::span<const HeadCounts> counts,
              bool by_query)
      : model(&of),
        layer(number),
        batch(static_cast<int>(all.size())),
        sequences(all),
        heads(counts),
        per_query_head(by_query) {}

  const config::Model* model = nullptr;
  int layer = 0;
  int batch = 0;  // number of sequences
  std::span<const Sequence> sequences;
  // [batch × heads]: counts of the replay, drawn for each sequence; heads are KV heads, or query heads
  // (per_query_head).
  std::span<const HeadCounts> heads;
  bool per_query_head = false;

  int heads_per_sequence() const { return static_cast<int>(heads.size()) / batch; }
  std::span<const HeadCounts> heads_of(std::size_t sequence) const {
    const auto each = static_cast<std::size_t>(heads_per_sequence());
    return heads.subspan(sequence * each, each);
  }
  // Sum and maximum over sequences and heads; the sum over the heads of one sequence.
  double sum(std::int64_t HeadCounts::*field) const { return sum(heads, field); }
  double sum_of(std::size_t sequence, std::int64_t HeadCounts::*field) const { return sum(heads_of(sequence), field); }
  double largest(std::int64_t HeadCounts::*field) const;
  // Sum and mean over sequences of `of(sequence)`.
  template <typename Of>
  double sum_over(const Of& of) const {
    double total = 0;
    for (const Sequence& sequence : sequences) total += static_cast<double>(of(sequence));
    return total;
  }
  template <typename Of>
  double mean_over(const Of& of) const {
    return sum_over(of) / batch;
  }
  // Returns whether contexts differ.
  bool unequal() const {
    return std::ranges::any_of(sequences, [&](const Sequence& s) { return s.tokens != sequences.front().tokens; });
  }
  double mean_tokens() const {
    return mean_over([](const Sequence& s) { return s.tokens; });
  }

 private:
  static double sum(std::span<const HeadCounts> heads, std::int64_t HeadCounts::*field);
};

// Sequences of equal lengths.
class EqualBatch {
 public:
  EqualBatch(const config::Model& model, int layer, int batch, const Sequence& sequence,
             std::span<const HeadCounts> heads, bool per_query_head)
      : sequences_(static_cast<std::size_t>(batch), sequence),
        shape_(model, layer, sequences_, heads, per_query_head) {}
  EqualBatch(const EqualBatch&) = delete;  // the shape refers to the sequences
  operator const DecodeLayer&() const { return shape_; }

 private:
  std::vector<Sequence> sequences_;
  DecodeLayer shape_;
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
  // Returns true if the policy runs as the operators of its Python code (Hugging Face transformers), so that work which
  // kernels avoid counts: copies of a cache from which tokens are dropped, masks, waits for their sums.
  virtual bool unfused() const { return false; }
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
