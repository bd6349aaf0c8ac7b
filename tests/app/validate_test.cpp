// kvcast validate as users see it: points, claims of papers, published scores.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

// A file of claims; runs and claims follow.
const std::string kClaims =
    "paper: Example\n"
    "source: \"nobody, 2025\"\n"
    "defaults:\n"
    "  model: llama-3.2-1b\n"
    "  hardware: rtx-4090\n"
    "  workload: {prompt_tokens: 8192, decode_tokens: 16}\n";

}  // namespace

TEST_CASE("measured points are compared with the profile of their device and framework") {
  const Scratch scratch;
  const std::string header = "device,framework,batch,ctx,n_q,n_kv,head_dim,latency_us,note\n";
  const std::string path = scratch.write("p.csv", header +
                                                      "h100_sxm,vllm,32,8192,32,8,128,500,x\n"
                                                      "no_such,vllm,32,8192,32,8,128,500,\"a,b\"\n");
  const Output o = kvcast({"validate", "kernels", "--points", path, "--json"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  const json r = json::parse(o.out);
  CHECK(r["n"] == 1);
  CHECK(r["no_profile"] == 1);
  // 32 · 8192 · 8 · 128 · 2 · 2 bytes are 1.07 GB: 320 us at 3.35 TB/s, so that 500 us is some 30 % too many.
  CHECK(r["bias"].get<double>() < -0.1);
  CHECK(r["bias"].get<double>() > -0.4);
  CHECK(r["by_source"]["h100_sxm/vllm"]["n"] == 1);
  CHECK(r["by_source"]["no_such/vllm"]["median"].is_null());  // a missing error differs from an error of 0
  // The same rows as a spreadsheet writes them.
  const std::string sheet =
      scratch.write("s.csv",
                    "\xef\xbb\xbf"
                    "device, framework, batch,ctx,n_q,n_kv,head_dim,latency_us,note\r\n"
                    "\"h100_sxm\",vllm,32,8192,32,8,128, 500,\"a\r\nb\"\r\nno_such,vllm,32,8192,32,8,128,500,\r\n\r\n");
  const json same = json::parse(kvcast({"validate", "kernels", "--points", sheet, "--json"}).out);
  CHECK(same["by_source"] == r["by_source"]);
  for (const char* bad : {"h100_sxm,vllm,32,8192,30,8,128,5,x\n", "h100_sxm,vllm,32,8192,32,8,128,-5,x\n",
                          "h100_sxm,vllm,32\n", "h100_sxm,vllm,a,8192,32,8,128,5,x\n"}) {
    const Output refused = kvcast({"validate", "kernels", "--points", scratch.write("q.csv", header + bad)});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Contains("q.csv:2"));
  }
  CHECK(kvcast({"validate", "kernels", "--points", scratch.write("r.csv", "a,b\n1,2\n")}).code == 2);
  CHECK(kvcast({"validate", "dreams"}).code == 2);
  CHECK(kvcast({"validate", "dreams", "--points", path}).code == 2);

  const std::string folder = scratch / "found";
  REQUIRE(kvcast({"validate", "--points", path, "-o", folder}).code == 0);
  std::ifstream in(folder + "/validation.json");
  const json document = json::parse(in);
  CHECK(document["passed"] == true);
  const json& found = document["suites"][0]["cases"][0];
  CHECK(found["measured"] == 500);
  CHECK(found["error"].get<double>() == Approx(r["bias"].get<double>()));
}

TEST_CASE("times that are wrong by a factor of a hundred or more trigger a hint about their unit") {
  const Scratch scratch;
  const auto answer = [&](const char* latency) {
    const std::string path = scratch.write("p.csv",
                                           "device,framework,batch,ctx,n_q,n_kv,head_dim,latency_us\n"
                                           "h100_sxm,vllm,32,8192,32,8,128," +
                                               std::string(latency) + "\n");
    return kvcast({"validate", "kernels", "--points", path}).err;
  };
  CHECK(answer("500").empty());
  for (const char* latency : {"0.5", "0.0005", "500000", "500000000"}) {
    CHECK_THAT(answer(latency), Contains("h100_sxm/vllm: predicted times are ") &&
                                    Contains("times the measured ones in the median; is latency_us in microseconds?"));
  }
}

TEST_CASE("points may use kvcast's own machine names, and unknown names are reported with the known ones") {
  const Scratch scratch;
  const std::string path = scratch.write("p.csv",
                                         "device,framework,batch,ctx,n_q,n_kv,head_dim,latency_us\n"
                                         "h200,vllm,16,8192,32,8,128,400\n"
                                         "a100-80gb-sxm,trtllm,16,8192,32,8,128,400\n"
                                         "a100_sxm,trtllm,16,8192,32,8,128,400\n"
                                         "h200,no_such,16,8192,32,8,128,400\n");
  const Output o = kvcast({"validate", "kernels", "--points", path, "--json"});
  REQUIRE(o.code == 0);
  const json r = json::parse(o.out);
  CHECK(r["n"] == 3);
  CHECK(r["passed"] == true);
  CHECK(r["by_source"]["h200/vllm"]["n"] == 1);
  CHECK(r["by_source"]["a100-80gb-sxm/trtllm"]["bias"] == r["by_source"]["a100_sxm/trtllm"]["bias"]);
  CHECK_THAT(o.err, Contains("no profile for h200/no_such (1 point); known: ") && Contains("h100_sxm/vllm"));
}

TEST_CASE("a broken file of a machine is named, and the others are validated", "[minutes]") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "configs/hardware");
  scratch.write("configs/hardware/broken.yaml", "");
  const std::string folder = scratch / "";
  const Output o = kvcast({"validate", "kernels"}, [&] {
    if (chdir(folder.c_str()) != 0) _exit(125);
  });
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  CHECK_THAT(o.out,
             Contains("configs/hardware/broken.yaml:1:1: the document is empty") && Contains("held-out numbers"));
}

