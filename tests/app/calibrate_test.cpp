// The calibration loop: measure this machine, fit a profile, reject wrong input, use the profile.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// The speed and noise of this machine do not matter here: any error is allowed.
std::vector<std::string> measure_host(const std::string& out) {
  return {"calibrate", "cpu", "-o", out, "--short", "--seconds", "4", "--budget-median", "1e9", "--budget-p90", "1e9"};
}

}  // namespace

TEST_CASE("calibrate cpu measures this machine and writes a profile that can be fitted again and used", "[minutes]") {
  const Scratch scratch;
  const std::string profile = scratch / "host.yaml", results = scratch / "host.results.json";
  const Output measured = kvcast(measure_host(profile));
  INFO(measured.err);
  REQUIRE(measured.code == 0);
  CHECK_THAT(measured.out, Contains(profile));
  CHECK_THAT(measured.err, Contains("held out"));
  const std::string text = slurp(profile);
  for (const char* key : {"dram_bandwidth:", "core_bandwidth:", "core_flops:", "dispatch:", "core_rank:",
                          "core_rank_again:", "core_lookup:", "core_bucket:", "core_translation:", "origin: fitted",
                          "kernel: DRAM", "held_out:", "date: \"20"}) {
    CHECK_THAT(text, Contains(key));
  }
  CHECK(json::parse(slurp(results))["schema"] == "kvcast-kernels/1");

  // The same results give the same profile without measuring.
  const Output again = kvcast({"calibrate", "cpu", "--from", results, "-o", scratch / "again.yaml", "--budget-median",
                               "1e9", "--budget-p90", "1e9"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(slurp(scratch / "again.yaml") == text);

  // A budget that hardly any stage meets does not prevent the profile: stages that miss it keep the base's numbers.
  // The memory rate has a single point, which keeps its own error.
  std::smatch own_error;
  const std::regex of_memory("DRAM: [^\n]*\n[^\n]* p90 ([0-9.]+) %");
  REQUIRE(std::regex_search(again.err, own_error, of_memory));
  const std::string budget =
      fmt::format("{:.2f}", std::max(0.1, std::stod(own_error[1]) + 0.06));  // printed with one decimal
  const Output strict = kvcast({"calibrate", "cpu", "--from", results, "-o", scratch / "strict.yaml", "--budget-median",
                                budget, "--budget-p90", budget});
  INFO(strict.err);
  CHECK(strict.code == 0);
  CHECK_THAT(slurp(scratch / "strict.yaml"), Contains("dram_bandwidth:") && Contains("core_rank:"));

  // A machine with this host.
  const std::string machine = scratch.write(
      "machine.yaml", "title: Mine\nhost: " + profile +
                          "\ninclude: [fit-h100-sxm-vllm, chip-h100-sxm, kernels-hopper, kernels, copies, pcie5]\n");
  const std::string run = scratch.write(
      "run.yaml", "model: llama-3.2-1b\nhardware: " + machine +
                      "\npolicy: {name: magicpig}\nworkload: {prompt_tokens: 1024, decode_tokens: 16, batch: 1}\n"
                      "trace: {recipe: needle, layers: 1, steps: 4}\n");
  const Output used = kvcast({"run", run, "--json"});
  INFO(used.err);
  REQUIRE(used.code == 0);
  CHECK(json::parse(used.out)["decode"]["tokens_per_s"].get<double>() > 0);
}

TEST_CASE("a calibration that is impossible here reports what is missing") {
  const Scratch scratch;
  const Output no_program = kvcast({"calibrate", "cuda", "-o", scratch / "p.yaml", "--program", scratch / "nothing"});
  CHECK(no_program.code == 2);
  CHECK_THAT(no_program.err, Contains("-DKVCAST_CUDA=ON") && Contains("--from"));
  CHECK(kvcast({"calibrate", "cuda", "--from", scratch / "none.json", "-o", scratch / "p.yaml"}).code == 2);
  const std::string host_only =
      scratch.write("cpu.json", R"({"schema":"kvcast-kernels/1","environment":{"cores":2},"rows":[]})");
  const Output no_gpu = kvcast({"calibrate", "cuda", "--from", host_only, "-o", scratch / "p.yaml"});
  CHECK(no_gpu.code == 2);
  CHECK_THAT(no_gpu.err, Contains("no usable case of a GPU"));
  CHECK(kvcast({"calibrate"}).code == 2);
  CHECK(kvcast({"calibrate", "cpu"}).code == 2);
  // A program that fails is not taken for a measurement.
  const Output failed = kvcast({"calibrate", "cpu", "-o", scratch / "p.yaml", "--program", "/bin/false"});
  CHECK(failed.code == 2);
  CHECK_THAT(failed.err, Contains("/bin/false ended with 1"));
  CHECK_FALSE(std::filesystem::exists(scratch / "p.yaml"));
}

TEST_CASE("a GPU's profile includes the host that was calibrated with it") {
  const Scratch scratch;
  // Waits of 5 us are all that is fitted; there are four, because one is held out.
  json document = {
      {"schema", "kvcast-kernels/1"}, {"environment", {{"device", "made by hand"}}}, {"rows", json::array()}};
  for (int i = 1; i <= 4; ++i) {
    document["rows"].push_back({{"bench", "host_sync"},
                                {"mode", "batch"},
                                {"axes", {{"what", "stream_sync_idle"}, {"n", i}}},
                                {"work", json::object()},
                                {"time_s", {{"median", 5e-6}}},
                                {"skip_reason", nullptr}});
  }
  const std::string from = scratch.write("gpu.json", document.dump()), out = scratch / "p.yaml";
  const auto text = [&] { return (std::stringstream() << std::ifstream(out).rdbuf()).str(); };
  REQUIRE(kvcast({"calibrate", "cuda", "--from", from, "-o", out}).code == 0);
  CHECK_FALSE(text().find("cores: {value: 16") != std::string::npos);
  REQUIRE(kvcast({"calibrate", "cuda", "--from", from, "--host", "epyc-7302", "-o", out}).code == 0);
  CHECK(text().find("cores: {value: 16") != std::string::npos);
  CHECK(text().find("host:\n  title: \"AMD EPYC 7302") != std::string::npos);  // not that of the results
  CHECK(kvcast({"calibrate", "cuda", "--from", from, "--host", "nobody", "-o", out}).code == 2);

  document["rows"].push_back(document["rows"][0]);
  document["rows"].back()["bench"] = "host_sink";
  const std::string misspelt = scratch.write("misspelt.json", document.dump());
  const Output o = kvcast({"calibrate", "cuda", "--from", misspelt, "-o", out});
  CHECK(o.code == 0);
  CHECK_THAT(o.err, Contains("ignored, unknown benchmarks: host_sink (1 row)\n"));
}

TEST_CASE("a calibration never replaces a file that it reads") {
  const Scratch scratch;
  const std::string points = scratch / "points.csv", results = scratch / "cpu.json";
  std::filesystem::copy_file(KVCAST_SOURCE_DIR "/configs/hardware/points/gemm-l40s-sglang.csv", points);
  std::filesystem::copy_file(KVCAST_SOURCE_DIR "/configs/validation/gpu/h200-kvcast/cpu.json", results);
  std::filesystem::create_hard_link(results, scratch / "link.json");
  const std::string machine =
      scratch.write("mine.results.json",
                    "title: Mine\nhost: generic\ninclude: [fit-h100-sxm-vllm, chip-h100-sxm, kernels-hopper, kernels, "
                    "copies, pcie5]\n");
  const auto refuses = [](const std::vector<std::string>& arguments, const std::string& input) {
    const std::string before = slurp(input);
    const Output o = kvcast(arguments);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Contains("is also read") && Contains("name another file by -o"));
    CHECK(slurp(input) == before);
  };
  refuses({"calibrate", "table", points, "--profile", "l40s", "--source", "me", "-o", points}, points);
  refuses({"calibrate", "table", points, "--profile", machine, "--source", "me", "-o", machine}, machine);
  for (const std::string& out : {results, scratch / "link.json"}) {
    refuses({"calibrate", "cpu", "--from", results, "-o", out}, results);
    refuses({"calibrate", "cuda", "--from", results, "-o", out}, results);
  }
  // A run writes its measurements next to the profile; here they would overwrite the profile that it starts from.
  refuses({"calibrate", "cpu", "--profile", machine, "-o", scratch / "mine.yaml", "--program", "/bin/false"}, machine);
}

TEST_CASE("calibrate refuses a file that is given twice, whose rows would count twice") {
  const Scratch scratch;
  const std::string points = scratch / "points.csv", results = scratch / "cpu.json", out = scratch / "out.yaml";
  std::filesystem::copy_file(KVCAST_SOURCE_DIR "/configs/hardware/points/gemm-l40s-sglang.csv", points);
  std::filesystem::copy_file(KVCAST_SOURCE_DIR "/configs/validation/gpu/h200-kvcast/cpu.json", results);
  std::filesystem::create_symlink(results, scratch / "link.json");
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"calibrate", "table", points, points, "--profile", "l40s", "--source", "me", "-o", out},
           {"calibrate", "cpu", "--from", results, "--from", scratch / "link.json", "-o", out}}) {
    const Output o = kvcast(arguments);
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Contains(": its rows would count twice"));
  }
}

