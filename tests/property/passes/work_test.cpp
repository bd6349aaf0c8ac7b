// Work of passes that must hold under every policy, whatever it does.
#include <algorithm>

#include "graph/traffic.hpp"
#include "lower/decode.hpp"
#include "lower/prefill.hpp"
#include "passes.hpp"

namespace kvcast::tests {
namespace {

using graph::Kind;
using graph::Op;

// A run of `batch` equal requests of 100 tokens, with the policy's counts at 101 tokens.
struct EqualRun {
  EqualRun(const policy::Policy& policy, int batch) {
    run.model = tiny_model();
    run.workload = {100, 20, batch, 0};
    counts = counts_of(std::vector<PassSequence>(static_cast<std::size_t>(batch), {100, 1, {100, 20}}),
                       run.model.n_kv_heads);
    setting.run = &run, setting.policy = &policy, setting.rank = run.model, setting.lengths = {100, 20};
    setting.counted_tokens = 101;
    setting.counts = [this](int, std::int64_t) { return std::span<const policy::HeadCounts>(counts); };
  }
  config::Run run;
  std::vector<policy::HeadCounts> counts;
  lower::DecodeSetting setting;
};

// The works without those that only hold memory.
std::vector<const Op*> works_of(const std::vector<Op>& ops) {
  std::vector<const Op*> works;
  for (const Op& op : ops) {
    if (op.kind != Kind::kMarker) works.push_back(&op);
  }
  return works;
}

void check_same(const std::vector<Op>& a, const std::vector<Op>& b) {
  const std::vector<const Op*> one = works_of(a), other = works_of(b);
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CAPTURE(i, one[i]->label);
    REQUIRE(std::string(one[i]->label) == other[i]->label);
    REQUIRE(one[i]->lane == other[i]->lane);
    REQUIRE(one[i]->work == other[i]->work);
  }
}

TEST_CASE("a pass of equal sequences is a step of a batch") {
  with_small_policies([](const policy::Policy& policy) {
    for (const int batch : {1, 4}) {
      const EqualRun equal(policy, batch);
      lower::DecodeWindow window(equal.setting, 101, 1);
      std::vector<Op> step;
      REQUIRE(window.next_block(step));
      check_same(ops_of(policy, std::vector<PassSequence>(static_cast<std::size_t>(batch), {100, 1, {100, 20}})), step);
    }
  });
}

TEST_CASE("a step of unequal requests is a pass of their sequences") {
  const std::vector<PassSequence> sequences = {{109, 1, {100, 20}}, {109, 1, {100, 20}}, {409, 1, {400, 20}}};
  with_small_policies([&](const policy::Policy& policy) {
    EqualRun run(policy, 3);
    const std::vector<policy::HeadCounts> all = counts_of(sequences, run.run.model.n_kv_heads);
    const auto part = [&](std::size_t from, std::size_t end) {
      return [=, &all](int, std::int64_t) { return std::span(all).subspan(2 * from, 2 * (end - from)); };
    };
    run.setting.lengths = {400, 20}, run.setting.counts = part(2, 3), run.setting.counted_tokens = 410;
    run.setting.shorter = {{.lengths = {100, 20},
                            .sequences = 2,
                            .policy = &policy,
                            .counts = part(0, 2),
                            .counted_tokens = 110,
                            .attended_mean = 0,
                            .prompt_density = {}}};
    lower::DecodeWindow window(run.setting, 410, 1);
    std::vector<Op> step;
    REQUIRE(window.next_block(step));
    check_same(ops_of(policy, sequences), step);
  });
}

TEST_CASE("unequal prompts are read one length after the other, and leave the memory of each") {
  with_small_policies([](const policy::Policy& policy) {
    EqualRun run(policy, 5);
    run.setting.lengths = {400, 20};
    run.setting.shorter = {{.lengths = {100, 20},
                            .sequences = 2,
                            .policy = &policy,
                            .counts = {},
                            .counted_tokens = 0,
                            .attended_mean = 0,
                            .prompt_density = {}}};
    lower::Prefill prefill(run.setting);
    std::map<graph::Owner, double> held;
    std::vector<double> rows;
    for (std::vector<Op> block; prefill.next_block(block);) {
      for (const Op& op : block) {
        for (const graph::MemoryDelta& m : op.memory) held[m.owner] += m.bytes;
        if (std::string_view(op.label) == "qkv projection" && op.layer == 0)
          rows.push_back(std::get<graph::Gemm>(op.work).m);
      }
    }
    double short_rows = 0, all_rows = 0;
    for (const double r : rows) {
      all_rows += r;
      if (all_rows <= 200) short_rows = all_rows;
    }
    const config::Model model = tiny_model();
    // Those of all tokens, unless the policy leaves tokens of a prompt unread.
    const auto rows_of = [&](std::int64_t tokens) {
      return std::round(policy.prompt_blocks(model, 0, {tokens, 20}).read * static_cast<double>(tokens));
    };
    CHECK(short_rows == 2 * rows_of(100));
    CHECK(all_rows == 2 * rows_of(100) + 3 * rows_of(400));
    std::map<graph::Owner, double> storage;
    for (const policy::MemoryItem& item : policy.memory({&model, 2, 100, {100, 20}, 0}))
      storage[item.owner] += item.bytes;
    for (const policy::MemoryItem& item : policy.memory({&model, 3, 400, {400, 20}, 0})) {
      if (!item.shared) storage[item.owner] += item.bytes;
    }
    for (const auto& [owner, bytes] : storage) {
      CAPTURE(graph::owner_name(owner));
      CHECK(held[owner] == Approx(bytes).margin(1e-6));
    }
  });
}

TEST_CASE("passes of equal chunks are the prefill of a batch") {
  with_small_policies([](const policy::Policy& policy) {
    EqualRun equal(policy, 4);
    equal.run.workload.prefill_chunk = 30;
    lower::Prefill prefill(equal.setting);
    std::int64_t cached = 0;
    const std::int64_t whole = policy.prompt_blocks(tiny_model(), 0, {100, 20}).tokens;
    const std::int64_t block = whole > 0 ? whole : 100;
    for (std::vector<Op> chunk; prefill.next_block(chunk);) {
      const std::int64_t added = std::min({std::int64_t{30}, 100 - cached, block - cached % block});
      check_same(ops_of(policy, std::vector<PassSequence>(4, {cached, added, {100, 20}})), chunk);
      cached += added;
    }
    CHECK(cached == 100);
  });
}

TEST_CASE("a prompt that is read in chunks leaves the memory of one that is read at once") {
  with_small_policies([](const policy::Policy& policy) {
    const auto held_after = [&](std::int64_t chunk) {
      EqualRun equal(policy, 3);
      equal.run.workload.prefill_chunk = chunk;
      lower::Prefill prefill(equal.setting);
      std::map<graph::Owner, double> held;
      for (std::vector<Op> block; prefill.next_block(block);) {
        for (const Op& op : block) {
          for (const graph::MemoryDelta& m : op.memory) held[m.owner] += m.bytes;
        }
      }
      return held;
    };
    const auto whole = held_after(0), chunks = held_after(30);
    REQUIRE(whole.size() == chunks.size());
    for (const auto& [owner, bytes] : whole) {
      CAPTURE(graph::owner_name(owner));
      CHECK(chunks.at(owner) == Approx(bytes).margin(1e-6));
    }
  });
}

TEST_CASE("the order of sequences changes no work") {
  const std::vector<PassSequence> three = three_decodes(), turned = {three[1], three[2], three[0]};
  with_small_policies([&](const policy::Policy& policy) {
    const std::vector<Op> one = ops_of(policy, three), other = ops_of(policy, turned);
    REQUIRE(one.size() == other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      REQUIRE(std::string(one[i].label) == other[i].label);
      const graph::ByteCounts a = graph::traffic_of(one[i].work), b = graph::traffic_of(other[i].work);
      CHECK(a.hbm_read == Approx(b.hbm_read));
      CHECK(a.hbm_write == Approx(b.hbm_write));
      CHECK(a.h2d == Approx(b.h2d));
      CHECK(a.cpu_dram == Approx(b.cpu_dram));
    }
  });
}

TEST_CASE("unequal sequences cause the traffic of the sum of each alone, apart from what all share") {
  with_small_policies([](const policy::Policy& policy) {
    const auto kv_of = [&](std::span<const PassSequence> sequences) {
      double read = 0, h2d = 0;
      for (const Op& op : ops_of(policy, sequences)) {
        read += graph::traffic_of(op.work).kv_read, h2d += graph::traffic_of(op.work).h2d;
      }
      return std::pair(read, h2d);
    };
    double read = 0, h2d = 0;
    for (const PassSequence& s : three_decodes()) {
      const auto one = kv_of({&s, 1});
      read += one.first, h2d += one.second;
    }
    const auto all = kv_of(three_decodes());
    CHECK(all.first == Approx(read));
    CHECK(all.second == Approx(h2d));
  });
}

TEST_CASE("a mixed pass has the attention of both of its parts") {
  const std::vector<PassSequence> chunk = {{0, 100, {100, 20}}};
  std::vector<PassSequence> mixed = three_decodes();
  mixed.push_back(chunk[0]);
  with_small_policies([&](const policy::Policy& policy) {
    if (policy.prompt_blocks(tiny_model(), 0, {100, 20}).tokens > 0) return;
    const auto bytes_of = [&](std::span<const PassSequence> sequences) {
      double bytes = 0;
      for (const Op& op : ops_of(policy, sequences)) {
        const graph::ByteCounts t = graph::traffic_of(op.work);
        const bool of_policy = op.kind == Kind::kAttention || op.kind == Kind::kScore || op.kind == Kind::kTopK ||
                               op.kind == Kind::kIndex || op.kind == Kind::kConvert;
        if (of_policy) bytes += t.hbm_read + t.hbm_write;
      }
      return bytes;
    };
    CHECK(bytes_of(mixed) == Approx(bytes_of(three_decodes()) + bytes_of(chunk)));
  });
}

}  // namespace
}  // namespace kvcast::tests
