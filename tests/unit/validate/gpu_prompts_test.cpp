// Prompts in blocks compared with predictions. Rows are made by hand; runs come from a formula or are small ones.
#include "validate/gpu_prompts.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <random>

#include "made_up.hpp"
#include "study/study.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "validate/times.hpp"

namespace kvcast::tests {

using namespace validate;
using nlohmann::json;

namespace {

json prompt(const char* attention, const char* policy, int context, int block, const json& all_s) {
  json row = {{"attention", attention}, {"policy", policy}, {"batch", 1},
              {"context", context},     {"block", block},   {"budget", std::string(policy) == "full" ? 0 : 256},
              {"all_s", all_s}};
  if (all_s.is_null()) return row;
  row["blocks_s"] = json::array();
  const int blocks = block == 0 ? 1 : (context + block - 1) / block;
  for (int i = 0; i < blocks; ++i) row["blocks_s"].push_back(0.001 * (1 + i));
  return row;
}

json prompts_document(const json& prompts, int layers = 2) {
  return {{"transformers", "5.17.0"},
          {"device", "made by hand"},
          {"model", "llama-3.2-3b"},
          {"layers", layers},
          {"prompts", prompts}};
}

struct File {
  TemporaryDirectory folder;
  std::string path = folder.path() + "/prompts.json";
  explicit File(const std::string& text) { std::ofstream(path) << text; }
  explicit File(const json& text) : File(text.dump()) {}
};

// A prompt of n tokens takes n µs, and each of its blocks a millisecond; TOVA twice as long.
std::vector<result::Result> by_formula(std::vector<study::Point> points) {
  std::vector<result::Result> results;
  for (const study::Point& point : points) {
    const auto number = [&](const char* key) {
      const config::Node* node = config::find_below(point.config, key);
      return node == nullptr ? 0.0 : std::stod(node->text());
    };
    const bool full = config::is_scalar(config::find_below(point.config, "policy"));
    const double tokens = number("workload.prompt_tokens");
    const double block = number(full ? "workload.prefill_chunk" : "policy.block");
    const bool tova = !full && config::find_below(point.config, "policy.name")->text() == "tova";
    results.push_back(made_up(0.5, (1e-6 * tokens + 1e-3 * (block > 0 ? tokens / block : 1)) * (tova ? 2 : 1), 100));
  }
  return results;
}

std::map<std::string, Case> judged_prompts(const json& prompts) {
  const File file(prompts_document(prompts));
  std::map<std::string, Case> by_id;
  for (const Case& c : gpu_prompts({file.path, "h100-sxm"}, by_formula).cases) by_id[c.id] = c;
  return by_id;
}

}  // namespace

TEST_CASE("a prompt, its first and its last blocks are compared") {
  const auto cases = judged_prompts(json::array({prompt("flash", "full", 4096, 512, {0.011, 0.013, 0.030})}));
  CHECK(cases.size() == 3);
  const Case& whole = cases.at("flash_full_1_4096_512_0");
  CHECK(*whole.expected == Approx(13));          // the median
  CHECK(*whole.predicted == Approx(4.096 + 8));  // ms
  const Case& first = cases.at("flash_full_1_4096_512_0 first");
  CHECK(*first.expected == Approx(1.5));  // blocks of 1 and 2 ms
  CHECK(*first.predicted == Approx(0.512 + 1));
  const Case& last = cases.at("flash_full_1_4096_512_0 last");
  CHECK(*last.expected == Approx(7.5));  // 7 and 8 ms
  CHECK(*last.predicted == Approx(0.512 + 1));
}

TEST_CASE("each of the project's prompts is a time of its framework or of a policy in one") {
  int timed = 0;
  for (const Paper& paper : prompt_times()) {
    CHECK(paper.runs.size() == paper.claims.size());
    for (const Claim& claim : paper.claims) {
      const bool evicts = claim.base.group.ends_with("keydiff") || claim.base.group.ends_with("tova");
      CHECK(claim.times == (evicts ? kPoliciesInEagerFrameworks : kEagerPrompts));
      CHECK(claim.base.unit == "ms");
      timed += claim.base.expected.has_value() ? 1 : 0;
    }
  }
  CHECK(timed == 43);  // those of h100-kvcast
}

TEST_CASE("attention that is planned for each length is compared in the first reading") {
  const auto cases = judged_prompts(json::array({prompt("sdpa", "full", 4096, 0, {0.030, 0.011, 0.013})}));
  CHECK(cases.size() == 1);  // no blocks
  CHECK(*cases.begin()->second.expected == Approx(30));
}

TEST_CASE("attention that an earlier prompt planned is not planned again") {
  const File file(
      prompts_document({prompt("sdpa", "full", 4096, 512, nullptr), prompt("sdpa", "full", 2048, 512, nullptr),
                        prompt("sdpa", "full", 8192, 512, nullptr), prompt("sdpa", "full", 2048, 128, nullptr),
                        prompt("flash", "full", 2048, 512, nullptr), prompt("sdpa", "full", 2048, 0, nullptr),
                        prompt("sdpa", "keydiff", 16384, 512, nullptr)}));
  std::vector<bool> planned;
  for (const MeasuredPrompt& p : read_prompts(file.path).prompts) planned.push_back(p.planned);
  // KeyDiff's blocks see 256 + 512 tokens at most.
  CHECK(planned == std::vector<bool>{false, true, false, false, false, false, true});
  std::map<std::string, double> plan;
  gpu_prompts({file.path, "h100-sxm"}, [&](std::vector<study::Point> points) {
    for (const study::Point& point : points) {
      const config::Node* stated = config::find_below(point.config, "framework.attention_plan");
      plan[config::find_below(point.config, "workload.prompt_tokens")->text() + " " +
           config::find_below(point.config, "framework.name")->text()] += stated != nullptr ? 1 : 0;
    }
    return by_formula(points);
  });
  CHECK(plan["16384 transformers-5.17-sdpa"] == 1);
  CHECK(plan["4096 transformers-5.17-sdpa"] == 0);
}

TEST_CASE("blocks are compared with longer ones, and KeyDiff with TOVA in the same blocks") {
  const auto cases = judged_prompts({prompt("flash", "keydiff", 1024, 512, json::array({0.004})),
                                     prompt("flash", "keydiff", 1024, 128, json::array({0.010})),
                                     prompt("flash", "keydiff", 1024, 0, json::array({0.004})),
                                     prompt("eager", "tova", 1024, 128, json::array({0.040})),
                                     prompt("flash", "keydiff", 2048, 128, nullptr)});
  CHECK(cases.size() == 5 + 1 + 1);
  const Case& ratio = cases.at("flash_keydiff_1_1024_128_256 ratio");
  CHECK(*ratio.expected == Approx(2.5));
  CHECK(*ratio.predicted == Approx((1.024 + 8) / (1.024 + 2)));
  const Case& saved = cases.at("flash_keydiff_1_1024_128_256 saved");
  CHECK(*saved.expected == Approx(75));
  CHECK(*saved.predicted == Approx(50));
  const Case& planned = cases.at("flash_keydiff_1_2048_128_256");
  CHECK(planned.verdict == Verdict::kUnmeasured);
  CHECK(*planned.predicted == Approx(2.048 + 16));
}

TEST_CASE("predictions are written without what was measured") {
  const File file(prompts_document(json::array({prompt("flash", "keydiff", 1024, 512, json::array({0.004}))})));
  const Suite suite = gpu_prompts({file.path, "h100-sxm"}, by_formula);
  CHECK(predictions_text(suite, "h100-sxm") ==
        "profile,id,unit,predicted,low,high\nh100-sxm,flash_keydiff_1_1024_512_256,ms,3.024,3.024,3.024\n");
  CHECK(error_of([&] { predictions_text(suite, ""); }).find("--profile") != std::string::npos);
}

TEST_CASE("every kind of row is a run that can be simulated, and eviction shortens long prompts") {
  json prompts;
  for (const char* attention : {"flash", "sdpa", "eager"}) {
    for (const char* policy : {"full", "keydiff"}) prompts.push_back(prompt(attention, policy, 1024, 128, nullptr));
  }
  prompts.push_back(prompt("eager", "tova", 1024, 128, nullptr));
  prompts.push_back(prompt("flash", "full", 1024, 0, nullptr));
  const File file(prompts_document(prompts));
  const Suite suite = gpu_prompts(
      {file.path, "h100-sxm"}, [](std::vector<study::Point> points) { return study::run_all(std::move(points), {}); });
  std::map<std::string, double> ms;
  for (const Case& c : suite.cases) {
    INFO(c.id << ": " << c.note);
    REQUIRE(c.predicted);
    ms[c.id] = *c.predicted;
  }
  // The host decides: eight passes take about eight times as long as one, and planning 33 ms for each new length.
  CHECK(ms["flash_full_1_1024_128_0"] > 5 * ms["flash_full_1_1024_0_0"]);
  CHECK(ms["sdpa_full_1_1024_128_0"] - ms["flash_full_1_1024_128_0"] > 7 * 33);
  CHECK(ms["flash_keydiff_1_1024_128_256"] > ms["flash_full_1_1024_128_0"]);
}

TEST_CASE("what is not a prompt in blocks is refused with the file and the prompt") {
  const json good = prompt("flash", "full", 4096, 512, json::array({0.011}));
  const auto refused = [&](const char* key, const json& value) {
    json bad = good;
    bad[key] = value;
    const File file(prompts_document({good, bad}));
    const std::string error = error_of([&] { read_prompts(file.path); });
    CHECK(error.find(file.path) != std::string::npos);
    return error;
  };
  CHECK(refused("attention", "sdpb").find("prompt 1: unknown attention \"sdpb\"") != std::string::npos);
  CHECK(refused("policy", 3).find("prompt 1: policy is no text") != std::string::npos);
  CHECK(refused("block", 1.5).find("block is 1.5, not a whole number") != std::string::npos);
  CHECK(refused("context", 0).find("context is 0") != std::string::npos);
  CHECK(refused("all_s", {0.1, -1}).find("all_s has -1") != std::string::npos);
  CHECK(refused("blocks_s", json::array({0.1})).find("blocks_s has 1 times, the prompt 8 blocks") != std::string::npos);
  CHECK(refused("batch", 1).find("prompt 1: measured twice") != std::string::npos);
  json other = prompts_document(json::array({good}));
  other["transformers"] = "latest";
  const File file(other);
  CHECK(error_of([&] { read_prompts(file.path); }).find("\"latest\", not a version") != std::string::npos);
}

TEST_CASE("mutated prompts are either read or rejected") {
  const std::string whole = prompts_document({prompt("flash", "full", 4096, 512, json::array({0.011})),
                                              prompt("eager", "tova", 512, 0, json::array({1}))})
                                .dump();
  std::mt19937 random(11);
  for (int i = 0; i < 600; ++i) {
    std::string text = whole;
    for (int edits = 0; edits < 2; ++edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(at, 1 + random() % 4);
      } else {
        text[at] = "{}[]:,0-9e\"\n\xff"[random() % 13];
      }
    }
    const File file(text);
    try {
      read_prompts(file.path);
    } catch (const UserError&) {
    }
  }
}

}  // namespace kvcast::tests
