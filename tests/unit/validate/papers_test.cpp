// Claims as data: formulas by hand, files that are refused, and what a suite makes of made-up records.
#include "validate/papers.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <random>

#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "validate/paper_records.hpp"

using namespace kvcast;
using namespace kvcast::validate;
using nlohmann::json;

namespace {

double value_of(const std::string& text) {
  return Formula(text, {}).value([](const std::string& name) { return name == "a.b" ? 2.0 : 3.0; });
}

const std::string kFile =
    "paper: Example\n"
    "source: \"Someone, 2025\"\n"
    "defaults: {model: m, workload: {batch: 1, prompt_tokens: 10}, policy: {name: p, budget: 7}}\n"
    "runs:\n"
    "  slow: {policy: full}\n"
    "  fast: {like: slow, policy: {name: q}, workload: {batch: 4}, largest_batch: 9}\n"
    "claims:\n"
    "  - id: EX-1\n"
    "    quantity: speed-up\n"
    "    where: table 1\n"
    "    published: 4\n"
    "    unit: x\n"
    "    context: 10\n"
    "    reading: steps\n"
    "    predict: slow.tpot / fast.tpot\n"
    "    others:\n"
    "      - {reading: all, predict: slow.ttft / fast.ttft}\n"
    "  - {id: EX-2, quantity: memory, where: table 2, unanswered: a setting}\n"
    "  - {id: EX-3, quantity: trend, where: fig 1, predict: slow.hbm / fast.hbm, holds: slow.hbm > fast.hbm}\n"
    "  - {id: EX-4, quantity: cache, where: fig 2, published: 3, held_out: false, rests_on: k, predict: "
    "fast.hbm_of.low_rank_keys}\n";

Paper paper_of(const std::string& text) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/p.yaml";
  std::ofstream(path) << text;
  return read_paper(path);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

json record(double tpot, double ttft, double hbm) {
  return {{"oom", nullptr},
          {"decode", {{"tpot_s", {{"mean", tpot}}}, {"tokens_per_s", 1 / tpot}}},
          {"prefill", {{"ttft_s", ttft}, {"breakdown", {{{"kind", "index"}, {"exposed_s", 0.5}, {"hidden_s", 0.1}}}}}},
          {"breakdown", {{{"kind", "gemm"}, {"exposed_s", 0.25}, {"hidden_s", 0.125}}}},
          {"memory", {{"hbm_peak_bytes", hbm}, {"decode_hbm_owners", {{{"owner", "low-rank keys"}, {"bytes", 3.0}}}}}},
          {"intervals", {{"decode.tpot_s.mean", {tpot / 2, tpot * 2}}}},
          {"origin", {{"decode.tpot_s", "literature"}, {"prefill.ttft_s", "assumed"}}},
          {"config", {{"workload", {{"batch", 4}}}}}};
}

}  // namespace

TEST_CASE("formulas are arithmetic over dotted names") {
  CHECK(value_of("a.b + c * 2") == 8);
  CHECK(value_of("(a.b + c) / 2 - 2^3") == -5.5);
  CHECK(value_of("max(a.b, c) + min(a.b, c) + abs(0 - 1)") == 6);
  CHECK(value_of("a.b < c && c < 4") == 1);
  CHECK(Formula("b.x + a + b.x", {}).names() == std::vector<std::string>{"a", "b.x"});
}

TEST_CASE("what is no formula is refused at its place") {
  for (const char* bad : {"a +", "(a", "a b", "a $ b", ""}) {
    INFO(bad);
    CHECK(error_of([&] { Formula(bad, {"f.yaml", 3, 4}); }).find("f.yaml:3:4") != std::string::npos);
  }
  CHECK(error_of([] { value_of("1 / (a.b - 2)"); }).find("no finite number") != std::string::npos);
}

