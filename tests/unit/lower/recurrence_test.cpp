// Passes of a model in which some layers have a recurrence: its kernels by hand, and what policies see of the model.
#include <catch2/catch.hpp>

#include "lower/pass.hpp"
#include "policies/all.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

// Layers 0, 1, 3, 4 have a gated delta net with 4 heads of 8 × 16 over 2 heads of keys, layers 2 and 5 attend.
config::Model small_hybrid() {
  config::Model m;
  m.layers = 6, m.hidden = 64, m.ffn = 128, m.vocab = 1000;
  m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 16;
  config::Recurrence& r = m.recurrence.emplace();
  r.heads = 4, r.key_heads = 2, r.key_dim = 8, r.value_dim = 16, r.taps = 4, r.attention_every = 3;
  return m;
}

struct LoweredPass {
  std::vector<graph::Op> ops;
  std::vector<int> asked;  // layers whose counts were asked for
  std::vector<const graph::Op*> of(const std::string& label) const {
    std::vector<const graph::Op*> all;
    for (const graph::Op& op : ops) {
      if (label == op.label) all.push_back(&op);
    }
    return all;
  }
};

// Two sequences decode at 101 and 201 tokens, two prompts of 200 tokens are read whole.
LoweredPass lower_hybrid(const config::Model& model, bool separate_kernels = false) {
  config::Framework framework;
  framework.scan_chunk.value = 3e-6;
  if (separate_kernels) framework.scan_share.value = 0.5;
  const auto policy = make("full", "", {100, 20});
  const PassSetting setting{.framework = &framework, .policy = policy.get(), .rank = model};
  const std::vector<PassSequence> sequences = {
      {100, 1, {100, 20}}, {200, 1, {200, 20}}, {0, 200, {200, 20}}, {0, 200, {200, 20}}};
  PassSequences pass = pass_of(sequences, *policy, setting.rank);
  LoweredPass out;
  const std::vector<policy::HeadCounts> counts = {
      {.attended = 101}, {.attended = 101}, {.attended = 201}, {.attended = 201}};
  pass.counts = [&](int layer) {
    out.asked.push_back(layer);
    return std::span<const policy::HeadCounts>(counts);
  };
  Events events;
  LoweredBlock block(framework, 0, -1, events, out.ops);
  PromptMemory none;
  add_pass(block, setting, pass, none, -1);
  return out;
}

TEST_CASE("layers with a recurrence have its kernels and no attention, and policies see the others alone") {
  const LoweredPass pass = lower_hybrid(small_hybrid());
  const auto attention = pass.of("attention");
  REQUIRE(attention.size() == 2);
  CHECK(attention[0]->layer == 2);
  CHECK(attention[1]->layer == 5);
  CHECK(pass.asked == std::vector<int>{0, 1});
  REQUIRE(pass.of("recurrence").size() == 4);
  CHECK(pass.of("recurrence")[2]->layer == 3);
  // 402 rows: queries, keys of 16, values and gate of 64, and 8 gates.
  const auto& input = std::get<graph::Gemm>(pass.of("input projection")[0]->work);
  CHECK(input.m == 402);
  CHECK(input.n == 2 * 16 + 2 * 64 + 8);
  CHECK(input.k == 64);
}

TEST_CASE("a gate of full rank comes out of the input projection") {
  config::Model m = small_hybrid();
  m.recurrence->kind = config::Recurrence::Kind::kKimiDelta, m.recurrence->key_heads = 4;
  const auto of = [](const LoweredPass& pass, const char* label) {
    return std::get<graph::Gemm>(pass.of(label)[0]->work);
  };
  const LoweredPass low = lower_hybrid(m);
  CHECK(of(low, "input projection").n == 2 * 32 + 64 + 4 + 2 * 8);
  CHECK(of(low, "gates").groups == 2);
  m.recurrence->full_gate = true;
  const LoweredPass full = lower_hybrid(m);
  CHECK(of(full, "input projection").n == 2 * 32 + 64 + 4 + 8 + 64);
  CHECK(of(full, "gates").groups == 1);
}

TEST_CASE("a step reads and writes the state of each sequence") {
  const LoweredPass pass = lower_hybrid(small_hybrid());
  const auto& step = std::get<graph::Kernel>(pass.of("recurrence")[0]->work);
  const double states = 2 * 4 * 8 * 16 * 4;  // sequences, heads, single precision
  CHECK(step.read_bytes == states + 2 * (2 * 16 + 64) * 2);
  CHECK(step.write_bytes == states + 2 * 64 * 2);
}

TEST_CASE("a prompt passes a recurrence in chunks of 64 tokens, one after another in each head") {
  const LoweredPass fused = lower_hybrid(small_hybrid());
  const auto& scan = std::get<graph::Kernel>(fused.of("recurrence over prompt")[0]->work);
  CHECK(scan.cls == graph::KernelClass::kScan);
  CHECK(scan.blocks == 2 * 4);
  CHECK(scan.passes == 4);  // 200 tokens
  CHECK(scan.read_bytes == 400 * (2 * 16 + 64) * 2);
  CHECK(scan.write_bytes == 400 * 64 * 2);
  // In separate kernels, keys of 8 twice and values of 16 for each head, and a 64th of a state, go through memory.
  const LoweredPass separate = lower_hybrid(small_hybrid(), true);
  const auto& moved = std::get<graph::Kernel>(separate.of("recurrence over prompt")[0]->work);
  const double each = 4 * (2 * 8 + 16) * 2 + 4 * 8 * 16 * 2 / 64.0;
  CHECK(moved.read_bytes == Approx(400 * ((2 * 16 + 64) * 2 + each)));
  CHECK(moved.write_bytes == Approx(400 * (64 * 2 + each)));
  CHECK(separate.of("transforms of chunks").size() == 4);
}

TEST_CASE("a layer of one block has no other") {
  config::Model m = small_hybrid();
  m.blocks = "M-M*-M";
  const LoweredPass pass = lower_hybrid(m);
  CHECK(pass.of("recurrence").size() == 3);
  CHECK(pass.of("attention").size() == 1);
  CHECK(pass.of("down projection").size() == 2);
  CHECK(pass.of("norm").size() == 6 + 1);  // and before the head
}

}  // namespace
}  // namespace kvcast::tests
