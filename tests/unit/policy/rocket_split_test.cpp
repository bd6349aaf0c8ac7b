// RocketKV's split of a compression ratio: the paper's own numbers, and its traffic and storage formulas.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/hsa.hpp"
#include "policies/rocketkv.hpp"
#include "policy/costs.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

HsaSetting second(const RocketSplit& split) {
  HsaSetting setting;
  setting.ratio = split.second_ratio;
  return setting;
}

TEST_CASE("a ratio of 64 splits into 10.3 and 6.2, with pages of 3") {
  // Section 3.6 of arXiv 2502.14051: r = 0.2 + 0.06·6 = 0.56, 64^0.56 = 10.3, 64^0.44 = 6.2 = 3 × 2.1.
  const RocketSplit split = split_rocket(65536, 1024, 0, -1);
  CHECK(split.ratio == 64);
  CHECK(split.factor == Approx(0.56));
  CHECK(65536.0 / static_cast<double>(split.length) == Approx(10.3).epsilon(0.005));
  CHECK(split.second_ratio == Approx(6.2).epsilon(0.006));
  CHECK(second(split).page() == 3);
  CHECK(split.second_ratio / 3 == Approx(2.1).epsilon(0.02));
}

TEST_CASE("splits for a head dimension of 128 equal those worked out by hand") {
  struct Row {
    std::int64_t bound, budget;
    double r;
    std::int64_t n;
    int page, dims;
  };
  // 2^17 / 2^10: c = 2^7, r = 0.62, c^r = 2^4.34 = 20.25, N = ⌊6472.5⌋; c2 = 6.32, p = 3, k1 = ⌊128·3 / 6.32⌋ = ⌊60.8⌋.
  // 2^17 / 2^8: c = 2^9, r = 0.74, c^r = 2^6.66 = 101.1, N = ⌊1296.1⌋; c2 = 5.06, p = 3, k1 = ⌊75.9⌋.
  // 2^15 / 2^10: c = 2^5, r = 0.5, c^r = 2^2.5 = 5.657, N = ⌊5792.6⌋; c2 = 5.66, p = 3, k1 = ⌊67.9⌋.
  for (const Row& row :
       {Row{131072, 1024, 0.62, 6472, 3, 60}, {131072, 256, 0.74, 1296, 3, 75}, {32768, 1024, 0.5, 5792, 3, 67}}) {
    CAPTURE(row.bound, row.budget);
    const RocketSplit split = split_rocket(row.bound, row.budget, 0, -1);
    CHECK(split.factor == Approx(row.r));
    CHECK(split.length == row.n);
    CHECK(second(split).page() == row.page);
    CHECK(second(split).dims(128) == row.dims);
  }
}

TEST_CASE("the split is limited at both ends") {
  // c = 2^12: 0.2 + 0.72 is cut to 0.8. A budget that covers everything: no compression.
  CHECK(split_rocket(1 << 20, 256, 0, -1).factor == Approx(0.8));
  CHECK(split_rocket(1000, 4000, 0, -1).length == 1000);
  CHECK(split_rocket(1000, 4000, 0, -1).second_ratio == 1);
  // r = 0: all of it in the second stage; r = 1: all in the first, and the second reads everything.
  CHECK(split_rocket(65536, 1024, 0, 0).length == 65536);
  CHECK(split_rocket(65536, 1024, 0, 1).length == 1024);
  // Generated tokens need room: N is at least twice their number, and the prompt keeps fewer tokens by their number.
  const RocketSplit planned = split_rocket(131072, 256, 1000, -1);
  CHECK(planned.length == 2000);
  CHECK(planned.prompt_budget == 1000);
}

TEST_CASE("page length is the square root of the ratio, and at most the ratio") {
  const auto page = [](double ratio) {
    HsaSetting s;
    s.ratio = ratio;
    return s.page();
  };
  CHECK(page(1) == 1);
  CHECK(page(1.9) == 1);  // ⌈1.38⌉ = 2 > 1.9
  CHECK(page(2) == 2);
  CHECK(page(4) == 2);
  CHECK(page(4.1) == 3);
  HsaSetting rounded;
  rounded.ratio = 6.32;  // 128·3 / 6.32 = 60.76
  rounded.nearest_dims = true;
  CHECK(rounded.dims(128) == 61);
  CHECK(rounded.dims(1) == 1);
}