TEST_CASE("each claim of a paper is answered by its own runs") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "claims");
  scratch.write(
      "claims/p.yaml",
      kClaims +
          "  trace: {layers: 1, steps: 4}\n"
          "  framework: {warmup_steps: 2, measured_steps: 2}\n"
          "runs:\n"
          "  full: {policy: full}\n"
          "  few: {policy: {name: quest, budget: 256}}\n"
          "  most: {policy: full, largest_batch: 512, workload: {prefill_batch: 1}}\n"
          "  more: {like: most, workload: {batch: 100}, largest_batch: 1}\n"
          "claims:\n"
          "  - {id: E-1, quantity: speed-up, where: x, published: 1.2, tolerance: 0.5, predict: full.tpot / few.tpot}\n"
          "  - {id: E-2, quantity: batch, where: x, predict: most.batch, holds: most.batch > 4 && most.fits}\n"
          "  - {id: E-3, quantity: one, where: x, published: 1, predict: more.batch}\n"
          "  - {id: E-4, quantity: none, where: x, unanswered: a setting}\n");
  const Output o = kvcast({"validate", "papers", "--claims", scratch / "claims", "--json"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  const json cases = json::parse(o.out)["suites"][0]["cases"];
  REQUIRE(cases.size() == 4);
  CHECK(cases[0]["verdict"] == "agrees");
  CHECK(cases[0]["published"] == 1.2);
  CHECK(cases[0]["predicted"].get<double>() > 1);
  // 24 GB less 2.5 of weights and the reserved memory leave some 21 GB: 8208 tokens of 32 KiB are 0.27 GB.
  CHECK(cases[1]["predicted"].get<double>() > 60);
  CHECK(cases[1]["predicted"].get<double>() < 85);
  CHECK(cases[1]["verdict"] == "agrees");
  // The device's memory and activations are uncertain: 3 % of 24 GB are a tenth of the memory left for sequences.
  CHECK(cases[1]["low"].get<double>() < cases[1]["predicted"].get<double>());
  CHECK(cases[1]["high"].get<double>() > cases[1]["predicted"].get<double>());
  CHECK(cases[1]["low"].get<double>() > 50);
  CHECK(cases[1]["high"].get<double>() < 95);
  CHECK(cases[2]["predicted"] == 1);
  CHECK(cases[3]["verdict"] == "unanswered");
  CHECK(kvcast({"validate", "papers", "--claims", scratch / "none"}).code == 2);
}

TEST_CASE("a batch that fits or fails by a small margin of memory is reported as uncertain") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "claims");
  const auto cases = [&](const std::string& runs_and_claims) {
    scratch.write("claims/p.yaml", kClaims +
                                       "  trace: {layers: 1, steps: 4}\n"
                                       "  framework: {warmup_steps: 2, measured_steps: 2}\n"
                                       "runs:\n" +
                                       runs_and_claims);
    const Output o = kvcast({"validate", "papers", "--claims", scratch / "claims", "--json"});
    INFO(o.err);
    REQUIRE(!o.out.empty());
    return json::parse(o.out)["suites"][0]["cases"];
  };
  const int most = cases(
      "  most: {policy: full, largest_batch: 512, workload: {prefill_batch: 1}}\n"
      "claims:\n"
      "  - {id: E-1, quantity: batch, where: x, predict: most.batch, holds: most.fits}\n")[0]["predicted"];
  std::string runs, claims = "claims:\n";
  for (const auto& [name, batch] :
       {std::pair("roomy", most / 8), {"full", most}, {"beyond", most + 1}, {"far", 2 * most}}) {
    runs += fmt::format("  {}: {{policy: full, workload: {{batch: {}, prefill_batch: 1}}}}\n", name, batch);
    claims += fmt::format("  - {{id: E-{0}, quantity: {0}, where: x, predict: {0}.fits, holds: {0}.fits}}\n", name);
  }
  const json found = cases(runs + claims);
  const auto check = [&](int at, double predicted, double low, double high) {
    CHECK(found[at]["predicted"] == predicted);
    CHECK(found[at]["low"] == low);
    CHECK(found[at]["high"] == high);
  };
  check(0, 1, 1, 1);
  check(1, 1, 0, 1);  // 3 % of the device's memory are uncertain, and a sequence takes a hundredth
  check(2, 0, 0, 1);
  check(3, 0, 0, 0);
}