TEST_CASE("a paper's runs inherit, and a policy replaces the one before") {
  const Paper paper = paper_of(kFile);
  REQUIRE(paper.runs.size() == 2);
  CHECK(paper.runs[0].config.canonical() ==
        R"({"model":"m","policy":"full","workload":{"batch":1,"prompt_tokens":10}})");
  CHECK(paper.runs[1].config.canonical() ==
        R"({"model":"m","policy":{"name":"q"},"workload":{"batch":4,"prompt_tokens":10}})");
  CHECK(paper.runs[1].largest_batch == 9);
  CHECK(paper.runs[0].phases.step);  // slow.tpot, slow.ttft
  CHECK(paper.runs[0].phases.prefill);
  REQUIRE(paper.claims.size() == 4);
  CHECK(paper.claims[0].readings.size() == 2);
  CHECK(paper.claims[0].base.source == "Someone, 2025, table 1");
  CHECK(paper.claims[1].base.note == "a setting");
}

TEST_CASE("costs are moved for the times alone that a claim is computed from") {
  const std::string steps = replaced(kFile, "slow.ttft / fast.ttft", "slow.tpot / fast.hbm");
  const Paper paper = paper_of(steps);
  CHECK(paper.runs[0].phases.step);
  CHECK(!paper.runs[0].phases.prefill);
  const Paper bytes = paper_of(replaced(steps, "predict: slow.tpot / fast.tpot", "predict: slow.hbm / fast.tps"));
  CHECK(bytes.runs[1].phases.step);
  CHECK(!bytes.runs[1].phases.prefill);
}

TEST_CASE("a run that builds an index alone") {
  const auto with = [](const std::string& more) {
    const std::string text = replaced(kFile, ", largest_batch: 9", "");
    return replaced(text, "  slow: {policy: full}\n", "  slow: {policy: full, index_heads: 2" + more + "}\n");
  };
  const Paper paper = paper_of(with(""));
  CHECK(paper.runs[0].index_heads == 2);
  CHECK(paper.runs[0].config.find("index_heads") == nullptr);
  CHECK(error_of([&] { paper_of(with(", largest_batch: 3")); }).find("leave largest_batch out") != std::string::npos);
  CHECK(error_of([&] { paper_of(replaced(with(""), "index_heads: 2", "index_heads: 0")); }).find("index_heads") !=
        std::string::npos);
  const json built = {{"oom", nullptr},
                      {"build", {{"seconds", 0.25}}},
                      {"intervals", {{"build.seconds", {0.125, 0.5}}}},
                      {"origin", {{"build.seconds", "assumed"}}}};
  CHECK(number_of(built, "build") == 0.25);
  CHECK(!number_of(built, "tpot"));
}

TEST_CASE("claims that say too little or too much are refused") {
  const auto refused = [](const std::string& from, const std::string& to) {
    return error_of([&] { paper_of(replaced(kFile, from, to)); });
  };
  CHECK(refused("unanswered: a setting", "note: a setting").find("either predict or unanswered") != std::string::npos);
  CHECK(refused("unanswered: a setting", "unanswered: x, predict: slow.tpot, published: 1").find("either") !=
        std::string::npos);
  CHECK(refused("    published: 4\n", "").find("published (a number) or holds") != std::string::npos);
  CHECK(refused("slow.ttft / fast.ttft", "slow.ttft / quick.ttft").find("known: slow, fast") != std::string::npos);
  CHECK(refused("like: slow", "like: slower").find("no run \"slower\"") != std::string::npos);
  CHECK(refused("  slow: {policy: full}\n", "  slow: {policy: full}\n  idle: {policy: full}\n")
            .find("no claim uses idle") != std::string::npos);
  CHECK(refused("rests_on: k, ", "").find("held_out: false needs rests_on") != std::string::npos);
  CHECK(refused("quantity: trend", "quantity: trend, quality: x").find("quality") != std::string::npos);
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/a.yaml") << kFile;
  std::ofstream(folder.path() + "/b.yaml") << kFile;
  CHECK(error_of([&] { read_papers(folder.path()); }).find("EX-1 stands twice") != std::string::npos);
}

TEST_CASE("a mutated paper is read or refused, never worse") {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    std::string text = kFile;
    for (int edits = 0; edits < 3; ++edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text.insert(at, 1, "{}[]:,#'\"\n -"[random() % 12]);
          break;
        default:
          text[at] = static_cast<char>(32 + random() % 95);
      }
    }
    try {
      paper_of(text);
    } catch (const UserError&) {
    }
  }
}

