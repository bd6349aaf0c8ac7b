// Differences between two sets of results whose numbers can be worked out by hand: small_result() decodes 200 tokens/s
// and peaks at 50 GB; factors on its times are 1.1 and 0.9 (the link) and 1.05 and 0.96 (HBM).
#include "plan/changes.hpp"

#include <catch2/catch.hpp>

#include "support/small_result.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using result::Result;
using Strings = std::vector<std::string>;

void set(Result& r, const std::string& key, const std::string& value) {
  for (result::Setting& s : r.subject.settings) {
    if (s.key == key) s.value = result::setting_value(value);
  }
}

Result with(const std::string& policy, const std::string& budget, double tokens_per_s, const char* machine = "h200") {
  Result r = small_result();
  r.subject.policy = policy, r.subject.hardware = machine;
  set(r, "policy.name", policy), set(r, "policy.budget", budget), set(r, "hardware", machine);
  r.experiment.tokens_per_s = tokens_per_s, r.experiment.tpot_mean_s = 2 / tokens_per_s;
  return r;
}

StoreResults results(const std::string& name, std::vector<Result> list) { return {name, std::move(list), {}}; }

const Answer& answer_on(const std::vector<Answer>& answers, const std::string& metric) {
  const auto found = std::find_if(answers.begin(), answers.end(), [&](const Answer& a) {
    return a.kind == "changes" && a.data.at("metric") == metric;
  });
  REQUIRE(found != answers.end());
  return *found;
}

TEST_CASE("experiments are paired by their settings, whatever their order") {
  const StoreResults a = results("a", {with("quest", "512", 100), with("quest", "1024", 200), with("tova", "512", 50)});
  const StoreResults b =
      results("b", {with("quest", "1024", 200), with("quest", "512", 100), with("snapkv", "512", 70)});
  const MatchedResults matched = match_settings(a, b);
  REQUIRE(matched.pairs.size() == 2);
  CHECK(matched.pairs[0].before == 1);
  CHECK(matched.pairs[0].after == 0);
  CHECK(matched.pairs[0].setting == "quest, budget 1024");
  CHECK(matched.pairs[1].setting == "quest, budget 512");
  CHECK(matched.only_before == 1);
  CHECK(matched.only_after == 1);
  CHECK(matched.differences.empty());
}

TEST_CASE("a key with one value in each set distinguishes the sets, not the experiments") {
  const StoreResults a = results("a", {with("quest", "512", 100, "h100"), with("quest", "1024", 200, "h100")});
  const StoreResults b = results("b", {with("quest", "512", 100), with("quest", "1024", 200)});
  const MatchedResults matched = match_settings(a, b);
  CHECK(matched.pairs.size() == 2);
  CHECK(matched.differences == Strings{"hardware: h100 against h200"});
  // Only the equal one of two values on one side is paired, and no key differs between all pairs.
  const StoreResults c = results("c", {with("quest", "512", 100, "h100"), with("quest", "512", 100)});
  CHECK(match_settings(c, b).pairs.size() == 1);
  CHECK(match_settings(c, b).differences.empty());
}

TEST_CASE("parameters are compared policy by policy") {
  Result full_a = with("full", "0", 40), full_b = full_a;
  const auto without_parameters = [](Result& r) {
    std::erase_if(r.subject.settings,
                  [](const result::Setting& s) { return s.key == "policy.budget" || s.key == "policy.tau"; });
  };
  without_parameters(full_a), without_parameters(full_b);
  Result quest_a = with("quest", "512", 100), quest_b = quest_a;
  set(quest_b, "policy.tau", "0.9");
  const MatchedResults matched = match_settings(results("a", {full_a, quest_a}), results("b", {full_b, quest_b}));
  CHECK(matched.pairs.size() == 2);
  CHECK(matched.differences == Strings{"policy.tau of quest: 0.8 against 0.9"});
}

TEST_CASE("a key that exists in only one set distinguishes nothing") {
  Result newer = with("quest", "512", 100);
  newer.subject.settings.push_back({"framework.new_key", true});
  const MatchedResults matched = match_settings(results("a", {with("quest", "512", 100)}), results("b", {newer}));
  CHECK(matched.pairs.size() == 1);
  CHECK(matched.differences.empty());
}

TEST_CASE("settings that several experiments share have no partner") {
  const StoreResults a = results("a", {with("quest", "512", 100), with("quest", "512", 110)});
  const MatchedResults matched = match_settings(a, results("b", {with("quest", "512", 100)}));
  CHECK(matched.pairs.empty());
  CHECK(matched.only_before == 2);
}

TEST_CASE("each of several machines is paired with the one whose numbers are changed") {
  const auto altered = [](const char* machine, double rate) {
    Result r = with("quest", "512", rate, machine);
    r.subject.settings.push_back({"hardware.gpu.hbm_bandwidth", rate});
    return r;
  };
  const StoreResults a = results("a", {with("quest", "512", 100, "a100"), with("quest", "512", 200, "h100")});
  const StoreResults b = results(
      "b", {altered("a100 (gpu.hbm_bandwidth 1.9 TB/s)", 110), altered("h100 (gpu.hbm_bandwidth 4 TB/s)", 220)});
  const MatchedResults matched = match_settings(a, b);
  REQUIRE(matched.pairs.size() == 2);
  CHECK(matched.pairs[1].before == 1);
  CHECK(matched.pairs[1].setting == "quest, on h100");
  CHECK(matched.differences == Strings{"hardware: a100 against a100 (gpu.hbm_bandwidth 1.9 TB/s)",
                                       "hardware: h100 against h100 (gpu.hbm_bandwidth 4 TB/s)"});
  CHECK(changes(a, b)[0].text.starts_with(
      "2 pairs of experiments have equal settings apart from those given below; 0 of"));
  // Two altered versions of one machine are not its counterpart.
  const StoreResults c = results(
      "c", {altered("a100 (gpu.hbm_bandwidth 1.9 TB/s)", 110), altered("a100 (gpu.hbm_bandwidth 3 TB/s)", 120)});
  CHECK(match_settings(a, c).pairs.empty());
  CHECK_THAT(changes(a, c)[0].text,
             Catch::Contains("No value is common to both for hardware: a100, h100 against a100 (gpu.hbm_bandwidth 1.9 "
                             "TB/s), a100 (gpu.hbm_bandwidth 3 TB/s)."));
}