TEST_CASE(
    "a host outside the allowed range is not written, and a stage without held-out points has no held-out error") {
  const Scratch scratch;
  json document = json::parse(slurp(KVCAST_SOURCE_DIR "/configs/validation/gpu/h200-kvcast/cpu.json"));
  for (json& row : document["rows"]) {
    if (row["time_s"].is_null()) continue;
    for (json& time : row["time_s"]) time = 1000 * time.get<double>();
  }
  const std::string from = scratch.write("slow.json", document.dump()), out = scratch / "slow.yaml";
  const Output o = kvcast({"calibrate", "cpu", "--from", from, "-o", out});
  INFO(o.err);
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("dram_bandwidth: ") && Contains(" MB/s is out of range, must be between 100 MB/s"));
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_THAT(o.err, Contains("held out                         0 points, error median -, p90 -"));
}

TEST_CASE("points without a source are not fitted") {
  const Scratch scratch;
  const Output o = kvcast({"calibrate", "table", "configs/hardware/points/gemm-l40s-sglang.csv", "--profile", "l40s",
                           "--source", " ", "-o", scratch / "p.yaml"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("--source is empty"));
}

TEST_CASE("validate kernels judges the fitted profiles by points that no fit has seen", "[minutes]") {
  const Output o = kvcast({"validate", "kernels", "--json"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  const json suite = json::parse(o.out)["suites"][0];
  CHECK(suite["passed"] == true);
  CHECK(suite["cases"].size() > 1000);
  for (const json& c : suite["cases"]) CHECK(c["held_out"] == true);
  CHECK(suite["budgets"].size() >= 30);
  // Line 2 of the first table: batch 32, context 2, 64 query heads, 8 KV heads.
  const auto first = std::find_if(suite["cases"].begin(), suite["cases"].end(),
                                  [](const json& c) { return c["id"] == "attention-a100_sxm-vllm:2"; });
  REQUIRE(first != suite["cases"].end());
  CHECK((*first)["quantity"] == "decode attention, 256 x 2 tokens, group 8");
  // A measured host is judged like a machine, although no machine has it.
  const auto of_host = [](const json& c) { return c["group"] == "epyc-2-cores hash look-up"; };
  CHECK(std::count_if(suite["cases"].begin(), suite["cases"].end(), of_host) == 7);
}

TEST_CASE("a point that names its kernel is compared with the profile of that kernel") {
  // One row of 2 tokens: FlashInfer takes half of FlashAttention's time on L40S, and both are SGLang.
  const Scratch scratch;
  const auto bias = [&](const std::string& kernel, const std::string& us) {
    const std::string path = scratch.write("p.csv",
                                           "device,framework,kernel,batch,ctx,n_q,n_kv,head_dim,latency_us\n"
                                           "l40s,sglang," +
                                               kernel + ",1,2,32,8,128," + us + "\n");
    const Output o = kvcast({"validate", "kernels", "--points", path, "--json"});
    INFO(o.err);
    REQUIRE(o.code == 0);
    return json::parse(o.out)["bias"].get<double>();
  };
  CHECK(std::abs(bias("flashinfer", "5.6")) < 0.2);
  CHECK(std::abs(bias("flash_attention", "10.8")) < 0.2);
  CHECK(bias("unheard_of", "5.6") == bias("flashinfer", "5.6"));  // the framework's own
}

}  // namespace kvcast::tests
