// Findings of random tables, compared with a search of the table.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "plan/findings.hpp"
#include "unit/plan/finding_rows.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;
using result::Result;

// Random tables: a recommended row meets the floor, and no row of its machine, model and context that meets the same
// floor serves more.
TEST_CASE("no recommended row is beaten by a row that meets the same floor") {
  std::mt19937_64 random(7);
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int table = 0; table < 300; ++table) {
    std::vector<Result> rows;
    for (int i = 0; i < 3 + any(40); ++i) {
      static const char* const policies[] = {"full", "quest", "rocketkv", "exact_topk"};
      const int policy = any(4);
      const double rate = any(6) == 0 ? 0 : 1 + any(1000);
      Result r = row(std::int64_t{1000} << any(3), 1 << any(5), policies[policy], rate,
                     policy == 0   ? 1
                     : any(5) == 0 ? -1
                                   : 0.9 + 0.01 * any(11));
      if (policy == 3) r.subject.category = policy::Category::kOracle;
      r.subject.hardware = any(2) == 0 ? "card" : "other";
      rows.push_back(std::move(r));
    }
    config::ScoreChoice score;
    score.floor = 0.9 + 0.01 * any(11);
    const std::string text = findings_of(rows, score)[0].text;
    for (const char* card : {"card", "other"}) {
      std::int64_t context = 0;
      for (const Result& r : rows) {
        if (r.subject.hardware == card && r.has_times()) context = std::max(context, r.subject.prompt_tokens);
      }
      double fastest = 0;
      for (const Result& r : rows) {
        const bool there = r.subject.hardware == card && r.subject.prompt_tokens == context && r.has_times();
        const bool meets = r.benchmark && r.benchmark->share_of_full >= score.floor && r.subject.policy != "exact_topk";
        if (there && meets) fastest = std::max(fastest, r.experiment.tokens_per_s);
      }
      const bool present =
          std::any_of(rows.begin(), rows.end(), [&](const Result& r) { return r.subject.hardware == card; });
      if (!present) continue;
      const std::size_t at = text.find(std::string(card) + ": ");
      REQUIRE(at != std::string::npos);
      const std::string line = text.substr(at, text.find('\n', at) - at);
      INFO(text);
      if (fastest == 0) {
        CHECK_THAT(line, Contains("nothing"));
      } else {
        CHECK_THAT(line, Contains(fmt::format(" at {} tokens", context)) &&
                             Contains(": " + format_digits(fastest, 3) + " requests/s"));
      }
    }
  }
}

// Policies whose times and memory follow from a few random numbers, swept at batches 1, 4 and 16 and searched.
struct Synthetic {
  std::string policy;
  double prompt = 0, step = 0, per_sequence = 0;  // seconds
  std::int64_t most = 0;                          // sequences that fit

  Result at(std::int64_t batch) const {
    Result r = row(2000, batch, policy, batch <= most ? 1 : 0, 1);
    r.subject.decode_tokens = 65;
    r.experiment.ttft_s = prompt * static_cast<double>(batch), r.experiment.first_ttft_s = prompt;
    r.experiment.tpot_mean_s = step + per_sequence * static_cast<double>(batch);
    r.experiment.tokens_per_s = static_cast<double>(batch) / r.experiment.tpot_mean_s;
    return r;
  }
  double best() const {
    double most_served = 0;
    for (std::int64_t b = 1; b <= most; ++b)
      most_served = std::max(most_served, *result::value(at(b), *result::find_metric("rps")));
    return most_served;
  }
};

TEST_CASE("no headline ratio exceeds that of the two policies' best batches") {
  std::mt19937_64 random(3);
  const auto any = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random));
  };
  int ratios = 0;
  for (int table = 0; table < 100; ++table) {
    std::vector<Synthetic> policies;
    for (const char* name : {"full", "quest", "snapkv", "rocketkv"}) {
      policies.push_back(
          {name, any(0.01, 2), any(0.005, 0.02), any(1e-5, 3e-3), static_cast<std::int64_t>(any(1, 60))});
    }
    std::vector<Result> rows;
    for (const Synthetic& p : policies) {
      for (const int batch : {1, 4, 16}) {
        rows.push_back(p.at(batch));
        // Other swept values are a part of a row's setting, and not of a batch's that is searched.
        if (table % 2 == 1) rows.back().subject.swept.emplace_back("deployment.weights", "fp8");
      }
    }
    const auto synthetic_of = [&](const Result& r) -> const Synthetic& {
      return *std::ranges::find(policies, r.subject.policy, &Synthetic::policy);
    };
    const SearchBatches search = [&](const std::vector<const Result*>& settings) {
      std::vector<BatchLine> lines;
      for (const Result* r : settings) {
        BatchLine& line =
            lines.emplace_back(config::parse_yaml("{}", "t"), *result::find_metric("rps"), std::vector<Target>(), 4096);
        for (auto batch = line.next(); batch; batch = line.next()) {
          line.add(*batch, std::make_shared<const Result>(synthetic_of(*r).at(*batch)));
        }
      }
      return lines;
    };
    const auto found = findings_of(rows, {}, search);
    const auto place = nlohmann::json::parse(found[0].places).at(0);
    const std::string text = place.at("text"), number = place.at("number");
    INFO(text << " | " << found[0].detail);
    const auto most = std::ranges::max_element(policies, {}, [](const Synthetic& p) { return p.best(); });
    const std::string swept = table % 2 == 1 ? ", deployment.weights fp8" : "";
    CHECK_THAT(text, Catch::StartsWith(most->policy + swept + " at 2000 tokens"));
    if (most->policy == "full") continue;
    const double ratio = most->best() / policies[0].best();
    if (ratio < 1.01) {
      CHECK(number == "as many requests/s as full KV");
      continue;
    }
    ++ratios;
    // Rounded to three digits below 2, two below 10, one above.
    CHECK(std::stod(number) <= ratio * 1.05);
    CHECK(std::stod(number) >= ratio * 0.95);
    CHECK_THAT(found[0].detail, Contains("each at its own best batch"));
  }
  CHECK(ratios > 30);
}

}  // namespace
}  // namespace kvcast::tests
