// The work that frameworks add to a step: copies of KV heads, work of an engine, pages. Every op can be counted by
// hand.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <string_view>

#include "lower/decode.hpp"
#include "lower/prefill.hpp"
#include "policies/all.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;

namespace {

// Attends to 600 pairs of two query heads each a layer.
class Attending final : public policy::Policy {
 public:
  std::unique_ptr<policy::Selector> selector(const policy::LayerInput&, const policy::Lengths&) const override {
    return nullptr;
  }
  void decode_layer(const policy::DecodeLayer&, policy::LayerOps& ops) const override {
    ops.done(ops.attention(attends, {ops.ready()}));
  }
  std::vector<policy::MemoryItem> memory(const policy::MemoryShape&) const override { return {}; }
  policy::Growth growth(const policy::Lengths&) const override { return growing; }
  policy::Growth growing;
  graph::DecodeAttention attends{.rows = 6, .group = 2, .tokens = 600};
};

// Two layers of two KV heads and four query heads of 16 numbers, three sequences.
struct FrameworkStep {
  config::Run run;
  Attending policy;
  std::vector<policy::HeadCounts> counts = std::vector<policy::HeadCounts>(6);
  DecodeSetting setting;
  FrameworkStep() {
    run.model.layers = 2, run.model.hidden = 64, run.model.n_q_heads = 4, run.model.n_kv_heads = 2;
    run.model.head_dim = 16, run.model.ffn = 128, run.model.vocab = 1000;
    run.workload = {100, 8, 3, 0};
    setting.rank = run.model;
    setting.run = &run, setting.policy = &policy;
    setting.lengths = {100, 8}, setting.counted_tokens = 101;
    setting.counts = [this](int, std::int64_t) { return std::span<const policy::HeadCounts>(counts); };
  }
  std::vector<std::vector<graph::Op>> blocks(graph::WorkSource& source) const {
    std::vector<std::vector<graph::Op>> all;
    for (std::vector<graph::Op> block; source.next_block(block);) all.push_back(block);
    return all;
  }
};

}  // namespace

TEST_CASE("expanded KV heads cost two copies and attention with separate heads") {
  FrameworkStep f;
  f.run.framework.expand_kv_heads = true;
  DecodeWindow window(f.setting, 101, 1);
  const auto blocks = f.blocks(window);
  int copies = 0, kernels = 0;
  for (const graph::Op& op : blocks[0]) {
    if (op.kind != Kind::kAttention) continue;
    if (const auto* copy = std::get_if<graph::Kernel>(&op.work)) {
      // 600 pairs, 128 numbers of 2 bytes in a key; two query heads a KV head.
      CHECK(copy->read_bytes == 600 * 128 * 2);
      CHECK(copy->write_bytes == 2 * 600 * 128 * 2);
      ++copies;
    } else {
      const auto& attention = std::get<graph::DecodeAttention>(op.work);
      CHECK(attention.rows == 12);
      CHECK(attention.tokens == 1200);
      CHECK(attention.group == 1);
      ++kernels;
    }
  }
  CHECK(copies == 2 * 2);  // of keys and of values, in two layers
  CHECK(kernels == 2);
}

TEST_CASE("a quantised cache is unpacked whole before attention, which then reads 16-bit numbers") {
  FrameworkStep f;
  f.policy.attends.element_bytes = 1.25, f.policy.attends.converted = 600 * 2 * 128;
  f.run.framework.unpack_operators = 3;
  DecodeWindow window(f.setting, 101, 1);
  std::vector<graph::Kernel> unpacking;
  const auto step = f.blocks(window);
  for (const graph::Op& op : step[0]) {
    if (op.label == std::string_view("unpack cache")) unpacking.push_back(std::get<graph::Kernel>(op.work));
    if (op.label != std::string_view("attention")) continue;
    const auto& attention = std::get<graph::DecodeAttention>(op.work);
    CHECK(attention.element_bytes == 2);
    CHECK(attention.converted == 0);
  }
  // Keys and values of 600 tokens, 128 numbers each: 1.25 bytes read, 2 written, and twice 2 of both in two layers.
  REQUIRE(unpacking.size() == 2 * 3);
  CHECK(unpacking[0].read_bytes == 600 * 2 * 128 * 1.25);
  CHECK(unpacking[0].write_bytes == 600 * 2 * 128 * 2);
  CHECK(unpacking[0].flops == 2 * 600 * 2 * 128);
  CHECK(unpacking[2].read_bytes == 600 * 2 * 128 * 2);
  CHECK(unpacking[2].write_bytes == 600 * 2 * 128 * 2);

  // One layer's 16-bit copy of 101 tokens: three sequences, two KV heads, keys and values of 16 numbers.
  const auto unpacked = [&f] {
    for (const policy::MemoryItem& item : decode_memory(f.setting, 101)) {
      if (item.owner == graph::Owner::kUnpackedLayer) return item.bytes;
    }
    return 0.0;
  };
  CHECK(unpacked() == 0);
  f.setting.rank.cache = config::Precision::kInt8;
  CHECK(unpacked() == 3 * 101 * 2 * 2 * 16 * 2);

  // In 16 bits there is nothing to unpack.
  f.policy.attends.converted = 0;
  DecodeWindow plain(f.setting, 101, 1);
  const auto others = f.blocks(plain);
  for (const graph::Op& op : others[0]) CHECK(op.label != std::string_view("unpack cache"));
}

