#include "trace/statistics.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

// One head of two channels, three prompt tokens and two steps, written by hand.
struct ByHand {
  ByHand() {
    info.model = "hand";
    info.layers = {0};
    info.n_layers = info.n_q_heads = info.n_kv_heads = 1;
    info.head_dim = 2;
    info.prompt_tokens = 3;
    info.decode_steps = 2;
    info.query_positions = {3, 4};
  }
  Layer layer() const {
    Layer made(info, 0);
    const float keys[] = {3, 0, 1, 0, 1, 0, 0, 1, 0, 0};
    const float queries[] = {std::log(2.0f) * std::sqrt(2.0f), 0, 0, std::log(3.0f) * std::sqrt(2.0f)};
    std::copy(std::begin(keys), std::end(keys), made.mutable_keys(0));
    std::copy(std::begin(keys), std::end(keys), made.mutable_values(0));
    std::copy(std::begin(queries), std::end(queries), made.mutable_queries(0));
    return made;
  }
  TraceInfo info;
};

}  // namespace

TEST_CASE("head statistics equal those worked out by hand") {
  const ByHand hand;
  const Layer layer = hand.layer();
  const HeadStatistics h = head_statistics(layer, {{1}, {}}, 1).front();
  // Step 0: logits log 2 · (3, 1, 1, 0): weights 8, 2, 2, 1 of 13. Step 1: logits log 3 · (0, 0, 0, 1, 0): 1, 1, 1, 3,
  // 1 of 7.
  CHECK(h.sink_mass == Approx((8.0 / 13 + 1.0 / 7) / 2).epsilon(1e-5));
  CHECK(h.own_mass == Approx((1.0 / 13 + 1.0 / 7) / 2).epsilon(1e-5));
  CHECK(h.recent_mass == Approx(1).epsilon(1e-5));         // 64 tokens are all of them
  CHECK(h.target_mass == Approx(2.0 / 13).epsilon(1e-5));  // step 0 alone has a target
  const auto term = [](double p) { return -p * std::log(p); };
  const double first = std::exp(term(8.0 / 13) + 2 * term(2.0 / 13) + term(1.0 / 13));
  const double second = std::exp(4 * term(1.0 / 7) + term(3.0 / 7));
  CHECK(h.effective_tokens == Approx((first + second) / 2).epsilon(1e-5));
  CHECK(h.query_cosine == Approx(0).margin(1e-6));
  CHECK(h.top_overlap == 0);  // one position each (5 / 16 is less than one): 0, then 3
}

TEST_CASE("key statistics equal those worked out by hand") {
  const ByHand hand;
  const KeyStatistics k = key_statistics(hand.layer(), 0);
  CHECK(k.norm_mean == Approx(6.0 / 5));  // 3, 1, 1, 1, 0
  CHECK(k.norm_max == 3);
  // Mean key (1, 0.2); cosines: 1/√1.04 three times, 0.2/√1.04, and 0 for the zero key.
  CHECK(k.anisotropy == Approx((3 + 0.2) / std::sqrt(1.04) / 5).epsilon(1e-6));
  // Mean (1, 0.2), mean square (9 + 1 + 1 + 1) / 5.
  CHECK(k.fast_pair_mean == Approx(std::sqrt(1.04) / std::sqrt(12.0 / 5)).epsilon(1e-6));
}

TEST_CASE("targets are read, or rejected with the step") {
  TraceInfo info = ByHand().info;
  CHECK(read_targets(info) == Targets{{}, {}});
  const auto refusal = [&](const std::string& text) -> std::string {
    info.optional["targets"] = text;
    try {
      read_targets(info);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(refusal("[[0,2],[4]]") == "accepted");
  CHECK(read_targets(info) == Targets{{0, 2}, {4}});
  TraceInfo repeated = info;
  repeated.optional["targets"] = "[[2,0,2],[4]]";
  CHECK(read_targets(repeated) == Targets{{0, 2}, {4}});
  CHECK(targets_json(read_targets(info)) == "[[0,2],[4]]");
  CHECK(refusal("[[4],[4]]").find("decode step 0 names 4, which is not a position in 0 .. 3") != std::string::npos);
  CHECK(refusal("[[0],[-1]]").find("decode step 1 names -1") != std::string::npos);
  CHECK(refusal("[[0],[1.5]]").find("names 1.5") != std::string::npos);
  CHECK(refusal("[[0],[18446744073709551615]]").find("not a position") != std::string::npos);
  CHECK(refusal("[[0],3]").find("entry 1 is not a list") != std::string::npos);
  CHECK(refusal("[[0]]").find("a list of 2 lists") != std::string::npos);
  CHECK(refusal("{").find("a list of 2 lists") != std::string::npos);
}

}  // namespace kvcast::tests
