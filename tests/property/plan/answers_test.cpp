// Answers of plans compared with exhaustive sweeps over the ranges that they searched.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "config/run.hpp"
#include "plan/compare.hpp"
#include "plan/pareto.hpp"
#include "plan/question.hpp"
#include "plan/target.hpp"
#include "property/plan/asked.hpp"
#include "result/metric.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using nlohmann::json;

// Values at which the first variant becomes better or worse, found one by one.
std::vector<int> changes(Experiments& e, const std::string& of, const std::string& against, const std::string& key,
                         int from, int to, const char* name) {
  std::vector<int> found;
  int before = 0;
  for (int x = from; x <= to; ++x) {
    const auto at = [&](const std::string& policy) {
      return e.run(run_with(fmt::format("{{policy: {}, {}: {}}}", policy, key, x)));
    };
    const Comparison c = compare(*at(of), *at(against), metric(name));
    const int state = !c.known() ? 0 : c.first_better() ? 1 : -1;
    if (before * state < 0) found.push_back(x);
    if (state != 0) before = state;
  }
  return found;
}

TEST_CASE("break-even batches are those of a sweep over every batch, in few experiments") {
  Experiments e = make_experiments();
  const std::vector<std::array<std::string, 2>> pairs = {{"{name: quest, budget: 256}", "full"},
                                                         {"{name: freekv, budget: 256, sink: 32, recent: 32}", "full"},
                                                         {"{name: hsa, budget: 256}", "full"},
                                                         {"{name: snapkv, budget: 512}", "{name: quest, budget: 128}"}};
  for (const auto& [of, against] : pairs) {
    for (const char* name : {"decode.tokens_per_s", "prefill.ttft_s"}) {
      INFO(of << " against " << against << " in " << name);
      const Asked asked = ask(e, fmt::format("break_even: {{key: workload.batch, from: 1, to: 96, metric: {}, of: "
                                             "{{policy: {}}}, against: {{policy: {}}}}}",
                                             name, of, against));
      std::vector<int> found;
      for (const json& c : asked.data["crossings"]) {
        found.push_back(c["value"].get<int>());
        CHECK(c["interval"][0].get<double>() <= c["value"].get<double>());
        CHECK(c["interval"][1].get<double>() >= c["value"].get<double>());
        CHECK(c["below"]["better"] != c["above"]["better"]);
        CHECK(c["below"]["binding_resource"].is_string());
      }
      CHECK(found == changes(e, of, against, "workload.batch", 1, 96, name));
      CHECK(found.empty() == asked.data["always"].is_string());
      CHECK(asked.runs <= 20 * std::max(1, static_cast<int>(found.size())));
    }
  }
}

// Batches from 1 to 64 that fit in 6 GB and meet the targets.
std::vector<int> batches_that_meet(Experiments& e, const std::string& policy, const std::string& targets) {
  const auto limits = read_targets(config::parse_yaml(targets, "targets.yaml"));
  std::vector<int> found;
  for (int b = 1; b <= 64; ++b) {
    const std::string more =
        fmt::format("{{policy: {}, workload.batch: {}, hardware.gpu.hbm_capacity: 6 GB}}", policy, b);
    if (!missed(*e.run(run_with(more)), limits)) found.push_back(b);
  }
  return found;
}

TEST_CASE("targets that only some batches in the middle meet are found there") {
  Experiments e = make_experiments();
  const std::string small = "{hardware.gpu.hbm_capacity: 6 GB}";
  // Throughput grows with the batch until memory is full; each limit leaves a narrower range of batches below that.
  const std::vector<int> fits = batches_that_meet(e, "full", "{hbm: <= 6 GB}");
  REQUIRE(fits.size() > 8);
  for (const std::size_t left : {1, 2, 5}) {
    const int least = fits[fits.size() - left];
    const std::string run = fmt::format("{{policy: full, workload.batch: {}, hardware.gpu.hbm_capacity: 6 GB}}", least);
    const double rate = *result::value(*e.run(run_with(run)), metric("tps"));
    const std::string targets = fmt::format("{{tps: '>= {}'}}", 0.999 * rate);
    INFO(targets);
    REQUIRE(batches_that_meet(e, "full", targets).size() == left);
    const Asked window = ask(
        e, "break_even: {key: workload.batch, from: 1, to: 64, of: {policy: full}, targets: " + targets + "}", small);
    REQUIRE(window.data["crossings"].size() == 2);
    CHECK(window.data["crossings"][0]["value"] == least);
    CHECK(window.data["crossings"][0]["above"]["better"] == "met");
    CHECK(window.data["crossings"][1]["value"] == fits.back() + 1);
    CHECK(window.data["crossings"][0]["interval"][1].get<double>() <= fits.back());
    const Asked largest =
        ask(e, "largest: {key: workload.batch, to: 64, of: {policy: full}, targets: " + targets + "}", small);
    CHECK(largest.data["value"] == fits.back());
  }
  // No batch reaches this.
  const Asked none =
      ask(e, "largest: {key: workload.batch, to: 64, of: {policy: full}, targets: {tps: '>= 1e9'}}", small);
  CHECK(none.data["value"].is_null());
}

