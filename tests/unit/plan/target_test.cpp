#include "plan/target.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "plan/pareto.hpp"
#include "support/error_of.hpp"
#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;

std::vector<Target> targets(const std::string& text) { return read_targets(config::parse_yaml(text, "plan.yaml")); }

TEST_CASE("targets are read with their units and compared with results") {
  const result::Result r = small_result();  // TPOT 10 ms, p99 12 ms, 200 tokens/s, TTFT 2 s, HBM 50 GB
  CHECK_FALSE(missed(r, targets("decode.tpot_s.p99: <= 12 ms")));
  CHECK(missed(r, targets("decode.tpot_s.p99: < 12 ms")) == "decode.tpot_s.p99 < 12 ms");
  CHECK_FALSE(missed(r, targets("{tps: '>= 200', ttft: <= 2 s}")));
  CHECK_FALSE(missed(r, targets("tps: '>= 200 tokens/s'")));
  CHECK(missed(r, targets("{ttft: <= 2 s, tps: '> 200'}")) == "decode.tokens_per_s > 200 tokens/s");
  CHECK(missed(r, targets("memory.hbm_peak_bytes: <= 49 GB")).has_value());
  CHECK_FALSE(missed(r, targets("recall: '>= 90 %'")));
  // Times of a queue that grows are those of the requests that were drawn. With better costs, in which up to 5.5
  // requests a second are served, 5 that arrive do not queue.
  result::Result grows = r;
  grows.service.emplace().summary.state = serving::Trend::kSaturated;
  grows.service->summary.requests_per_s = 4.5;
  CHECK_FALSE(missed(grows, targets("serving.requests_per_s: '>= 4'")));  // all at once: no rate
  grows.subject.settings.push_back({"traffic.rate", 5.0});
  std::ranges::sort(grows.subject.settings, {}, &result::Setting::key);
  CHECK(missed(grows, targets("serving.requests_per_s: '>= 4'")) == "serving.state = stable");
  CHECK(missed(grows, targets("serving.requests_per_s: '>= 4'"), Certainty::kPossible) == "serving.state = stable");
  grows.by_text.push_back({"serving.requests_per_s", {4, 5.5}});
  CHECK_FALSE(missed(grows, targets("serving.requests_per_s: '>= 4'"), Certainty::kPossible));
  CHECK(missed(grows, targets("serving.requests_per_s: '>= 4'"), Certainty::kCertain) == "serving.state = stable");
  CHECK_FALSE(missed(grows, targets("recall: '>= 90 %'")));
  // A number that the result does not have is missed.
  CHECK(missed(r, targets("accuracy.task.share_of_full: '>= 0 %'")).has_value());
  result::Result misfit = r;
  misfit.status = result::Status::kOom;
  misfit.experiment.oom.emplace().pool = "dram";
  CHECK(missed(misfit, targets("ttft: <= 20 s")) == "dram");
}

TEST_CASE("a number that a result lacks is explained, unless the result does not fit") {
  result::Result r = small_result();
  const auto cost = targets("cost: <= 1"), score = targets("score: '>= 95 %'");
  CHECK(missed(r, cost) == "no request.cost_per_million_output_tokens: no price is stated: set `price_per_hour`");
  CHECK(error_of([&] { require_numbers(r, cost, "quest"); }) ==
        "plan.yaml:1:7: request.cost_per_million_output_tokens: quest has none: no price is stated: set "
        "`price_per_hour`");
  CHECK_THAT(error_of([&] { require_numbers(r, score, "quest"); }), Contains("the run says `score: none`"));
  // A score that cannot be predicted is missed, with the reason.
  r.benchmark_refused = "no such heads";
  CHECK(missed(r, score) == "no predicted score: no such heads");
  CHECK(error_of([&] { require_numbers(r, score, "quest"); }) == "no error");
  CHECK(why_missing(r, *score[0].metric) == "no such heads");
  CHECK_FALSE(why_missing(r, *result::find_metric("ttft")));
  r.status = result::Status::kOom;
  CHECK_FALSE(why_missing(r, *score[0].metric));
}

TEST_CASE("the ends of intervals are compared with targets on request") {
  const result::Result r = small_result();
  // The interval of step times is exp(hypot(ln 1.1, ln 1.05)) = 1.113 above and exp(-hypot(ln 0.9, ln 0.96)) = 0.893
  // below.
  const auto limit = targets("tpot: <= 10.5 ms"), tight = targets("tpot: <= 9.5 ms");
  CHECK_FALSE(missed(r, limit, Certainty::kNominal));
  CHECK(missed(r, limit, Certainty::kCertain));
  CHECK(missed(r, tight, Certainty::kNominal));
  CHECK_FALSE(missed(r, tight, Certainty::kPossible));
  CHECK(missed(r, targets("tpot: <= 8.9 ms"), Certainty::kPossible));
}

TEST_CASE("invalid targets are rejected with their location") {
  CHECK_THAT(error_of([] { targets("tpott: <= 1 s"); }), Contains("plan.yaml:1:1") && Contains("did you mean"));
  CHECK_THAT(error_of([] { targets("tpot: 1 s"); }),
             Contains("expected a relation") && Contains("known: <=, >=, <, >"));
  CHECK_THAT(error_of([] { targets("tpot: <= 1 GB"); }), Contains("is not a quantity in s, such as 50 ms"));
  CHECK_THAT(error_of([] { targets("tpot: '<= '"); }), Contains("is not a quantity in s"));
  CHECK_THAT(error_of([] { targets("score: '>= 95'"); }), Contains("95 has no unit: write 95 % or 9500 %"));
  CHECK_THAT(error_of([] { targets("tpot: <="); }), Contains("expected a relation"));
  CHECK_THAT(error_of([] { targets("tpot: == 1 s"); }), Contains("expected a relation"));
  CHECK_THAT(error_of([] { targets("[tpot]"); }), Contains("expected a map of metrics"));
}

TEST_CASE("a Pareto front contains the points that are not dominated") {
  CHECK(dominates({2, 1}, {1, 1}));
  CHECK_FALSE(dominates({1, 1}, {1, 1}));
  CHECK_FALSE(dominates({2, 0}, {1, 1}));
  // (2,2) beats (1,2); (3,0) and (0,3) are the best in one number each; both of the equal points stay.
  CHECK(pareto_front({{1, 2}, {2, 2}, {3, 0}, {0, 3}, {2, 2}}) == std::vector<std::size_t>{1, 2, 3, 4});
}

}  // namespace
}  // namespace kvcast::tests
