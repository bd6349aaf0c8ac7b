// Passes of models whose layers differ: the kernels of attention to compressed entries, in chunks, in sliding layers
// with heads of their own, and of Mamba, by hand.
#include <catch2/catch.hpp>

#include <algorithm>

#include "lower/decode.hpp"
#include "lower/pass.hpp"
#include "lowered_step.hpp"
#include "policies/all.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

using graph::Owner;

// A layer of each kind: window, CSA with 3 entries of 4 tokens, HCA of 16 tokens, without experts.
config::Model entries_model() {
  config::Model m;
  m.layers = 3, m.hidden = 32, m.ffn = 64, m.vocab = 100;
  m.n_q_heads = 4, m.n_kv_heads = 1, m.head_dim = 16;
  config::Compressed& c = m.compressed.emplace();
  c.layers = "WCH", c.window = 8, c.csa_tokens = 4, c.hca_tokens = 16;
  c.index_heads = 2, c.index_dim = 8, c.index_best = 3;
  c.query_rank = 10, c.rope_dim = 4, c.output_groups = 2, c.output_rank = 6;
  return m;
}

struct PassOps {
  std::vector<graph::Op> ops;
  template <class Work>
  std::vector<Work> of(const std::string& label, int layer = -2) const {
    std::vector<Work> all;
    for (const graph::Op& op : ops) {
      if (label == op.label && (layer == -2 || op.layer == layer)) all.push_back(std::get<Work>(op.work));
    }
    return all;
  }
};

PassOps lowered(const config::Model& model, const std::vector<PassSequence>& sequences,
                const std::string& policy_name = "full", const std::string& parameters = "") {
  config::Framework framework;
  framework.scan_chunk.value = 3e-6;
  const auto policy = make(policy_name, parameters, {100, 20});
  const PassSetting setting{.framework = &framework, .policy = policy.get(), .rank = model};
  PassSequences pass = pass_of(sequences, *policy, setting.rank);
  PassOps out;
  std::vector<policy::HeadCounts> counts;
  for (const policy::Sequence& s : pass.decodes)
    counts.insert(counts.end(), static_cast<std::size_t>(model.n_kv_heads), {.attended = s.tokens});
  pass.counts = [&](int) { return std::span<const policy::HeadCounts>(counts); };
  Events events;
  LoweredBlock block(framework, 0, -1, events, out.ops);
  PromptMemory none;
  add_pass(block, setting, pass, none, -1);
  return out;
}

TEST_CASE("a step reads the window and the entries of its layer") {
  const PassOps pass = lowered(entries_model(), {{100, 1, {100, 20}}, {40, 1, {40, 20}}});
  const auto tokens = [&](int layer) { return pass.of<graph::DecodeAttention>("attention", layer).at(0).tokens; };
  CHECK(tokens(0) == 2 * 8);
  CHECK(tokens(1) == 2 * (8 + 3));
  CHECK(tokens(2) == 8 + 101 / 16 + 8 + 41 / 16);
  const auto work = pass.of<graph::DecodeAttention>("attention", 1).at(0);
  CHECK(2 * work.head_dim * work.element_bytes == 32);  // an entry is key and value at once
  CHECK(work.product_dims == 2 * 16);
  CHECK(work.group == 4);
  CHECK(work.rows == 2);
}

TEST_CASE("an indexer scores all entries and chooses among them in selecting layers alone") {
  const PassOps pass = lowered(entries_model(), {{100, 1, {100, 20}}, {40, 1, {40, 20}}});
  const auto scores = pass.of<graph::PrefillAttention>("index scores");
  REQUIRE(scores.size() == 1);
  CHECK(scores[0].read_bytes == (101 + 41) / 4.0 * 12);  // 8 bytes of FP8 and a scale an entry
  CHECK(scores[0].flops == 2 * (101 + 41) / 4.0 * 2 * 8);
  const auto best = pass.of<graph::TopK>("top-k", 1);
  REQUIRE(best.size() == 1);
  CHECK(best[0].rows == 2);
  CHECK(best[0].k == 3);
  // Up to 3 entries, there is nothing to choose.
  CHECK(lowered(entries_model(), {{14, 1, {14, 20}}}).of<graph::TopK>("top-k", 1).empty());
  CHECK(lowered(entries_model(), {{15, 1, {15, 20}}}).of<graph::TopK>("top-k", 1).size() == 1);
}