TEST_CASE("numbers of a record by their short names") {
  const json r = record(0.5, 2, 100);
  CHECK(number_of(r, "tpot") == 0.5);
  CHECK(number_of(r, "fits") == 1);
  CHECK(number_of(r, "batch") == 4);
  CHECK(number_of(r, "exposed.gemm") == 0.25);
  CHECK(number_of(r, "exposed.score") == 0);
  CHECK(number_of(r, "prefill.exposed.index") == 0.5);
  CHECK(number_of(r, "prefill.hidden.index") == 0.1);
  CHECK(number_of(r, "hbm_of.low_rank_keys") == 3);
  CHECK(number_of(r, "decode.tpot_s.mean") == 0.5);
  CHECK(!number_of(r, "decode.tpot_s"));
  json oom = {{"oom", {{"pool", "hbm"}, {"moment", "prefill"}}}};
  CHECK(number_of(oom, "fits") == 0);
  CHECK(!number_of(oom, "tpot"));
}

TEST_CASE("claims are judged from the records of their runs") {
  const Paper paper = paper_of(kFile);
  const Suite suite = papers({paper}, [](const std::vector<PaperRun>& runs) {
    REQUIRE(runs.size() == 2);
    return std::vector<json>{record(6, 10, 100), record(2, 2, 50)};
  });
  REQUIRE(suite.cases.size() == 4);
  // 6 / 2 = 3 where 4 is published; the other reading is 10 / 2 = 5.
  CHECK(suite.cases[0].predicted == 3);
  CHECK(suite.cases[0].low == 3);
  CHECK(suite.cases[0].high == 5);
  CHECK(suite.cases[0].verdict == Verdict::kBracketed);
  CHECK(suite.cases[0].origin == Origin::kLiterature);
  CHECK(suite.cases[1].verdict == Verdict::kUnanswered);
  CHECK(suite.cases[2].verdict == Verdict::kAgrees);
  CHECK(suite.cases[2].predicted == 2);
  CHECK(suite.cases[3].verdict == Verdict::kFitted);
  CHECK(suite.cases[3].origin == Origin::kExact);
  // One held-out number, 3 for 4; of the held-out claims one is bracketed and one agrees.
  REQUIRE(suite.budgets.size() == 2);
  CHECK(suite.budgets[0].value.value() == Approx(25));
  CHECK(!suite.budgets[0].passed());
  CHECK(suite.budgets[1].value == 100);
  CHECK(suite.budgets[1].passed());
}

namespace {

json part(const char* kind, double exposed, double uncertain) {
  return {{"kind", kind}, {"exposed_s", exposed}, {"hidden_s", 0.0}, {"uncertain_s", uncertain}};
}

// A record's times with one source's costs longer, and shorter.
json off(const char* source, double longer, double shorter) {
  const auto times = [](double tpot) {
    return json{{"decode", {{"tpot_s", {{"mean", tpot}}}, {"tokens_per_s", 1 / tpot}}},
                {"prefill", {{"ttft_s", 5}}},
                {"breakdown", {part("gemm", tpot / 2, 0)}}};
  };
  return {{"source", source}, {"longer", times(longer)}, {"shorter", times(shorter)}};
}

// a, 8 s a step: 8.6 or 7.4 by one source, 8.8 or 7.2 by another. b, 2 s: 2.2 or 1.8 by the first alone.
Records two_records() {
  json a = record(8, 5, 100), b = record(2, 5, 50);
  a["shifted"] = {off("kernels", 8.6, 7.4), off("cores", 8.8, 7.2)};
  a["breakdown"] = {part("gemm", 6, 0)};
  b["shifted"] = {off("kernels", 2.2, 1.8)};
  Records records;
  records.add("a", a), records.add("b", b);
  return records;
}

}  // namespace