TEST_CASE("validate papers builds an index alone, and refuses more heads than the model has") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "claims");
  const std::string claims =
      kClaims +
      "runs:\n"
      "  one: {policy: {name: retrieval_attention, index: hnsw}, index_heads: 1}\n"
      "  all: {like: one, index_heads: 8}\n"
      "claims:\n"
      "  - {id: E-1, quantity: heads, where: x, published: 1, tolerance: 10, predict: all.build / one.build}\n";
  scratch.write("claims/p.yaml", claims);
  const std::vector<std::string> asked = {"validate", "papers", "--claims", scratch / "claims", "--json"};
  const Output o = kvcast(asked);
  INFO(o.err);
  const json built = json::parse(o.out)["suites"][0]["cases"][0];
  // Eight heads insert eight times as many keys on the same cores; what is launched and waited for once is less than
  // that.
  CHECK(built["predicted"].get<double>() > 4);
  CHECK(built["predicted"].get<double>() < 8.5);
  scratch.write("claims/p.yaml", std::string(claims).replace(claims.find("index_heads: 8"), 14, "index_heads: 9"));
  const Output refused = kvcast(asked);
  CHECK(refused.code == 2);
  CHECK(refused.err.find("p.yaml:9:33: index_heads: the model has 8 KV heads") != std::string::npos);
}

TEST_CASE("published scores that cannot be compared are listed with reasons and not as an error of 0") {
  const Scratch scratch;
  const std::string path = scratch.write("t.csv",
                                         "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n"
                                         "RocketKV,T,Llama3.1-8B-Ins,RULER,2K,single2,Full-KV,full,tokens,100\n"
                                         "RocketKV,T,Llama3.1-8B-Ins,RULER,2K,single2,Foo,512,tokens,50\n"
                                         "RocketKV,T,Llama3.1-8B-Ins,RULER,2K,nosuch,SnapKV,512,tokens,50\n"
                                         "RocketKV,T,Llama3.1-8B-Ins,RULER,2K,avg13,SnapKV,512,tokens,50\n");
  const Output o = kvcast({"validate", "accuracy", "--published", path, "--seeds", "1"});
  INFO(o.err);
  CHECK_THAT(o.out, Contains("refused, once: no policy for the method Foo") &&
                        Contains("refused, once: no task nosuch of RULER is known; known: ") && Contains("single2") &&
                        Contains("refused, once: no score of the uncompressed model to start from"));
  const std::size_t all = o.out.find("  all\n");
  REQUIRE(all != std::string::npos);
  const std::string line = o.out.substr(o.out.rfind('\n', all) + 1, all - o.out.rfind('\n', all));
  CHECK_THAT(line, Contains(" 0        -         -       -") && !Contains("%"));
}

TEST_CASE("a user's table is judged by the limits for rows that no fit has seen, and a missed limit is named") {
  const Scratch scratch;
  const auto judge = [&](const std::string& score, const std::vector<std::string>& more) {
    std::string table = "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n";
    for (const std::string task : {"single2,", "multikey1,"}) {
      const std::string row = "x,T,Llama3.1-8B-Ins,RULER,2K," + task;
      table += row + "Full-KV,full,tokens,100\n" + row + "Exact-TopK,512,tokens," + score + "\n";
    }
    std::vector<std::string> command = {"validate", "accuracy", "--published",       scratch.write("t.csv", table),
                                        "--seeds",  "1",        "--without-evidence"};
    command.insert(command.end(), more.begin(), more.end());
    return kvcast(command);
  };
  // Equal published scores have no order: only their errors are judged.
  const Output equal = judge("100", {"--json"});
  INFO(equal.err);
  CHECK(equal.code == 0);
  const json r = json::parse(equal.out);
  CHECK(r["passed"] == true);
  REQUIRE(r["budgets"].size() == 4);
  CHECK(r["budgets"][0]["name"] == "rows not fitted, Kendall's tau");
  CHECK(r["budgets"][0]["value"].is_null());
  CHECK(r["budgets"][1]["limit"] == 10);
  CHECK(r["kendall"].is_null());
  const Output text = judge("100", {});
  CHECK_THAT(text.out, Contains("     2        -         -    ") &&
                           Contains("Kendall's tau: -, at least 0.75 allowed: no data") &&
                           Contains("order of pairs 10 points apart: -, at least 93 allowed: no data"));
  const Output off = judge("50", {});
  CHECK(off.code == 1);
  CHECK_THAT(off.out, Contains("budget rows not fitted, mean error: ") && Contains("at most 10 allowed: MISSED"));
}