// The sum over queries of a part of a prompt, each by itself.
double pairs_by_hand(char kind, int start, int end) {
  double sum = 0;
  for (int t = start + 1; t <= end; ++t) {
    sum += std::min(t, 8);
    if (kind == 'C') sum += std::min(t / 4, 3);
    if (kind == 'H') sum += t / 16;
  }
  return sum;
}

TEST_CASE("prompts attend to as many entries as each of their tokens") {
  for (const auto& [start, end] : {std::pair(0, 5), {0, 100}, {37, 61}, {96, 97}}) {
    const PassOps pass = lowered(entries_model(), {{start, end - start, {100, 20}}});
    CAPTURE(start, end);
    for (int layer = 0; layer < 3; ++layer) {
      const auto work = pass.of<graph::PrefillAttention>("prefill attention", layer).at(0);
      CHECK(work.flops == Approx(4 * 4 * 16 * pairs_by_hand("WCH"[layer], start, end)));
    }
  }
}

TEST_CASE("compressors and index of a layer are its kind's") {
  const PassOps pass = lowered(entries_model(), {{100, 1, {100, 20}}});
  const auto gates = [&](int layer) { return pass.of<graph::Gemm>("values and gates of entries", layer); };
  CHECK(gates(0).empty());
  CHECK(gates(1).at(0).n == 2 * 2 * (16 + 8));
  CHECK(gates(2).at(0).n == 2 * 16);
  CHECK(pass.of<graph::Gemm>("index queries").size() == 1);
  CHECK(pass.of<graph::Gemm>("expand queries").at(0).n == 4 * 16);
  const auto groups = pass.of<graph::Gemm>("compress outputs").at(0);
  CHECK(groups.groups == 2);
  CHECK(groups.k == 2 * 16);
  CHECK(pass.of<graph::Gemm>("output projection").at(0).k == 2 * 6);
}

TEST_CASE("streams are mixed before each block") {
  config::Model m = entries_model();
  CHECK(lowered(m, {{100, 1, {100, 20}}}).of<graph::Gemm>("stream coefficients").empty());
  m.streams = 4;
  const auto mixed = lowered(m, {{100, 1, {100, 20}}}).of<graph::Gemm>("stream coefficients");
  CHECK(mixed.size() == 2 * 3 + 1);  // and before the head
  CHECK(mixed[0].n == 4 * 6);
  CHECK(mixed[0].k == 4 * 32);
}

TEST_CASE("the memory of entries, their index and windows has owners of its own") {
  LoweredStep f;
  f.run.model = entries_model();
  f.setting.rank = f.run.model;
  const auto policy = make("full", "", {100, 8});
  f.setting.policy = policy.get();
  const auto items = decode_memory(f.setting, 100);
  const auto bytes = [&](Owner owner) {
    double sum = 0;
    for (const policy::MemoryItem& item : items) sum += item.owner == owner ? item.bytes : 0;
    return sum;
  };
  CHECK(bytes(Owner::kKvCache) == Approx(3 * 100 * (32 / 4.0 + 32 / 16.0)));
  CHECK(bytes(Owner::kIndexKeys) == Approx(3 * 100 * 12 / 4.0));
  CHECK(bytes(Owner::kSlidingCache) == 3 * f.run.model.state_bytes());
  CHECK(bytes(Owner::kStates) == 0);
}

// Layers 0 and 2 attend to chunks of 40 tokens with 4 KV heads of 8, layers 1 and 3 to everything with 2 of 16.
config::Model chunked_model() {
  config::Model m;
  m.layers = 4, m.hidden = 32, m.ffn = 64, m.vocab = 100;
  m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 16;
  m.sliding_window = 40, m.full_every = 2, m.chunked = true;
  m.sliding_kv_heads = 4, m.sliding_head_dim = 8, m.values_from_keys = true;
  return m;
}