TEST_CASE("what rests on one source is off together in all runs, and sources add as squares") {
  const Records records = two_records();
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  // 0.6 and 0.8 s of 8: 1 s.
  CHECK(interval("a.tpot").low == Approx(7));
  CHECK(interval("a.tpot").high == Approx(9));
  // A ratio of 4. Kernels longer in both: 8.6 / 2.2 = 3.909; shorter: 7.4 / 1.8 = 4.111. The cores: 3.6 and 4.4.
  CHECK(interval("a.tpot / b.tpot").low == Approx(4 - std::hypot(4 - 8.6 / 2.2, 0.4)));
  CHECK(interval("a.tpot / b.tpot").high == Approx(4 + std::hypot(7.4 / 1.8 - 4, 0.4)));
  // What both sides have cancels.
  CHECK(interval("b.tpot / b.tpot").high == Approx(1));
  CHECK(interval("b.tps").low == Approx(1 / 2.2));  // longer steps, fewer tokens
  // 6 s of GEMM in the middle; 4.3, 3.7, 4.4 and 3.6 with costs that are off: both ways below.
  CHECK(interval("a.exposed.gemm").low == Approx(6 - std::hypot(6 - 3.7, 6 - 3.6)));
  CHECK(interval("a.exposed.gemm").high == 6);
  CHECK(interval("a.hbm / b.hbm").low == 2);
  CHECK(interval("a.hbm / b.hbm").high == 2);
  CHECK(interval("a.fits").high == 1);
  CHECK(!records.interval(Formula("a.build", {})));
}

TEST_CASE("memory that is off moves peaks, or all of a run at another batch") {
  json a = record(8, 5, 100), b = record(2, 5, 50);
  a["shifted"] = {{{"source", "activations"},
                   {"longer", {{"memory", {{"hbm_peak_bytes", 110}}}}},
                   {"shorter", {{"memory", {{"hbm_peak_bytes", 90}}}}}}};
  json more = record(3, 5, 70), none = record(9, 5, 70);
  more["config"]["workload"]["batch"] = 6;
  none["oom"] = {{"pool", "hbm"}}, none["config"]["workload"]["batch"] = 1;
  b["shifted"] = {{{"source", "device memory"}, {"longer", none}, {"shorter", more}}};
  Records records;
  records.add("a", a), records.add("b", b);
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.hbm").low == 90);
  CHECK(interval("a.hbm").high == 110);
  CHECK(interval("a.hbm_of.low_rank_keys").high == 3);  // exact
  CHECK(interval("a.tpot").high == 8);
  // Batch 4, or 6 with more memory; what then does not fit at all was not measured either.
  CHECK(interval("b.batch").low == 4);
  CHECK(interval("b.batch").high == 6);
  CHECK(interval("b.tpot").high == 3);
  CHECK(interval("b.fits").low == 0);
}

TEST_CASE("a difference of peaks moves by all activations in them, however few; nothing by less than a thousandth") {
  // Weights of 1000, activations of 40 and 20, scores of 400 and 100: with a third more, 1586.67 of 1440 and 1160 of
  // 1120. Scores alone quadruple, as is and with a third more.
  const auto peaks = [](double estimated) {
    json r = record(1, 1, 1000 + estimated);
    const auto at = [&](double factor) { return json{{"memory", {{"hbm_peak_bytes", 1000 + factor * estimated}}}}; };
    r["shifted"] = {{{"source", "activations"}, {"longer", at(4.0 / 3)}, {"shorter", at(2.0 / 3)}}};
    return r;
  };
  Records records;
  records.add("long_eager", peaks(440)), records.add("long", peaks(40));
  records.add("short_eager", peaks(120)), records.add("short", peaks(20));
  records.add("tiny", peaks(0.9));
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  const Interval ratio = interval("(long_eager.hbm - long.hbm) / (short_eager.hbm - short.hbm)");
  CHECK(ratio.low == Approx(4));
  CHECK(ratio.high == Approx(4));
  CHECK(interval("short.hbm").high == Approx(1020 + 20.0 / 3));
  CHECK(interval("tiny.hbm").high == 1000.9);  // 0.3 of 1000.9
}

TEST_CASE("whether a run fits may be off, by all of memory once") {
  json fits = record(8, 5, 100), not_quite = record(8, 5, 100);
  fits["shifted"] = {{{"source", "memory"}, {"longer", {{"oom", {{"pool", "hbm"}}}}}, {"shorter", json::object()}}};
  not_quite["oom"] = {{"pool", "hbm"}};
  not_quite["shifted"] = {{{"source", "memory"}, {"longer", json::object()}, {"shorter", {{"oom", nullptr}}}}};
  Records records;
  records.add("a", fits), records.add("b", not_quite);
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.fits").low == 0);
  CHECK(interval("a.fits").high == 1);
  CHECK(interval("b.fits").low == 0);
  CHECK(interval("b.fits").high == 1);
  CHECK(interval("a.tpot").low == 8);  // of a run that does not fit nothing else is known
}