TEST_CASE("a slower policy that still fits wins from exactly the point at which full KV stops fitting") {
  Experiments e = make_experiments();
  const std::string freekv = "{name: freekv, budget: 256, sink: 32, recent: 32}",
                    small = "hardware.gpu.hbm_capacity: 6 GB";
  const Asked asked = ask(e,
                          "break_even: {key: workload.batch, from: 1, to: 200, metric: tps, of: {policy: " + freekv +
                              "}, against: {policy: full}}",
                          "{" + small + "}");
  const auto fits = [&](int batch, const std::string& policy) {
    return e.run(run_with(fmt::format("{{policy: {}, workload.batch: {}, {}}}", policy, batch, small)))->status ==
           result::Status::kOk;
  };
  REQUIRE(asked.data["crossings"].size() == 1);
  const json& crossing = asked.data["crossings"][0];
  const int at = crossing["value"].get<int>();
  CHECK(crossing["above"]["against"]["fits"] == false);
  CHECK_FALSE(fits(at, "full"));
  CHECK(fits(at - 1, "full"));
  CHECK(fits(at, freekv));
  // The numbers at the crossing are those of its own batches.
  const auto rate = [&](int batch, const std::string& policy) {
    const ResultPtr r = e.run(run_with(fmt::format("{{policy: {}, workload.batch: {}, {}}}", policy, batch, small)));
    return result::value(*r, metric("tps")).value();
  };
  CHECK(crossing["above"]["of"]["value"].get<double>() == rate(at, freekv));
  CHECK(crossing["below"]["of"]["value"].get<double>() == rate(at - 1, freekv));
  CHECK(crossing["below"]["against"]["value"].get<double>() == rate(at - 1, "full"));
}

TEST_CASE("the bottleneck of either side is that of the better variant in the metric") {
  Experiments e = make_experiments();
  const Asked asked = ask(e,
                          "break_even: {key: workload.batch, from: 1, to: 200, metric: ttft, of: {policy: {name: "
                          "freekv, budget: 256, sink: 32, recent: 32}}, against: {policy: full}}",
                          "{hardware.gpu.hbm_capacity: 6 GB}");
  REQUIRE_FALSE(asked.data["crossings"].empty());
  for (const json& c : asked.data["crossings"]) {
    for (const char* side : {"below", "above"}) {
      const char* const better = c[side]["better"] == "full" ? "against" : "of";
      CHECK(c[side]["binding_resource"] == c[side][better]["binding_resource"]);
    }
  }
}

TEST_CASE("both variants are equally fast at a break-even bandwidth") {
  Experiments e = make_experiments();
  const std::string of = "{policy: {name: freekv, budget: 256, sink: 32, recent: 32}}";
  const Asked asked =
      ask(e, "break_even: {key: hardware.gpu.hbm_bandwidth, from: x0.01, to: x2, metric: tpot, of: " + of +
                 ", against: {policy: full}}");
  REQUIRE(asked.data["crossings"].size() == 1);
  const double value = asked.data["crossings"][0]["value"];
  const auto at = [&](const char* policy) {
    return result::value(
               *e.run(run_with(fmt::format("{{policy: {}, hardware.gpu.hbm_bandwidth: {:.9g} B/s}}", policy, value))),
               metric("tpot"))
        .value();
  };
  CHECK(at("{name: freekv, budget: 256, sink: 32, recent: 32}") == Approx(at("full")).epsilon(2e-3));
}