TEST_CASE("the head computes logits of a whole prompt, in 16 bits and in single precision") {
  FrameworkStep f;
  f.run.framework.prompt_logits = true;
  Prefill prefill(f.setting);
  const auto ops = f.blocks(prefill)[0];
  // 3 prompts of 100 tokens, 1000 entries: 2 and 4 bytes each, and 64 numbers of the hidden state.
  const double bytes = 300 * 1000 * (2 + 4) + 300 * 64 * 2;
  double held = 0, most = 0, activations = 0;
  bool computed = false;
  for (const graph::Op& op : ops) {
    for (const graph::MemoryDelta& change : op.memory) {
      if (change.owner == graph::Owner::kActivations) activations += change.bytes;
      if (change.owner != graph::Owner::kPromptLogits) continue;
      CHECK(activations == 0);
      held += change.bytes, most = std::max(most, held);
    }
    if (op.label != std::string_view("head of the prompt")) continue;
    CHECK(std::get<graph::Gemm>(op.work) == graph::Gemm{300, 1000, 64, 2});
    computed = true;
  }
  CHECK(computed);
  CHECK(most == bytes);
  CHECK(held == 0);
}

TEST_CASE("a prompt's chunk unpacks the cache that it attends to in one kernel") {
  FrameworkStep f;
  f.run.framework.flatten_prompt = true;
  f.run.workload.prefill_chunk = 60;
  const auto flattened = [&f] {
    Prefill prefill(f.setting);
    std::vector<graph::Kernel> found;
    for (const auto& block : f.blocks(prefill)) {
      for (const graph::Op& op : block) {
        if (op.label == std::string_view("flatten cache")) found.push_back(std::get<graph::Kernel>(op.work));
      }
    }
    return found;
  };
  CHECK(flattened().empty());
  f.setting.rank.cache = config::Precision::kInt8;
  // Two layers in each of two chunks, which see 60 and 100 tokens of three sequences.
  const auto found = flattened();
  REQUIRE(found.size() == 4);
  CHECK(found[0].read_bytes == 3 * 60 * f.setting.rank.kv_bytes_per_token_layer());
  CHECK(found[0].write_bytes == 3 * 60 * 2 * 2 * 16 * 2);
  CHECK(found[3].write_bytes == 3 * 100 * 2 * 2 * 16 * 2);
}

TEST_CASE("an engine's host work follows the token, once per step and once per sequence") {
  FrameworkStep f;
  const auto calls = [&f] {
    std::map<graph::HostCall, double> counts;
    DecodeWindow window(f.setting, 101, 1);
    const auto blocks = f.blocks(window);
    for (const graph::Op& op : blocks[0]) {
      if (const auto* host = std::get_if<graph::HostWork>(&op.work)) counts[host->call] += host->count;
    }
    CHECK(window.step_ends().back() == static_cast<graph::OpId>(blocks[0].size()) - 1);
    return counts;
  };
  CHECK(calls().count(graph::HostCall::kEngineStep) == 0);
  f.run.framework.engine_step.value = 1e-3, f.run.framework.engine_sequence.value = 1e-6;
  f.run.framework.engine_layer.value = 1e-4;
  auto counts = calls();
  CHECK(counts[graph::HostCall::kEngineStep] == 1);
  CHECK(counts[graph::HostCall::kEngineSequence] == 3);
  CHECK(counts.count(graph::HostCall::kEngineLayer) == 0);  // a graph contains no operators of Python's
  f.run.framework.launch = config::Framework::Launch::kEager;
  CHECK(calls()[graph::HostCall::kEngineLayer] == 2);

  // It has no work for a policy under full attention, and once per step under any other.
  f.run.framework.policy_step.value = 1e-3;
  CHECK(calls()[graph::HostCall::kPolicyStep] == 1);
  const auto full = policy::make_policy(policy::find_policy("full"), config::Node::map({}, {}));
  f.setting.policy = full.get();
  CHECK(calls().count(graph::HostCall::kPolicyStep) == 0);
}