TEST_CASE("a step in a chunk reads what the chunk has, with the heads of its layer") {
  const PassOps pass = lowered(chunked_model(), {{100, 1, {100, 20}}});
  const auto chunk = pass.of<graph::DecodeAttention>("attention", 0).at(0);
  CHECK(chunk.tokens == 4 * (101 - 80));
  CHECK(chunk.head_dim == 8);
  CHECK(chunk.group == 1);
  const auto full = pass.of<graph::DecodeAttention>("attention", 1).at(0);
  CHECK(full.head_dim == 16);
  CHECK(full.group == 2);
  CHECK(pass.of<graph::Gemm>("qkv projection", 0).at(0).n == 4 * 8 + 2 * 4 * 8);
  CHECK(pass.of<graph::Gemm>("qkv projection", 1).at(0).n == 4 * 16 + 2 * 16);  // values are keys
  CHECK(pass.of<graph::Gemm>("output projection", 0).at(0).k == 4 * 8);
}

TEST_CASE("prompts in chunks attend within each") {
  const PassOps pass = lowered(chunked_model(), {{0, 100, {100, 20}}});
  const auto work = pass.of<graph::PrefillAttention>("sliding-window attention", 0).at(0);
  CHECK(work.flops == Approx(4 * 4 * 8 * (2 * 40 * 41 / 2 + 20 * 21 / 2)));
  // Tokens 30 to 59: ten that see the first chunk, twenty of the second.
  const auto later =
      lowered(chunked_model(), {{30, 30, {100, 20}}}).of<graph::PrefillAttention>("sliding-window attention", 0);
  CHECK(later.at(0).flops == Approx(4 * 4 * 8 * (40 * 41 / 2 - 30 * 31 / 2 + 20 * 21 / 2)));
}

TEST_CASE("the first tokens of a prompt see less than a window") {
  config::Model m = chunked_model();
  m.chunked = false;
  const auto flops = [&](std::int64_t start, std::int64_t length) {
    return lowered(m, {{start, length, {100, 20}}})
        .of<graph::PrefillAttention>("sliding-window attention", 0)
        .at(0)
        .flops;
  };
  // 1 + 2 + … + 40 pairs, then 40 each.
  CHECK(flops(0, 100) == Approx(4 * 4 * 8 * (40 * 41 / 2 + 60 * 40)));
  CHECK(flops(0, 30) == Approx(4 * 4 * 8 * (30 * 31 / 2)));
  CHECK(flops(30, 20) == Approx(4 * 4 * 8 * (40 * 41 / 2 - 30 * 31 / 2 + 10 * 40)));
  CHECK(flops(60, 40) == Approx(4 * 4 * 8 * 40 * 40));
  // A policy that keeps 15 tokens between blocks does not act on these layers.
  const auto evicted = lowered(m, {{60, 10, {100, 20}}}, "keydiff", "budget: 15, block: 10");
  CHECK(evicted.of<graph::PrefillAttention>("sliding-window attention", 0).at(0).flops == Approx(4 * 4 * 8 * 10 * 40));
}

TEST_CASE("Mamba projects keys, queries and steps from its values") {
  config::Model m = chunked_model();
  m.sliding_window = 0, m.full_every = 1, m.chunked = false, m.values_from_keys = false;
  config::Recurrence& r = m.recurrence.emplace();
  r.kind = config::Recurrence::Kind::kMamba1;
  r.heads = 64, r.key_heads = 1, r.key_dim = 16, r.value_dim = 1, r.step_rank = 2, r.taps = 4, r.attention_layers = {3};
  const PassOps pass = lowered(m, {{100, 1, {100, 20}}, {0, 50, {50, 20}}});
  CHECK(pass.of<graph::Gemm>("input projection").at(0).n == 2 * 64);
  const auto from = pass.of<graph::Gemm>("keys, queries and steps").at(0);
  CHECK(from.n == 2 + 2 * 16);
  CHECK(from.k == 64);
  CHECK(pass.of<graph::Gemm>("expand steps").at(0).k == 2);
  const auto step = pass.of<graph::Kernel>("recurrence").at(0);
  CHECK(step.write_bytes == 64 * 16 * 4 + 64 * 2);
  const auto scan = pass.of<graph::Kernel>("recurrence over prompt").at(0);
  CHECK(scan.flops == 10 * 50 * 64 * 16);
  CHECK(scan.write_bytes == 50 * 64 * 2);
  CHECK(scan.read_bytes == (3 * 50 * 64 + 2 * 50 * 16) * 2);
}

}  // namespace
}  // namespace kvcast::tests
