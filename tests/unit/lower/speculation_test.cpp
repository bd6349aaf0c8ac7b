// Passes that verify several tokens of each sequence: work of the model, of policies and of drafts by hand.
#include <catch2/catch.hpp>

#include "lower/decode.hpp"
#include "lower/pass.hpp"
#include "policies/all.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

using config::Speculation;
using policy::HeadCounts;

config::Model drafted_model() {
  config::Model m;
  m.layers = 2, m.hidden = 64, m.ffn = 128, m.vocab = 1000;
  m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 16;
  return m;
}

// Three tokens are drafted, so that each sequence has four rows.
Speculation drafting(Speculation::Kind kind, const config::Model& model) {
  Speculation s;
  s.kind = kind, s.tokens = 3;
  if (kind == Speculation::Kind::kNgram) return s;
  s.draft = model;
  if (kind == Speculation::Kind::kDraft) return s;
  s.features = kind == Speculation::Kind::kMtp ? 2 : 3;
  s.draft->layers = 1, s.draft->recurrence.reset();
  return s;
}

struct Drafted {
  std::vector<graph::Op> ops;
  std::vector<const graph::Op*> of(const std::string& label, int layer) const {
    std::vector<const graph::Op*> all;
    for (const graph::Op& op : ops) {
      if (op.layer == layer && label == op.label) all.push_back(&op);
    }
    return all;
  }
  template <typename W>
  const W& only(const std::string& label, int layer = 0) const {
    const auto all = of(label, layer);
    REQUIRE(all.size() == 1);
    return std::get<W>(all[0]->work);
  }
  int products() const {
    return static_cast<int>(
        std::ranges::count_if(ops, [](const graph::Op& op) { return op.kind == graph::Kind::kGemm; }));
  }
};

// Two sequences at contexts of 101 and 401 tokens.
Drafted lower_drafted(const policy::Policy& policy, const Speculation& s, std::vector<HeadCounts> counts,
                      const config::Model& model = drafted_model()) {
  const config::Framework framework;
  PassSetting setting{.framework = &framework, .policy = &policy, .rank = model, .speculation = &s};
  if (s.draft) setting.draft = *s.draft;
  const std::vector<PassSequence> two = {{100, 1, {100, 20}}, {400, 1, {400, 20}}};
  PassSequences pass = pass_of(two, policy, setting.rank);
  pass.counts = [&](int) { return std::span<const HeadCounts>(counts); };
  Drafted out;
  Events events;
  LoweredBlock block(framework, 0, -1, events, out.ops);
  PromptMemory none;
  add_pass(block, setting, pass, none, -1);
  return out;
}

std::vector<HeadCounts> both_heads(const HeadCounts& a, const HeadCounts& b) { return {a, a, b, b}; }

TEST_CASE("queries of a sequence are further heads over one read of what is kept") {
  const Speculation s = drafting(Speculation::Kind::kNgram, {});
  const std::vector<HeadCounts> counts = both_heads({.attended = 101}, {.attended = 401});
  const auto full = make("full", "", {100, 20});
  const Drafted pass = lower_drafted(*full, s, counts);
  const auto& attention = pass.only<graph::DecodeAttention>("attention");
  CHECK(attention.rows == 4);
  CHECK(attention.tokens == 2 * 502);
  CHECK(attention.group == 2 * 4);
  CHECK(pass.only<graph::Gemm>("qkv projection").m == 8);
  CHECK(pass.only<graph::Gemm>("head", -1).m == 8);
  // The host reads both sequences, 4 bytes a token.
  CHECK(pass.only<graph::CpuWork>("find n-grams", -1).items == 2);
  CHECK(pass.only<graph::CpuWork>("find n-grams", -1).bytes_per_item == 4 * 251);

  Speculation each = s;
  each.packed = false;
  const Drafted apart = lower_drafted(*full, each, counts);
  CHECK(apart.only<graph::DecodeAttention>("attention").rows == 16);
  CHECK(apart.only<graph::DecodeAttention>("attention").tokens == 4 * 2 * 502);
  CHECK(apart.only<graph::DecodeAttention>("attention").group == 2);
}