TEST_CASE("attention is planned once a step, and only if it covers more tokens than in the step before") {
  FrameworkStep f;
  f.run.framework.attention_plan.value = 33e-3;
  const auto plans = [&f](const policy::Growth& growth) {
    f.policy.growing = growth;
    DecodeWindow window(f.setting, 101, 3);
    std::vector<int> found;
    for (const std::vector<graph::Op>& step : f.blocks(window)) {
      found.push_back(static_cast<int>(std::count_if(step.begin(), step.end(), [](const graph::Op& op) {
        const auto* host = std::get_if<graph::HostWork>(&op.work);
        return host != nullptr && host->call == graph::HostCall::kPlanAttention;
      })));
    }
    return found;
  };
  CHECK(plans({.attended = 1}) == std::vector<int>{1, 1, 1});  // not one for each of the two layers
  CHECK(plans({}) == std::vector<int>{0, 0, 0});
  // A budget of 102 covers 101, 102 and 102 of 101, 102 and 103 tokens.
  CHECK(plans({.fill = 102}) == std::vector<int>{1, 1, 0});
  f.run.framework.attention_plan.value = 0;
  CHECK(plans({.attended = 1}) == std::vector<int>{0, 0, 0});
}

TEST_CASE("a paged cache allocates its last page in full") {
  FrameworkStep f;
  const auto lacking = [&f](int page, std::int64_t tokens) {
    f.run.framework.page = page;
    double bytes = 0;
    for (const policy::MemoryItem& item : decode_memory(f.setting, tokens)) {
      if (graph::owner_name(item.owner) == "part-filled pages") bytes += item.bytes;
    }
    return bytes;
  };
  // 3 sequences, 2 layers, 2 heads of 16 numbers of 2 bytes, keys and values: 768 bytes for each token of all.
  CHECK(lacking(16, 101) == 11 * 768);
  CHECK(lacking(16, 112) == 0);
  CHECK(lacking(0, 101) == 0);
}

TEST_CASE("a layer's scalar is read back after attention, and the host launches nothing until then") {
  FrameworkStep f;
  f.run.framework.launch = config::Framework::Launch::kEager;
  const auto syncs = [&] {
    DecodeWindow window(f.setting, 101, 1);
    std::vector<graph::OpId> ids;
    const auto blocks = f.blocks(window);
    for (std::size_t i = 0; i < blocks[0].size(); ++i) {
      if (std::string_view(blocks[0][i].label) == "scalar of the layer") ids.push_back(static_cast<graph::OpId>(i));
    }
    for (const graph::OpId id : ids) {
      const graph::Op& op = blocks[0][static_cast<std::size_t>(id)];
      CHECK(op.lane == graph::Lane::kHost);
      const bool after_attention = std::any_of(op.after.begin(), op.after.end(), [&](graph::OpId before) {
        return blocks[0][static_cast<std::size_t>(before)].kind == Kind::kAttention;
      });
      CHECK(after_attention);
    }
    return ids.size();
  };
  CHECK(syncs() == 0);
  f.run.framework.layer_sync = true;
  CHECK(syncs() == 2);  // two layers
}

TEST_CASE("norms of queries and keys are operators in eager mode") {
  FrameworkStep f;
  const auto kernels = [&] {
    DecodeWindow window(f.setting, 101, 1);
    std::size_t count = 0;
    const auto blocks = f.blocks(window);
    for (const graph::Op& op : blocks[0]) count += op.kind == Kind::kSmall ? 1 : 0;
    return count;
  };
  const auto more = [&] {
    f.setting.rank.qk_norm = false;
    const std::size_t without = kernels();
    f.setting.rank.qk_norm = true;
    return kernels() - without;
  };
  CHECK(more() == 0);  // one kernel with RoPE and the append
  f.run.framework.launch = config::Framework::Launch::kEager;
  CHECK(more() == 2 * 2);  // a kernel for queries and one for keys, in two layers
  f.run.framework.unfused = true;
  CHECK(more() == 2 * 2 * 8);  // each of 8 operators
}

}  // namespace kvcast::tests