TEST_CASE("what other traces give lies in the interval, each taken with the like of it") {
  Records records;
  records.add("a", record(8, 5, 100), {record(10, 5, 100), record(7, 5, 100)});
  records.add("b", record(2, 5, 50), {record(2.5, 5, 50)});
  records.add("c", record(2, 5, 50));
  const auto interval = [&](const char* formula) { return records.interval(Formula(formula, {})).value(); };
  CHECK(interval("a.tpot").low == 7);
  CHECK(interval("a.tpot").high == 10);
  // 8 / 2; 10 / 2.5, and 7 / 2 where b has no second other.
  CHECK(interval("a.tpot / b.tpot").low == 3.5);
  CHECK(interval("a.tpot / b.tpot").high == 4);
  CHECK(interval("a.tpot / c.tpot").high == 5);
  CHECK(interval("c.tpot").high == 2);
}

TEST_CASE("a run on other traces is asked for once for each, without its costs") {
  const Paper paper =
      paper_of(replaced(replaced(kFile, ", largest_batch: 9", ""), "  slow: {policy: full}\n",
                        "  slow: {policy: full, trace: {recipe: a, steps: 3}, traces: [{recipe: b}]}\n"));
  REQUIRE(paper.runs[0].on_other_traces.size() == 1);
  CHECK(paper.runs[0].config.find("traces") == nullptr);
  const config::Node& trace = *paper.runs[0].on_other_traces[0].find("trace");
  CHECK(trace.find("recipe")->text() == "b");
  CHECK(trace.find("steps")->text() == "3");  // all else as it was
  const Suite suite = papers({paper}, [&](const std::vector<PaperRun>& runs) {
    std::vector<json> records;
    for (const PaperRun& run : runs) {
      const bool other = run.config.find("trace")->find("recipe")->text() == "b";
      CHECK(run.shifted == !other);
      records.push_back(run.name == "fast" ? record(2, 2, 50) : record(other ? 7 : 6, 10, 100));
    }
    return records;
  });
  CHECK(suite.cases[0].predicted == 3);
  CHECK(suite.cases[0].cost_high == 3.5);
  CHECK(error_of([&] {
          paper_of(replaced(kFile, "  slow: {policy: full}\n", "  slow: {policy: full, traces: needle}\n"));
        }).find("a list of maps") != std::string::npos);
}

TEST_CASE("a case's bounds are its readings, each with what costs may be off by; its verdict is the readings'") {
  const Paper paper = paper_of(replaced(kFile, "published: 4\n", "published: 5.9\n"));
  json slow = record(6, 10, 100);
  slow["shifted"] = {off("cores", 9, 3)};
  const Suite suite = papers({paper}, [&](const std::vector<PaperRun>&) {
    return std::vector<json>{slow, record(2, 2, 50)};
  });
  // Readings 3 and 5; the first is between 1.5 and 4.5. 5.9 lies beyond both readings and their tolerance of 15 %.
  CHECK(suite.cases[0].low == 1.5);
  CHECK(suite.cases[0].high == 5);
  CHECK(suite.cases[0].cost_low == 1.5);
  CHECK(suite.cases[0].cost_high == 4.5);
  CHECK(suite.cases[0].verdict == Verdict::kOff);
}

TEST_CASE("what does not fit in memory leaves its claims without a prediction, and says so") {
  const Paper paper = paper_of(kFile);
  const Suite suite = papers({paper}, [](const std::vector<PaperRun>&) {
    return std::vector<json>{{{"oom", {{"pool", "hbm"}, {"moment", "prefill, layer 3"}}}}, record(2, 2, 50)};
  });
  CHECK(suite.cases[0].verdict == Verdict::kOff);
  CHECK(!suite.cases[0].predicted);
  CHECK(suite.cases[0].note.find("does not fit in hbm at prefill, layer 3") != std::string::npos);
}

TEST_CASE("the committed claims are well formed and no id stands twice") {
  const std::vector<Paper> all = read_papers(std::string(KVCAST_SOURCE_DIR) + "/configs/validation/papers");
  std::size_t claims = 0;
  for (const Paper& paper : all) claims += paper.claims.size();
  CHECK(all.size() >= 3);
  CHECK(claims >= 100);
}