TEST_CASE("each query selects for itself from one read of the index") {
  const auto quest = make("quest", "budget: 40, page: 4", {100, 20});
  Speculation s = drafting(Speculation::Kind::kNgram, {});
  const std::vector<HeadCounts> counts = both_heads({.attended = 40, .scored = 26}, {.attended = 40, .scored = 101});
  const Drafted pass = lower_drafted(*quest, s, counts);
  const auto& attention = pass.only<graph::DecodeAttention>("attention");
  CHECK(attention.rows == 16);
  CHECK(attention.tokens == 16 * 40);
  CHECK(attention.group == 2);
  CHECK(pass.only<graph::TopK>("top-k").rows == 16);
  // 127 pages of 2 heads, [min | max] of 16 numbers of 2 bytes: once if packed, otherwise for each query.
  CHECK(pass.only<graph::Kernel>("estimate").read_bytes == 2 * 127 * 64);
  s.packed = false;
  CHECK(lower_drafted(*quest, s, counts).only<graph::Kernel>("estimate").read_bytes == 4 * 2 * 127 * 64);
  // Eviction after the prompt leaves one cache, which all queries read.
  const auto snapkv = make("snapkv", "budget: 60, window: 8", {100, 20});
  const Drafted kept = lower_drafted(*snapkv, s, both_heads({.attended = 61}, {.attended = 61}));
  CHECK(kept.only<graph::DecodeAttention>("attention").tokens == 4 * 4 * 61);
}

TEST_CASE("a state is read once and written after each token") {
  config::Model m = drafted_model();
  m.layers = 3;
  config::Recurrence& r = m.recurrence.emplace();
  r.heads = 4, r.key_heads = 2, r.key_dim = 8, r.value_dim = 16, r.taps = 4, r.attention_every = 3;
  const auto full = make("full", "", {100, 20});
  const Drafted pass = lower_drafted(*full, drafting(Speculation::Kind::kNgram, {}),
                                     both_heads({.attended = 101}, {.attended = 401}), m);
  const double state = 4 * 8 * 16 * 4, rows = 2 * 4;
  const auto& work = pass.only<graph::Kernel>("recurrence");
  CHECK(work.read_bytes == 2 * state + rows * (2 * 16 + 64) * 2);
  CHECK(work.write_bytes == 2 * 4 * state + rows * 64 * 2);
}

TEST_CASE("a draft model runs once for each token, first over all rows of the last verification") {
  const auto full = make("full", "", {100, 20});
  const std::vector<HeadCounts> counts = both_heads({.attended = 101}, {.attended = 401});
  config::Model small = drafted_model();
  small.layers = 1;
  const Drafted pass = lower_drafted(*full, drafting(Speculation::Kind::kDraft, small), counts);
  const auto drafts = pass.of("attention", -1);
  REQUIRE(drafts.size() == 3);
  for (int i = 0; i < 3; ++i) {
    const auto& work = std::get<graph::DecodeAttention>(drafts[static_cast<std::size_t>(i)]->work);
    CHECK(work.tokens == 2 * (502 + 2 * i));  // each pass sees the token of the one before
    CHECK(work.group == (i == 0 ? 8 : 2));
  }
  const auto heads = pass.of("head", -1);
  REQUIRE(heads.size() == 4);  // three drafts, and the model's over all rows
  for (int i = 0; i < 3; ++i) CHECK(std::get<graph::Gemm>(heads[static_cast<std::size_t>(i)]->work).m == 2);
  CHECK(std::get<graph::Gemm>(heads[3]->work).m == 8);
  CHECK(pass.of("token to host", -1).size() == 1);
}