TEST_CASE("the largest batch and context are those of a sweep over every one") {
  Experiments e = make_experiments();
  for (const char* policy :
       {"full", "{name: quest, budget: 256}", "{name: freekv, budget: 256, sink: 32, recent: 32}"}) {
    for (const char* targets : {"{tpot_p99: <= 8 ms}", "{ttft: <= 2 s, tpot: <= 50 ms}", "{hbm: <= 6 GB}"}) {
      INFO(policy << " " << targets);
      const Asked asked = ask(
          e, fmt::format("largest: {{key: workload.batch, to: 64, of: {{policy: {}}}, targets: {}}}", policy, targets));
      const auto limits = read_targets(config::parse_yaml(targets, "targets.yaml"));
      int largest = 0;
      for (int b = 1; b <= 64; ++b) {
        if (!missed(*e.run(run_with(fmt::format("{{policy: {}, workload.batch: {}}}", policy, b))), limits))
          largest = b;
      }
      if (largest == 0) {
        CHECK(asked.data["value"].is_null());
      } else {
        CHECK(asked.data["value"] == largest);
        CHECK(asked.data["limited_by"].is_null() == (largest == 64));
      }
    }
  }
}

TEST_CASE("reasons add up to the difference") {
  Experiments e = make_experiments();
  for (const char* name : {"decode.tpot_s.mean", "prefill.ttft_s", "decode.tokens_per_s"}) {
    for (const char* against : {"full", "{name: hsa, budget: 512}"}) {
      const Asked asked = ask(e, fmt::format("why: {{metric: {}, of: {{policy: {{name: freekv, budget: 256, sink: 32, "
                                             "recent: 32}}}}, against: {{policy: {}}}}}",
                                             name, against));
      double sum = 0, of = 0;
      for (const json& part : asked.data["parts"]) {
        sum += part["seconds"].get<double>(), of += part["of"].get<double>();
        CHECK(part["seconds"].get<double>() ==
              Approx(part["of"].get<double>() - part["against"].get<double>()).margin(1e-15));
      }
      const double whole = asked.data["seconds"]["of"];
      CHECK(sum == Approx(asked.data["difference"].get<double>()).margin(1e-6 * whole));
      CHECK(of == Approx(whole).epsilon(1e-6));
      // A free resource cannot make a step longer.
      for (const json& free : asked.data["free"]) CHECK(free["of"].get<double>() > -1e-3 * whole);
    }
  }
}

TEST_CASE("elasticities equal those from separate experiments, largest first") {
  Experiments e = make_experiments();
  const Asked asked = ask(e,
                          "sensitivities: {metric: tpot, keys: [hardware.gpu.hbm_bandwidth, hardware.gpu.tensor_flops, "
                          "workload.batch, policy.budget]}");
  const auto tpot = [&](const char* key, const std::string& x) {
    return result::value(*e.run(run_with(fmt::format("{{{}: {}}}", key, x))), metric("tpot")).value();
  };
  double last = 1e9;
  for (const json& s : asked.data["sensitivities"]) {
    const double elasticity = s["elasticity"];
    CHECK(std::abs(elasticity) <= last);
    last = std::abs(elasticity);
    if (s["key"] != "hardware.gpu.hbm_bandwidth") continue;
    const double by_hand =
        std::log(tpot("hardware.gpu.hbm_bandwidth", "x1.1") / tpot("hardware.gpu.hbm_bandwidth", "x0.909090909")) /
        (2 * std::log(1.1));
    CHECK(elasticity == Approx(by_hand).epsilon(1e-4));
    CHECK(elasticity < -0.3);  // a step of a small batch reads the weights
  }
  CHECK(asked.data["sensitivities"].size() == 4);
}