// Bytes that estimation and attention read in one layer of one sequence with one KV head of dimension 128.
struct Read {
  double bytes = 0, share = 0;  // share of full attention over S_max tokens
};

Read traffic(std::int64_t prompt, std::int64_t steps, std::int64_t budget, const RocketSplit& split) {
  config::Model model;
  model.layers = 1, model.n_q_heads = 1, model.n_kv_heads = 1, model.head_dim = 128;
  const auto policy = make("rocketkv", fmt::format("budget: {}, max_new_tokens: 0", budget), {prompt, steps});
  const std::int64_t page = second(split).page();
  const std::vector<HeadCounts> heads = {{.attended = budget / 2, .scored = (split.length + page - 1) / page}};
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 1, {prompt + steps, {prompt, steps}}, heads, false), ops);
  const auto& estimate = std::get<graph::Kernel>(only(ops.ops(), "estimate").work);
  const double bytes = estimate.read_bytes + ops.traffic().kv_read;
  return {bytes, bytes / (static_cast<double>(prompt + steps) * 512)};
}

TEST_CASE("traffic is 1/c of full attention, up to three roundings") {
  // Without rounding, estimation reads N/p pages × d·p/c2 elements = t·d, and attention t/2 tokens × 2·d = t·d.
  // ⌈N/p⌉ < N/p + 1 adds less than a page, d·p/c2 ≤ t·p·d/N elements: a share below p/N of t·d.
  // ⌊d·p/c2⌋ > d·p/c2 − 1 takes less than N/p elements: a share below N/(p·t·d) = c2/(p·d).
  // ⌊t/2⌋ ≥ (t − 1)/2 takes at most d elements: 1/t.
  for (const std::int64_t bound : {16384, 32768, 100000, 131072}) {
    for (const std::int64_t budget : {256, 511, 1024, 4096}) {
      CAPTURE(bound, budget);
      const RocketSplit split = split_rocket(bound, budget, 0, -1);
      const double c = split.ratio, p = second(split).page();
      const double low = 1 - (split.second_ratio / (p * 128) + 1.0 / static_cast<double>(budget)) / 2;
      const double high = 1 + p / static_cast<double>(split.length) / 2;
      const double got = traffic(bound - 100, 100, budget, split).share * c;
      CHECK(got >= low - 1e-12);
      CHECK(got <= high + 1e-12);
      CHECK(got > 0.97);  // the bounds are tight
      CHECK(got < 1.001);
    }
  }
}

TEST_CASE("storage is 1/c^r + 1/c^((1+r)/2) of full, up to the rounding of N and p") {
  config::Model model;
  model.layers = 1, model.n_q_heads = 1, model.n_kv_heads = 1, model.head_dim = 128;
  const Lengths lengths{131072, 0};
  const auto policy = make("rocketkv", "budget: 1024, max_new_tokens: 0", lengths);
  double kv = 0, summaries = 0;
  for (const MemoryItem& item : policy->memory({&model, 1, lengths.bound(), lengths, 0})) {
    (graph::owner_name(item.owner) == "KV cache" ? kv : summaries) += item.bytes;
  }
  // c = 128, r = 0.62: N = 6472 of 6472.5, p = 3 for √6.32 = 2.51: 2158 pages instead of 2574.
  CHECK(kv == 6472.0 * 512);
  CHECK(summaries == 2158.0 * 512);
  const double full = 131072.0 * 512, c = 128, r = 0.62;
  CHECK(kv / full == Approx(std::pow(c, -r)).epsilon(1.0 / 6472));
  CHECK(
      summaries / full ==
      Approx(std::pow(c, -(1 + r) / 2) * std::sqrt(split_rocket(131072, 1024, 0, -1).second_ratio) / 3).epsilon(1e-3));
}

}  // namespace
}  // namespace kvcast::tests