TEST_CASE("a layer for next tokens is served by the policy, a layer of EAGLE attends to everything") {
  const auto quest = make("quest", "budget: 40, page: 4", {100, 20});
  const std::vector<HeadCounts> counts = both_heads({.attended = 40, .scored = 26}, {.attended = 40, .scored = 101});
  const Drafted mtp = lower_drafted(*quest, drafting(Speculation::Kind::kMtp, drafted_model()), counts);
  CHECK(mtp.of("estimate", -1).size() == 3);
  const auto inputs = mtp.of("features and embedding", -1);
  REQUIRE(inputs.size() == 3);
  CHECK(std::get<graph::Gemm>(inputs[0]->work).m == 8);
  CHECK(std::get<graph::Gemm>(inputs[2]->work).m == 2);
  CHECK(std::get<graph::Gemm>(inputs[0]->work).k == 2 * 64);
  const Drafted eagle = lower_drafted(*quest, drafting(Speculation::Kind::kEagle, drafted_model()), counts);
  CHECK(eagle.of("estimate", -1).empty());
  CHECK(eagle.of("features", -1).size() == 1);
  REQUIRE(eagle.of("attention", -1).size() == 3);
  CHECK(std::get<graph::DecodeAttention>(eagle.of("attention", -1)[1]->work).tokens == 2 * 504);
}

TEST_CASE("a prompt is read by the draft too") {
  const auto full = make("full", "", {100, 20});
  const Speculation s = drafting(Speculation::Kind::kEagle, drafted_model());
  const config::Framework framework;
  const PassSetting setting{
      .framework = &framework, .policy = full.get(), .rank = drafted_model(), .speculation = &s, .draft = *s.draft};
  const std::vector<PassSequence> one = {{0, 100, {100, 20}}};
  const PassSequences pass = pass_of(one, *full, setting.rank);
  Drafted out;
  Events events;
  LoweredBlock block(framework, 0, -1, events, out.ops);
  PromptMemory none;
  add_pass(block, setting, pass, none, -1);
  const auto attention = out.of("prefill attention", -1);
  REQUIRE(attention.size() == 1);
  CHECK(std::get<graph::PrefillAttention>(attention[0]->work).flops == 4.0 * 4 * 16 * 100 * 101 / 2);
  CHECK(out.of("head", -1).size() == 1);  // nothing is drafted before the first token
}

TEST_CASE("memory has the draft's weights and cache, and a state for each row") {
  config::Run run;
  run.model = drafted_model();
  run.model.layers = 3;
  config::Recurrence& r = run.model.recurrence.emplace();
  r.heads = 4, r.key_heads = 2, r.key_dim = 8, r.value_dim = 16, r.attention_every = 3;
  run.workload = {100, 8, 3, 0};
  run.speculation = drafting(Speculation::Kind::kEagle, run.model);
  const auto full = make("full", "", {100, 8});
  DecodeSetting setting;
  setting.run = &run, setting.policy = full.get(), setting.rank = run.model, setting.lengths = {100, 8};
  setting.draft = *run.speculation->draft;
  const auto bytes = [&](graph::Owner owner) {
    double sum = 0;
    for (const policy::MemoryItem& item : decode_memory(setting, 108)) sum += item.owner == owner ? item.bytes : 0;
    return sum;
  };
  const double cache = 3 * 108 * 2 * 2 * 16 * 2;  // sequences, tokens, keys and values, heads, width, bytes
  CHECK(bytes(graph::Owner::kDraft) == config::draft_weight_bytes(*run.speculation, setting.draft) + cache);
  CHECK(bytes(graph::Owner::kStates) == 3 * 4 * 2 * (4 * 8 * 16 * 4));
  CHECK(bytes(graph::Owner::kKvCache) == cache);
  run.speculation = drafting(Speculation::Kind::kMtp, run.model);
  CHECK(bytes(graph::Owner::kKvCache) == 2 * cache);  // its layer is one more under the policy
}

}  // namespace
}  // namespace kvcast::tests