TEST_CASE("a choice finds the front of the full grid with a part of its experiments") {
  Experiments e = make_experiments();
  const std::string lists =
      "hardware: [l40s, a100-40gb-pcie4], workload.batch: [1, 2, 4, 8, 16, 32, 64, 128], "
      "policy: [full, {name: quest, budget: 256}, {name: snapkv, budget: 256}, {name: hsa, budget: 256}, "
      "{name: freekv, budget: 256, sink: 32, recent: 32}]";
  for (const char* rest : {"", ", targets: {tpot: <= 8 ms}", ", price_per_hour: {l40s: 1, a100-40gb-pcie4: 1.5}"}) {
    INFO(rest);
    Experiments own = make_experiments();
    const Asked asked = ask(own, "choose: {" + lists + rest + "}");
    const auto grid = config::expand_sweep(run_with(fmt::format("{{sweep: {{cases: [{{{}}}]}}}}", lists)));
    const bool priced = std::string(rest).find("price") != std::string::npos;
    const auto targets = std::string(rest).find("targets") != std::string::npos
                             ? read_targets(config::parse_yaml("{tpot: <= 8 ms}", "t"))
                             : std::vector<Target>{};
    std::vector<Goodness> points;
    std::vector<std::string> names;
    for (const config::SweepPoint& p : grid) {
      const ResultPtr r = e.run(p.config);
      if (missed(*r, targets)) continue;
      const double rate = result::value(*r, metric("output_tps")).value();
      const double price = p.config.find("hardware")->text() == "l40s" ? 1 : 1.5;
      points.push_back({rate, -result::value(*r, metric("hbm")).value(), priced ? -price / rate : 0});
      names.push_back(label_of(p.values));
    }
    std::set<std::string> expected, found;
    for (const std::size_t i : pareto_front(points)) expected.insert(names[i]);
    for (const json& entry : asked.data["front"]) {
      std::vector<std::pair<std::string, std::string>> values;
      for (const auto& [key, value] : entry["config"].items()) values.emplace_back(key, value.get<std::string>());
      found.insert(label_of(values));
    }
    std::set<std::string> sorted;
    for (const config::SweepPoint& p : grid) {  // labels by sorted keys, as JSON has them
      auto values = p.values;
      std::sort(values.begin(), values.end());
      if (expected.count(label_of(p.values)) > 0) sorted.insert(label_of(values));
    }
    CHECK(found == sorted);
    CHECK(asked.runs < static_cast<int>(grid.size()));
    const auto best = asked.data["best"][0]["metrics"]["request.output_tokens_per_s"].get<double>();
    double fastest = 0;
    for (const Goodness& g : points) fastest = std::max(fastest, g[0]);
    if (!priced) CHECK(best == fastest);
  }
}

TEST_CASE("a choice names the settings that miss a target only within their intervals") {
  Experiments e = make_experiments();
  const auto r = e.run(run_with("{policy: full}"));
  const auto range = result::interval(*r, metric("tpot")).value();
  const double tpot = result::value(*r, metric("tpot")).value();
  const auto uncertain_at = [&](double limit) {
    Experiments own = make_experiments();
    const std::string target = fmt::format("\"<= {:.9f} s\"", limit);
    return ask(own, "choose: {policy: [full], workload.batch: [2], targets: {tpot: " + target + "}}")
        .data["uncertain"]
        .size();
  };
  CHECK(uncertain_at(0.5 * (range.low + tpot)) == 1);
  CHECK(uncertain_at(0.99 * range.low) == 0);  // certainly missed
  CHECK(uncertain_at(1.01 * tpot) == 0);       // met
}

TEST_CASE("a map has the winner of each of its cells, simulated or inferred") {
  Experiments e = make_experiments();
  const Asked asked =
      ask(e,
          "map: {x: workload.batch, y: hardware.gpu.hbm_bandwidth, from: [1, x0.25], to: [64, x4], "
          "policies: [full, {name: quest, budget: 256}, {name: freekv, budget: 256, sink: 32, recent: 32}]}");
  const std::map<std::string, std::string> policies = {
      {"full", "full"},
      {"quest, budget 256", "{name: quest, budget: 256}"},
      {"freekv, budget 256, sink 32, recent 32", "{name: freekv, budget: 256, sink: 32, recent: 32}"}};
  int wrong = 0, inferred = 0;
  std::set<std::string> winners;
  for (const json& cell : asked.data["cells"]) {
    std::string best = "none";
    double most = 0;
    for (const auto& [label, policy] : policies) {
      const ResultPtr r =
          e.run(run_with(fmt::format("{{policy: {}, workload.batch: {}, hardware.gpu.hbm_bandwidth: {:.9g} B/s}}",
                                     policy, cell["x"].get<int>(), cell["y"].get<double>())));
      const double rate = r->has_times() ? result::value(*r, metric("rps")).value() : 0;
      if (rate > most) most = rate, best = label;
    }
    winners.insert(best);
    inferred += cell["simulated"] == false;
    wrong += cell["best"] != best;
  }
  CHECK(wrong == 0);
  CHECK(inferred > 0);
  CHECK(winners.size() >= 2);
  for (const json& b : asked.data["borders"]) CHECK(b["between"][0] != b["between"][1]);
}

}  // namespace
}  // namespace kvcast::tests
