// Prompts that are read in groups: their work, their memory, and the groups that are not lowered.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "lower/dense.hpp"
#include "lower/prefill.hpp"
#include "unit/lower/lowered_step.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;

TEST_CASE("prefill in groups does the same work with the activations of the largest group") {
  LoweredStep f;
  f.run.workload.prefill_batch = 2;  // of a batch of 3: groups of 2 and 1
  Prefill prefill(f.setting);
  double flops = 0, activations = 0, kv = 0, peak_kv = 0;
  int blocks = 0;
  for (const auto& block : f.blocks(prefill)) {
    ++blocks;
    for (const graph::Op& op : block) {
      if (op.kind == Kind::kAttention) flops += std::get<graph::PrefillAttention>(op.work).flops;
      for (const graph::MemoryDelta& m : op.memory) {
        const std::string_view owner = graph::owner_name(m.owner);
        if (owner == "activations") activations = std::max(activations, m.bytes);
        if (owner == "KV cache") peak_kv = std::max(peak_kv, kv += m.bytes);
      }
    }
  }
  CHECK(blocks == 2);
  CHECK(flops == 2.0 * 4 * 3 * 4 * 16 * 5050);
  CHECK(activations == activation_bytes(f.run.model, 200, 2));
  // Two prompts of 100 tokens at 128 bytes in the second layer, when the first one keeps its share of two sequences:
  // half of two thirds of what the policy keeps.
  CHECK(peak_kv == Approx(2 * 100 * 128 + 1000.0 / 3));
  CHECK(kv == Approx(1000));
}

TEST_CASE("equal groups of prompts between the third and the last are not lowered, but their memory is held") {
  LoweredStep f;
  f.run.workload.batch = 8, f.run.workload.prefill_batch = 1, f.run.workload.prefill_chunk = 50;
  const auto held = [&](bool all) {
    Prefill prefill(f.setting, all);
    double kv = 0;
    const auto blocks = f.blocks(prefill);
    for (const auto& block : blocks) {
      for (const graph::Op& op : block) {
        for (const graph::MemoryDelta& m : op.memory) {
          if (graph::owner_name(m.owner) == "KV cache") kv += m.bytes;
        }
      }
    }
    return std::tuple(blocks.size(), kv, prefill.repetition());
  };
  // Eight groups of two chunks; four groups are lowered, and the third, from block 4 on, represents four more.
  CHECK(held(true) == std::tuple(std::size_t{16}, 1000.0, Repetition{2, 0, 0}));
  const auto [blocks, kv, groups] = held(false);
  CHECK(blocks == 8);
  CHECK(kv == Approx(1000));
  CHECK(groups == Repetition{2, 4, 4});
}

TEST_CASE("a third group that is the last, smaller one stands for no other") {
  LoweredStep f;
  f.run.workload.batch = 5, f.run.workload.prefill_batch = 2;  // groups of 2, 2 and 1
  Prefill prefill(f.setting);
  double kv = 0;
  const auto blocks = f.blocks(prefill);
  for (const auto& block : blocks) {
    for (const graph::Op& op : block) {
      for (const graph::MemoryDelta& m : op.memory) {
        if (graph::owner_name(m.owner) == "KV cache") kv += m.bytes;
      }
    }
  }
  CHECK(blocks.size() == 3);
  CHECK(kv == Approx(1000));
  CHECK(prefill.repetition() == Repetition{1, 0, 0});
}

}  // namespace kvcast::tests
