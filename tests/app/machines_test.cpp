// Machines and models as users see them: listed, shown, and altered from the command line.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/record_of.hpp"

namespace kvcast::tests {

using Catch::Contains;
using Catch::StartsWith;
using nlohmann::json;

namespace {

json json_of(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Output o = kvcast(arguments);
  INFO(o.err);
  REQUIRE(o.code == 0);
  return json::parse(o.out);
}

const json& number(const json& machine, const std::string& key) {
  for (const json& one : machine["numbers"]) {
    if (one["key"] == key) return one;
  }
  FAIL("no number " << key);
  return machine;
}

}  // namespace

TEST_CASE("hardware lists the machines, and each number of a machine with its source") {
  const json all = json_of({"hardware"});
  std::map<std::string, json> by_name;
  for (const json& one : all) by_name[one["name"]] = one;
  REQUIRE(by_name.count("h200") == 1);
  CHECK(by_name["h200"]["host"] == "xeon-8480c");
  CHECK_THAT(kvcast({"hardware"}).out, Contains("h200") && Contains("NVIDIA L40S"));

  const json h200 = json_of({"hardware", "H200 SXM"});  // an alias except for case and spaces
  CHECK(h200["name"] == "h200");
  CHECK(h200["changes"].empty());
  const json& bandwidth = number(h200, "gpu.hbm_bandwidth");
  CHECK(bandwidth["value"] == 4.8e12);
  CHECK(bandwidth["unit"] == "bytes/s");
  CHECK(bandwidth["origin"] == "datasheet");
  CHECK(bandwidth["source"].get<std::string>() != "");
  const json& gathers = number(h200, "host.core_bandwidth");
  CHECK(gathers["points"][0] == json({64, 2.5e9}));
  CHECK(gathers["x_unit"] == "bytes");
  CHECK_THAT(kvcast({"hardware", "h200"}).out, Contains("gpu.hbm_bandwidth") && Contains("4.8 TB/s"));

  const Output none = kvcast({"hardware", "h2000"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("did you mean \"h200\"?"));
  CHECK(kvcast({"hardware", "--set", "gpu.clock=x2"}).code == 2);
}

TEST_CASE("hardware shows which numbers change with another one") {
  const json faster = json_of({"hardware", "h200", "--set", "link.h2d_bandwidth=104 GB/s", "--set", "host.cores=64"});
  CHECK(faster["name"] == "h200 (link.h2d_bandwidth 104 GB/s, host.cores 64)");
  CHECK(number(faster, "link.theory_bandwidth")["value"] == Approx(126e9));  // 63 GB/s, of which 52 were reached
  CHECK(number(faster, "host.cores")["value"] == 64);
  CHECK(json_of({"hardware", "h200", "--set", "hardware.host.cores=64"})["name"] == "h200 (host.cores 64)");
  std::map<std::string, std::string> follows;
  for (const json& change : faster["changes"]) follows[change["key"]] = change["follows"];
  CHECK(follows["link.h2d_bandwidth"] == "");
  CHECK(follows["link.theory_bandwidth"] == "link.h2d_bandwidth");
  CHECK_THAT(kvcast({"hardware", "h200", "--set", "gpu.clock=x2"}).out,
             Contains("gpu.tensor_flops = 1.978 PFLOP/s instead of 989 TFLOP/s (follows gpu.clock: "));
  const Output o = kvcast({"hardware", "h200", "--set", "gpu.clok=x2"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("unknown key \"clok\" (did you mean \"clock\"?)"));
}

TEST_CASE("models lists the models, and the sizes that follow from a shape") {
  const json all = json_of({"models"});
  CHECK(all.size() > 20);
  const json llama = json_of({"models", "llama-3.1-8b"});
  CHECK(llama["layers"] == 32);
  CHECK(llama["parameters"] == 8030261248);
  CHECK(llama["kv_bytes_per_token"] == 2 * 2 * 8 * 128 * 32);  // K and V, 2 bytes, 8 heads of 128, 32 layers
  CHECK_THAT(kvcast({"models", "llama-3.1-8b"}).out, Contains("8.03 billion parameters"));
  CHECK_THAT(kvcast({"models", "deepseek-v3"}).out,
             Contains("128 query heads over a latent vector of 512 and a shared key of 64 dimensions") &&
                 Contains("256 experts of width 2048, 8 of them active per token, 1 shared") &&
                 Contains("released in fp8"));
  CHECK_THAT(kvcast({"models", "gpt-oss-120b"}).out,
             Contains("18 of 36 layers attend to the last 128 tokens alone") && Contains("experts in mxfp4"));
  // Policies that select by single heads' keys make no sense if heads share one vector.
  const Output refused = kvcast({"run", std::string(KVCAST_SOURCE_DIR) + "/configs/runs/quickstart.yaml", "--set",
                                 "model=deepseek-v3", "--set", "policy=quest"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("quest selects by the keys of single heads") && Contains("known: full, dsa"));
  CHECK(kvcast({"models", "gpt-9"}).code == 2);
}

TEST_CASE("policies describes a policy file and the policy that it configures") {
  const std::string all = kvcast({"policies"}).out;
  CHECK_THAT(all, Contains("files under configs/policies") && Contains("arkvale-released"));
  CHECK_THAT(all, StartsWith("reference\n  full "));
  const Output o = kvcast({"policies", "arkvale-released"});
  INFO(o.err);
  CHECK(o.code == 0);
  CHECK_THAT(o.out, Contains("configs/policies/arkvale-released.yaml") && Contains("ArkVale as released") &&
                        Contains("Source: pku-liang/ArkVale") && Contains("runtime              python") &&
                        Contains("\narkvale (") && Contains("Parameters"));
  const json file = json_of({"policies", "kivi-quest"});
  CHECK(file["policy"] == json_of({"policies", "kivi"}));
  CHECK(file["settings"].size() == 1);

  const Scratch scratch;
  const std::string own = scratch.write("own.yaml", "name: quest\nbudget: 512\n");
  CHECK_THAT(kvcast({"policies", own}).out, Contains("budget               512"));
  const Output wrong = kvcast({"policies", scratch.write("wrong.yaml", "name: quests\n")});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("wrong.yaml:1:7: unknown policy \"quests\" (did you mean \"quest\"?)"));
  const Output key = kvcast({"policies", scratch.write("key.yaml", "name: quest\nbudgt: 512\n")});
  CHECK(key.code == 2);
  CHECK_THAT(key.err, Contains("key.yaml:2:8: quest: unknown policy parameter \"budgt\" (did you mean \"budget\"?)"));
  const Output misspelt = kvcast({"policies", "arkvale-relased"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, Contains("unknown policy \"arkvale-relased\" (did you mean \"arkvale-released\"?)"));
}

TEST_CASE("frameworks shows the keys for particular models and GPUs, and refuses unknown ones") {
  CHECK_THAT(kvcast({"frameworks", "transformers-sdpa"}).out,
             Contains("  engine_layer           300 us     assumed      ± 60 %   as transformers-eager") &&
                 Contains("For H100, H200, H20, GH200, B200 only:\n  attention_plan         33 ms      measured ") &&
                 Contains("± 30 %   16 virtual cores"));
  CHECK_THAT(json_of({"frameworks", "transformers-sdpa"})["for_gpus"].get<std::string>(), Contains("GH200"));
  const Scratch scratch;
  const auto refused = [&](const std::string& keys) {
    const Output o = kvcast({"frameworks", scratch.write("own.yaml", "title: t\nsource: s\n" + keys)});
    CHECK(o.code == 2);
    return o.err;
  };
  CHECK_THAT(refused("versions: {from: \"v0.16\"}\n"),
             Contains("own.yaml:3:18: from: expected a version such as 0.16, found \"v0.16\""));
  CHECK_THAT(refused("for_models: [{models: [none], pages: 8}]\n"), Contains("own.yaml:3:38: framework: unknown key"));
  CHECK_THAT(
      refused("for_models: [{models: [\"llama*\", llama-3.1-8], page: 8}]\n"),
      Contains("own.yaml:3:23: for_models: models: nothing under configs/models matches \"llama-3.1-8\" (did you "
               "mean \"llama-3.1-8b\"?); known: "));
  CHECK_THAT(refused("for_gpus: [{gpus: [H200, H2000], page: 8}]\n"),
             Contains("own.yaml:3:19: for_gpus: gpus: nothing under configs/hardware matches \"H2000\"") &&
                 Contains("known: a10"));
}

TEST_CASE("numbers of a run's machine can be set on the command line") {
  const std::string run =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: full\n"
      "workload: {prompt_tokens: 1000, decode_tokens: 40, batch: 2}\n"
      "trace: {recipe: needle, seed: 3, layers: 2, steps: 8}\nframework: {warmup_steps: 4, measured_steps: 4}\n";
  const auto step = [&](const std::vector<std::string>& settings) {
    return record_of(run, settings)["decode"]["tpot_s"]["mean"].get<double>();
  };
  const double before = step({});
  CHECK(step({"hardware.gpu.hbm_bandwidth=x1"}) == before);
  // A step of full attention reads 2.5 GB of weights: much of it is the memory's time.
  CHECK(step({"hardware.gpu.hbm_bandwidth=x2"}) < 0.8 * before);
  CHECK(step({"hardware.gpu.hbm_bandwidth=x0.5"}) > 1.5 * before);
  const Scratch scratch;
  const std::string path = scratch.write("run.yaml", run);
  const Output o = kvcast({"run", path, "--set", "hardware.gpu.hbm_bandwidth=fast"});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("--set hardware.gpu.hbm_bandwidth=fast: hardware.gpu.hbm_bandwidth: expected bytes/s"));
}

TEST_CASE("a list names a broken file and still shows the others") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "configs/hardware/folder.yaml");
  scratch.write("configs/hardware/broken.yaml", "");
  for (const char* const folder : {"models", "frameworks"}) {
    std::filesystem::create_directories(scratch / (std::string("configs/") + folder));
    scratch.write(std::string("configs/") + folder + "/broken.yaml", "");
  }
  const auto here = [&](const std::vector<std::string>& arguments) {
    const std::string folder = scratch / "";
    return kvcast(arguments, [&] {
      if (chdir(folder.c_str()) != 0) _exit(125);
    });
  };
  for (const auto& [command, last] :
       {std::pair{"hardware", "v100-32gb"}, {"models", "yi-9b-200k"}, {"frameworks", "vllm-eager"}}) {
    const Output o = here({command});
    CHECK(o.code == 2);
    CHECK(o.err == fmt::format("kvcast: configs/{}/broken.yaml:1:1: the document is empty\n", command));
    CHECK_THAT(o.out, Contains(fmt::format("\n  {} ", last)));
  }
  CHECK_THAT(here({"hardware", "h200-sxm"}).out, StartsWith("h200: "));  // an alias, for which files are searched
}

TEST_CASE("a data folder without data is refused by its name") {
  const Output o = kvcast({"models"}, [] { setenv("KVCAST_DATA", "/nonexistent", 1); });
  CHECK(o.code == 2);
  CHECK(o.err == "kvcast: KVCAST_DATA=/nonexistent: it has no folder configs/models\n");
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "configs/models");
  const std::string data = scratch / "";
  const Output part = kvcast({"models", "nothing"}, [&] {
    setenv("KVCAST_DATA", data.c_str(), 1);
    if (chdir(data.c_str()) != 0) _exit(125);
  });
  CHECK(part.err ==
        fmt::format(
            "kvcast: nothing named \"nothing\" under configs/models, neither in the working directory nor in {}\n",
            data));
}

TEST_CASE("the heading of a run names its framework and deployment and mentions a missing price") {
  const std::vector<std::string> run = {"run",   "configs/runs/quickstart.yaml", "--set", "workload.prompt_tokens=1024",
                                        "--set", "workload.decode_tokens=16",    "--set", "score=none"};
  const auto heading = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = run;
    for (const std::string& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    const Output o = kvcast(arguments);
    INFO(o.err);
    REQUIRE(o.code == 0);
    return o.out.substr(0, o.out.find("\n\n"));
  };
  CHECK_THAT(heading({"framework=vllm-0.6", "deployment.weights=fp8"}), Contains("; under vllm-0.6; weights fp8\n"));
  CHECK_THAT(heading({"price_per_hour={l40s: 1}"}), Contains("price_per_hour has no price of "));
}

}  // namespace kvcast::tests
