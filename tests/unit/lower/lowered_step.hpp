// A step of a tiny model under a policy that is made up.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "config/run.hpp"
#include "graph/op.hpp"
#include "lower/decode.hpp"
#include "policy/policy.hpp"

namespace kvcast::tests {

inline config::Run tiny_run() {
  config::Run run;
  run.model.layers = 2;
  run.model.hidden = 64;
  run.model.n_q_heads = 4;
  run.model.n_kv_heads = 2;
  run.model.head_dim = 16;
  run.model.ffn = 128;
  run.model.vocab = 1000;
  run.workload = {100, 8, 3, 0};
  return run;
}

// Attends to all, and copies something in the background that the next step waits for.
class Background final : public policy::Policy {
 public:
  std::unique_ptr<policy::Selector> selector(const policy::LayerInput&, const policy::Lengths&) const override {
    return nullptr;
  }
  void decode_layer(const policy::DecodeLayer& shape, policy::LayerOps& ops) const override {
    seen_tokens.push_back(shape.sequences[0].tokens);
    seen_attended.push_back(shape.heads[0].attended);
    const graph::OpId before = ops.noted("recall");
    const graph::OpId attended = ops.attention({.rows = 6, .group = 2, .tokens = 600}, {ops.ready(), before});
    const graph::OpId task =
        ops.host(graph::Lane::kRecallThread, graph::Kind::kLaunch, "task", graph::HostCall::kTask, 1, {attended});
    ops.note("recall", ops.copy(graph::Lane::kCopyA, "recall",
                                {.runs = 1, .run_bytes = 64, .issuer = graph::Lane::kRecallThread}, {task}));
    ops.done(attended);
  }
  std::vector<policy::MemoryItem> memory(const policy::MemoryShape& shape) const override {
    return {{graph::Pool::kHbm, graph::Owner::kKvCache, 10.0 * static_cast<double>(shape.tokens)}};
  }
  policy::Growth growth(const policy::Lengths&) const override { return {1.0, 0}; }
  mutable std::vector<std::int64_t> seen_tokens, seen_attended;
};

// The setting of a decode step at 101 tokens, with its run and policy.
struct LoweredStep {
  config::Run run = tiny_run();
  Background policy;
  std::vector<policy::HeadCounts> counts = std::vector<policy::HeadCounts>(6);
  lower::DecodeSetting setting;
  LoweredStep() {
    for (auto& c : counts) c.attended = 101;
    setting.rank = run.model;
    setting.run = &run;
    setting.policy = &policy;
    setting.lengths = {100, 8};
    setting.counted_tokens = 101;
    setting.counts = [this](int, std::int64_t) { return std::span<const policy::HeadCounts>(counts); };
  }
  std::vector<std::vector<graph::Op>> blocks(graph::WorkSource& source) const {
    std::vector<std::vector<graph::Op>> all;
    for (std::vector<graph::Op> block; source.next_block(block);) all.push_back(block);
    return all;
  }
};

}  // namespace kvcast::tests
