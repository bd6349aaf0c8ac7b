// The search for a setting's best batch, on results whose best batch is known.
#include "plan/best_batch.hpp"

#include <catch2/catch.hpp>

#include <functional>

#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using result::Result;

// A prompt takes 1 s; a step 10 ms and 1 ms a sequence. With 101 tokens a request takes batch + 1 + 0.1 * batch s.
Result with_batch(std::int64_t batch, std::int64_t fits, std::int64_t certain) {
  Result r = small_result();
  r.subject.batch = batch, r.subject.decode_tokens = 101;
  r.experiment.ttft_s = static_cast<double>(batch), r.experiment.first_ttft_s = 1;
  r.experiment.tpot_mean_s = 0.010 + 0.001 * static_cast<double>(batch);
  r.experiment.tokens_per_s = static_cast<double>(batch) / r.experiment.tpot_mean_s;
  if (batch > fits) r.status = result::Status::kOom, r.experiment.oom.emplace().pool = "hbm";
  r.borderline = batch > certain && batch <= fits;
  return r;
}

struct Found {
  std::int64_t batch = 0, bracket = 0;
  double slack = 1;
  int runs = 0;
};

Found search_for(const std::function<Result(std::int64_t)>& simulate, const std::string& targets, std::int64_t most,
                 const char* objective = "request.requests_per_s") {
  const auto limits =
      targets.empty() ? std::vector<Target>() : read_targets(config::parse_yaml(targets, "targets.yaml"));
  BatchLine line(config::parse_yaml("{}", "run.yaml"), *result::find_metric(objective), limits, most);
  Found found;
  for (auto batch = line.next(); batch; batch = line.next()) {
    REQUIRE(found.runs < 40);
    ++found.runs;
    line.add(*batch, std::make_shared<const Result>(simulate(*batch)));
  }
  if (line.best()) found.batch = line.best()->subject.batch;
  found.bracket = line.bracket(), found.slack = line.slack();
  return found;
}

TEST_CASE("the largest batch that surely fits is found exactly up to 64, in about two dozen simulations") {
  for (const std::int64_t certain : {1, 2, 3, 7, 31, 60, 63}) {
    INFO(certain);
    const Found found = search_for([&](std::int64_t b) { return with_batch(b, certain + 2, certain); }, "", 4096);
    CHECK(found.batch == certain);
    CHECK(found.bracket == certain + 1);
    CHECK(found.slack == 1);
    CHECK(found.runs <= 14);
  }
}

TEST_CASE("a batch whose fit is borderline counts only if no batch surely fits") {
  CHECK(search_for([](std::int64_t b) { return with_batch(b, 3, 0); }, "", 4096).batch == 3);
  CHECK(search_for([](std::int64_t b) { return with_batch(b, 0, 0); }, "", 4096).batch == 0);
}

TEST_CASE("beyond 64 the bracket is a sixty-fourth, which the slack states") {
  // Decoding alone: a step of 10 ms whatever the batch, so that no doubling gains too little.
  const auto simulate = [](std::int64_t b) {
    Result r = with_batch(b, 1000, 1000);
    r.experiment.ttft_s = r.experiment.first_ttft_s = 1e-9, r.experiment.tpot_mean_s = 0.010;
    return r;
  };
  const Found found = search_for(simulate, "", 4096);
  CHECK(found.batch <= 1000);
  CHECK(found.bracket > 1000);
  CHECK(found.bracket - found.batch <= found.bracket / 64);
  CHECK(found.slack == Approx(static_cast<double>(found.bracket - 1) / static_cast<double>(found.batch)));
  CHECK(search_for(simulate, "", 256).batch == 256);  // what the engine serves
}

TEST_CASE("doubling ends where it gains less than half a per cent") {
  // Requests per second are b / (1.1 b + 1): a doubling to b gains 1 / (1.1 b + 1), 0.7 % at 128 and 0.35 % at 256.
  const Found found = search_for([](std::int64_t b) { return with_batch(b, 4096, 4096); }, "", 4096);
  CHECK(found.batch == 256);
  CHECK(found.runs == 9);
}

TEST_CASE("targets bound the batch from above and from below") {
  const auto simulate = [](std::int64_t b) { return with_batch(b, 4096, 4096); };
  // 10 + b ms <= 30 ms.
  CHECK(search_for(simulate, "{decode.tpot_s.mean: <= 30 ms}", 4096).batch == 20);
  // b / (10 + b) of 1000 tokens/s >= 500 needs 10 sequences, and 1.1 b + 1 <= 14.2 s allows 12.
  CHECK(search_for(simulate, "{decode.tokens_per_s: '>= 500', request.latency_s: <= 14.2 s}", 4096).batch == 12);
  CHECK(search_for(simulate, "{decode.tokens_per_s: '>= 600', request.latency_s: <= 14.2 s}", 4096).batch == 0);
}

}  // namespace
}  // namespace kvcast::tests