TEST_CASE("changes of shares are stated in points, changes of a few per cent in per cent") {
  StoreResults a = results("a", {with("quest", "512", 1000)}), b = results("b", {with("quest", "512", 1002)});
  for (StoreResults* r : {&a, &b}) r->results[0].accuracy.task.emplace().interval = {0, 1};
  a.results[0].accuracy.task->share_of_full = 0.19, b.results[0].accuracy.task->share_of_full = 0.936;
  const std::vector<Answer> answers = changes(a, b);
  CHECK_THAT(answer_on(answers, "decode.tokens_per_s").text, Catch::Contains("1002 tokens/s after, +0.2 %"));
  const Answer& score = answer_on(answers, result::find_metric("predicted")->path);
  CHECK_THAT(score.text, Catch::Contains("19 % before, 93.6 % after, +74.60 points"));
  CHECK(score.data.at("changes").at(0).at("interval")[1].get<double>() < 1000);
}

TEST_CASE("a change counts if it exceeds the uncertainty of the costs") {
  // Twice the throughput; equal; half; and one with its own effect of the link: 1.05 times within 1 / 1.1 to 1 / 0.9.
  const StoreResults a = results("a", {with("quest", "256", 100), with("quest", "512", 100), with("quest", "1024", 100),
                                       with("quest", "2048", 100)});
  StoreResults b = results("b", {with("quest", "256", 200), with("quest", "512", 100), with("quest", "1024", 50),
                                 with("quest", "2048", 105)});
  b.results[3].experiment.effects.pop_back();
  const std::vector<Answer> answers = changes(a, b);
  const Answer& answer = answer_on(answers, "decode.tokens_per_s");
  CHECK(answer.question == "Decode throughput: what changed from a to b?");
  CHECK(
      answer.text.starts_with("Of 4 pairs, 1 improved and 1 got worse by more than their uncertainty, 1 changed by "
                              "less, and 1 stayed the same. "));
  const auto& rows = answer.data.at("changes");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].at("setting") == "quest, budget 256");
  CHECK(rows[0].at("before") == 100);
  CHECK(rows[0].at("after") == 200);
  CHECK(rows[0].at("times") == 2);
  CHECK(rows[0].at("beyond") == true);
  CHECK(rows[0].at("better") == true);
  CHECK(rows[1].at("times") == 0.5);
  CHECK(rows[1].at("better") == false);
  CHECK(rows[2].at("beyond") == false);
  // Throughput of b over a: the link makes a alone 1.1 times as slow, b over a that much larger.
  CHECK(rows[2].at("interval")[0].get<double>() == Approx(1.05 * 0.9));
  CHECK(rows[2].at("interval")[1].get<double>() == Approx(1.05 * 1.1));
  // Nothing else changed, as the first answer states.
  CHECK(answers.size() == 2);
  CHECK(answers[0].kind == "compared");
  CHECK(std::find(answers[0].details.begin(), answers[0].details.end(), "  HBM peak (4 pairs)") !=
        answers[0].details.end());
}

TEST_CASE("a time is stated as a time, and less is better") {
  StoreResults a = results("a", {with("quest", "512", 100)}), b = a;
  b.name = "b";
  b.results[0].experiment.ttft_s = 1;  // 2 before; 1.02 and 0.98 in both, which cancels
  const std::vector<Answer> answers = changes(a, b);
  const auto row = answer_on(answers, "prefill.ttft_s").data.at("changes").at(0);
  CHECK(row.at("times") == 0.5);
  CHECK(row.at("interval")[0].get<double>() == Approx(0.5));
  CHECK(row.at("better") == true);
}

TEST_CASE("the summary names other statuses and changed numbers of machines") {
  StoreResults a = results("a", {with("quest", "512", 100), with("quest", "1024", 100)}), b = a;
  b.name = "b";
  b.results[1].status = result::Status::kOom;
  a.machines["h200"] = {{"gpu.hbm_bandwidth", 4.8e12, "bytes/s", Origin::kDatasheet, 0.05, "sheet"},
                        {"gpu.sms", 132, "", Origin::kDatasheet, 0, "sheet"}};
  b.machines = a.machines;
  b.machines["h200"][0].value = 4e12;
  const std::vector<Answer> answers = changes(a, b);
  CHECK(answers[0].text ==
        "2 pairs of experiments have equal settings; 0 of a and 0 of b have no partner. The status of 1 pair changed. "
        "No number changed by 0.1 % or more.");
  CHECK(answers[0].details[1] == "  quest, budget 1024: ok before, oom after");
  CHECK(answers[0].details[3] == "  h200: gpu.hbm_bandwidth 4.8e+12, 4e+12 bytes/s");
}

}  // namespace
}  // namespace kvcast::tests