TEST_CASE("validate accuracy can repeat predictions without a part of the trace generator") {
  const Scratch scratch;
  const std::string row = "RocketKV,T,Llama3.1-8B-Ins,RULER,2K,";
  std::string table = "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n";
  for (const std::string task : {"single2,", "multikey1,"}) {
    table += row + task + "Full-KV,full,tokens,100\n";
    for (const char* cell : {"SnapKV,512,tokens,20\n", "SnapKV,1024,tokens,70\n", "Exact-TopK,512,tokens,100\n"}) {
      table += row + task + cell;
    }
  }
  table += row + "single2,Quest,512,tokens,n/a\n";
  const std::string path = scratch.write("t.csv", table);
  const std::vector<std::string> command = {"validate", "accuracy", "--published", path, "--seeds", "1", "--ablation"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = command;
    all.insert(all.end(), more.begin(), more.end());
    return kvcast(all);
  };
  const Output o = with({"question-sees-values", "--json"});
  INFO(o.err);
  REQUIRE(o.code <= 1);
  const json r = json::parse(o.out);
  CHECK(r["n"] == 6);
  CHECK(r["no_score"] == 1);
  CHECK_THAT(o.err, Contains("left out, " + path + ":10: "));
  REQUIRE(r["ablations"].size() == 1);
  const json a = r["ablations"][0];
  CHECK(a["name"] == "question-sees-values");
  CHECK(a["n"] == 6);
  // Exact top-k does not use the question; SnapKV's selection by the question can only improve.
  CHECK(a["methods"]["Exact-TopK"]["shift"].get<double>() == Approx(0).margin(3));
  CHECK(a["methods"]["SnapKV"]["shift"].get<double>() > 0);
  CHECK(a["methods"]["SnapKV"]["curve"].size() == 2);
  CHECK_THAT(with({"no-decoys"}).out, Contains("without") && Contains("no-decoys") && Contains("SnapKV"));

  const Output unknown = with({"no-decoy"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("no ablation \"no-decoy\"") && Contains("no-decoys"));
  CHECK(kvcast({"validate", "kernels", "--ablation", "all"}).code == 2);
}

TEST_CASE("validate serving serves load points and compares them with a static batch") {
  const Scratch scratch;
  const std::string folder = scratch / "points";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.yaml")
      << "campaign: Example\nsource: nobody\nrows: 2\npoint_count: 2\nleft_out_count: 0\n"
         "defaults: {policy: full, model: llama-3.2-1b, hardware: h100-sxm, framework: vllm-0.11}\n"
         "groups:\n  - name: loop\n    chosen_knowing: false\n    config: {traffic: {output_tokens: 20}}\n"
         "    spread: 0.1\n    skip_first_wave: true\n    requests_per_client: 4\n"
         "    set: [traffic.prompt_tokens, traffic.concurrency]\n    measured: [tpot_ms.p50]\n"
         "    compare: [tpot_ms.p50]\n    points:\n      - [X1, 500, 4, 2]\n      - [X2, 600, 8, 1000]\n";
  std::ofstream(folder + "/first_errors.csv") << "id,metric,predicted,measured\nX1,tpot_ms.p50,3,2\n";
  const std::string first = scratch / "now.csv";
  const Output o = kvcast({"validate", "serving", "--claims", folder, "--first", first, "--json"});
  INFO(o.err);
  CHECK(o.code == 1);  // 1000 ms a token are far off, and so are the budgets
  const json suite = json::parse(o.out)["suites"][0];
  REQUIRE(suite["cases"].size() == 2);
  CHECK(suite["cases"][0]["predicted"].get<double>() > 0);
  CHECK(suite["cases"][0]["baseline"].get<double>() > 0);
  CHECK(suite["cases"][0]["low"].get<double>() < suite["cases"][0]["predicted"].get<double>());
  const json& line = suite["detail"]["lines"][0];
  CHECK(line["now"]["n"] == 2);
  CHECK(line["first"]["n"] == 1);
  CHECK(line["first"]["median"].get<double>() == Approx(0.5));
  std::ifstream in(first);
  std::string header;
  std::getline(in, header);
  CHECK(header == "id,metric,predicted,measured");
  std::ofstream(folder + "/b.yaml") << "campaign: Bad\n";
  const Output refused = kvcast({"validate", "serving", "--claims", folder});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("b.yaml"));
}

}  // namespace kvcast::tests
