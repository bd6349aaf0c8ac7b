// Frameworks by name and by keys: the file that a name with a version selects, the changes of a run, and every error.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/find.hpp"
#include "config/framework.hpp"
#include "config/run.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Framework framework_of(const std::string& text, const char* model = "llama-3.1-8b", const Hardware& machine = {}) {
  return read_framework(*parse_yaml("framework: " + text, "run.yaml").find("framework"), model_named(model), machine);
}

Framework framework_on(const std::string& text, const std::string& machine) {
  return framework_of(text, "llama-3.1-8b", read_hardware(parse_yaml(machine, "run.yaml")));
}

// The message for a framework file with these keys, from the file's name on; they begin in line 3.
std::string error_of_file(const std::string& keys) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/own.yaml";
  std::ofstream(path) << "title: t\nsource: s\n" << keys;
  const std::string message = error_of([&] { read_framework_file(path); });
  const std::size_t name = message.find("own.yaml");
  return name == std::string::npos ? message : message.substr(name);
}

std::string error_of_framework(const std::string& text) {
  return error_of([&] { framework_of(text); });
}

std::string file_of(const std::string& name) { return std::filesystem::path(find_framework(name, {})).stem().string(); }

}  // namespace

TEST_CASE("every framework file is valid, and each of its numbers states source and uncertainty", "[framework]") {
  int files = 0;
  for (const std::string& path : config_files("frameworks")) {
    INFO(path);
    const FrameworkFile file = read_framework_file(path);
    CHECK_FALSE(file.source.empty());
    const Framework framework = framework_of(file.name);
    CHECK(framework.name == file.name);
    for (const FrameworkNumber& n : framework_numbers()) {
      const Value& v = framework.*n.member;
      CHECK((v.value > 0) == (v.uncertainty > 0 && !v.source.empty()));
    }
    ++files;
  }
  CHECK(files >= 9);
}

TEST_CASE("a name with a version selects the file that covers it", "[framework]") {
  CHECK(file_of("vllm") == "vllm");
  CHECK(file_of("vllm-0.6") == "vllm-0.6");
  CHECK(file_of("vllm-0.6.3") == "vllm-0.6");
  CHECK(file_of("vllm-0.7.9") == "vllm-0.6");
  CHECK(file_of("vllm-0.8.0") == "vllm-0.8");
  CHECK(file_of("vllm-0.10") == "vllm-0.8");  // ten is more than eight
  CHECK(file_of("vllm-0.20.1") == "vllm");
  CHECK(file_of("vllm-0.26.0") == "vllm-0.21");
  CHECK(file_of("vllm-0.2.3-eager") == "vllm-0.2-eager");
  CHECK(file_of("vllm-0.4.2") == "vllm-0.2");
  CHECK(file_of("vllm-0.4.3") == "vllm-0.5");
  CHECK(file_of("trtllm-0.6") == "trtllm-0.5");
  CHECK(file_of("vllm-0.7-eager") == "vllm-0.6-eager");
  CHECK(file_of("vllm-0.26-eager") == "vllm-eager");
  CHECK(file_of("sglang-0.4") == "sglang");
  CHECK(file_of("transformers-4.46.2-flash") == "transformers-4.46-flash");
  CHECK(file_of("transformers-4.51-sdpa") == "transformers-4.48-sdpa");
  CHECK(file_of("transformers-4.57-eager") == "transformers-4.56-eager");
  CHECK(file_of("transformers-5.17-eager") == "transformers-eager");
  const std::string none = error_of([] { find_framework("sglang-0.1", {"run.yaml", 3, 4}); });
  CHECK_THAT(none, Catch::Contains("run.yaml:3:4: nothing named \"sglang-0.1\"") &&
                       Catch::Contains("no file of \"sglang\" covers this version") && Catch::Contains("vllm-0.6"));
}

TEST_CASE("model-specific behaviour of a framework applies only to those models", "[framework]") {
  CHECK_FALSE(framework_of("transformers-4.46-flash").expand_kv_heads);
  CHECK(framework_of("transformers-4.46-flash", "qwen2.5-7b").expand_kv_heads);
  CHECK_FALSE(framework_of("transformers-4.46-flash", "qwen3-8b").expand_kv_heads);
  CHECK(framework_of("transformers-4.46-sdpa").expand_kv_heads);
}

TEST_CASE("keys given next to a framework's name override it, and overridden numbers state so", "[framework]") {
  const Framework plain = framework_of("vllm-0.6");
  const Framework eager = framework_of("{name: vllm-0.6, launch: eager, engine_step: 3 ms}");
  CHECK(eager.launch == Framework::Launch::kEager);
  CHECK(eager.engine_step.value == 3e-3);
  CHECK(eager.engine_step.origin == Origin::kAssumed);
  CHECK(eager.engine_step.uncertainty == plain.engine_step.uncertainty);
  CHECK(eager.engine_step.source == "framework.engine_step as the run sets it");
  CHECK(eager.engine_sequence.source == plain.engine_sequence.source);
  CHECK(eager.page == plain.page);
  CHECK(eager.name == "vllm-0.6 (launch eager, engine_step 3 ms)");
  CHECK(canonical(eager) != canonical(plain));
  CHECK(framework_of("{name: vllm-0.6, engine_step: x2}").engine_step.value == Approx(2 * plain.engine_step.value));
  const Framework surer = framework_of("{name: vllm-0.6, engine_step: {uncertainty: 5 %}}");
  CHECK(surer.engine_step.value == plain.engine_step.value);
  CHECK(surer.engine_step.uncertainty == 0.05);
  CHECK(surer.engine_step.origin == plain.engine_step.origin);
  CHECK(framework_of("{engine_step: 1 ms}").engine_step.value == 1e-3);
  CHECK(framework_of("{engine_step: 1 ms}").name.empty());
}

TEST_CASE("a file inherits the keys of the file that it names as `like`", "[framework]") {
  // vllm-eager: the host time of vllm-0.8 with its own uncertainty and source; the other keys are inherited.
  const Framework base = framework_of("vllm-0.8"), eager = framework_of("vllm-eager");
  CHECK(read_framework_file(find_framework("vllm-eager", {})).like == "vllm-0.8");
  CHECK(eager.launch == Framework::Launch::kEager);
  CHECK(eager.engine_step.value == base.engine_step.value);
  CHECK(eager.engine_step.origin == base.engine_step.origin);
  CHECK(eager.engine_step.uncertainty == 0.5);
  CHECK_THAT(eager.engine_step.source, Catch::StartsWith("as vllm-0.8; "));
  CHECK(eager.engine_sequence.source == base.engine_sequence.source);
  CHECK(eager.max_batch == base.max_batch);
  CHECK(eager.prefill_chunk == base.prefill_chunk);
  // Versions are not inherited. A chain through two files: transformers-4.46-sdpa, 4.48-sdpa, 4.48-flash, flash.
  CHECK(read_framework_file(find_framework("transformers-4.46-sdpa", {})).before == "4.48");
  CHECK(framework_of("transformers-4.46-sdpa").expand_kv_heads);
  CHECK(framework_of("transformers-4.46-sdpa").concatenate_cache);
}

TEST_CASE("keys for particular models are inherited unless a file has its own", "[framework]") {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& name, const std::string& keys) {
    const std::string path = folder.path() + "/" + name + ".yaml";
    std::ofstream(path) << "title: t\nsource: s\n" << keys;
    return path;
  };
  const std::string base = write(
      "base", "page: 16\nfor_models:\n  - {models: [\"llama*\"], page: 32}\n  - {models: [\"qwen*\"], page: 8}\n");
  const std::string same = write("same", "like: " + base + "\nmax_batch: 4\n");
  const std::string own = write("own", "like: " + base + "\nfor_models:\n  - {models: [\"qwen*\"], page: 64}\n");
  CHECK(framework_of(same).page == 32);
  CHECK(framework_of(same).max_batch == 4);
  CHECK(framework_of(own).page == 16);
  CHECK(framework_of(own, "qwen2.5-7b").page == 64);
  const std::string itself = write("itself", "like: " + folder.path() + "/itself.yaml\n");
  CHECK_THAT(error_of_framework(itself),
             Catch::Contains("itself.yaml:3:7: like: ") && Catch::Contains("is like this file"));
  const std::string missing = write("missing", "like: vlm\n");
  CHECK_THAT(error_of_framework(missing), Catch::Contains("missing.yaml:3:7: ") && Catch::Contains("vllm"));
}

TEST_CASE("versions of a file are checked when it is read", "[framework]") {
  CHECK(error_of_file("versions: {from: 0.16, before: \"1.0\"}\n") == "no error");
  CHECK(error_of_file("versions: {}\n") == "no error");
  CHECK(error_of_file("versions: {from: \"v0.16\"}\n") ==
        "own.yaml:3:18: from: expected a version such as 0.16, found \"v0.16\"");
  CHECK(error_of_file("versions: {before: 0.16.}\n") ==
        "own.yaml:3:20: before: expected a version such as 0.16, found \"0.16.\"");
  CHECK_THAT(error_of_file("versions: {from: 0.16-rc1}\n"), Catch::Contains("found \"0.16-rc1\""));
  CHECK(error_of_file("versions: {from: \"0.10\", before: \"0.8\"}\n") ==
        "own.yaml:3:34: before: must be a later version than from (0.10), found 0.8");
  CHECK_THAT(error_of_file("versions: {from: \"1.0\", before: \"1.0\"}\n"), Catch::Contains("must be a later version"));
}

TEST_CASE("keys for particular models and GPUs are checked whether or not they apply", "[framework]") {
  for (const auto& [list, names] : {std::pair{"for_models", "models"}, std::pair{"for_gpus", "gpus"}}) {
    const auto error = [list = list, names = names](const std::string& keys) {
      return error_of_file(fmt::format("{}:\n  - {{{}: [nothing], {}}}\n", list, names, keys));
    };
    CHECK(error("page: 8") == "no error");
    CHECK_THAT(error("pages: 8"), Catch::StartsWith("own.yaml:4:") && Catch::Contains("unknown key \"pages\" (did you "
                                                                                      "mean \"page\"?)"));
    CHECK_THAT(error("page: many"), Catch::Contains("page: expected an integer, found \"many\""));
    CHECK_THAT(error("engine_step: 1"), Catch::StartsWith("own.yaml:4:") && Catch::Contains("engine_step: expected"));
    CHECK_THAT(error_of_file(fmt::format("{}: [{{page: 8}}]\n", list)),
               Catch::Contains(fmt::format("the required key \"{}\" is missing", names)));
    CHECK_THAT(error_of_file(fmt::format("{}: [{{{}: [], page: 8}}]\n", list, names)),
               Catch::Contains(fmt::format("{}: the list is empty", names)));
    CHECK_THAT(error_of_file(fmt::format("{}: [page]\n", list)), Catch::StartsWith("own.yaml:3:"));
    CHECK_THAT(error_of_file(fmt::format("{}: page\n", list)), Catch::Contains("expected a list of maps"));
  }
}

TEST_CASE("cuDNN plans attention repeatedly only on Hopper and on a B200", "[framework]") {
  for (const std::string& path : config_files("hardware")) {
    const std::string name = std::filesystem::path(path).stem().string();
    INFO(name);
    const bool planned = name.starts_with("h") || name == "gh200" || name == "b200";
    CHECK(framework_on("transformers-sdpa", name).attention_plan.value == Approx(planned ? 33e-3 : 0));
    CHECK(framework_on("transformers-eager", name).attention_plan.value == 0);
  }
  CHECK(framework_on("transformers-sdpa", "h200").attention_plan.origin == Origin::kMeasured);
  CHECK(framework_on("{name: transformers-sdpa, attention_plan: 1 ms}", "h200").attention_plan.value == Approx(1e-3));
}

TEST_CASE("the keys for a run's GPU apply to the run", "[framework]") {
  const auto plan_on = [](const std::string& machine) {
    const std::string text =
        "model: llama-3.1-8b\npolicy: full\nframework: transformers-sdpa\nhardware: " + machine + "\n";
    return read_run(parse_yaml(text, "run.yaml")).framework.attention_plan.value;
  };
  CHECK(plan_on("a100-80gb-sxm") == 0);
  CHECK(plan_on("{like: h200, gpu: {hbm_capacity: 10 TB}}") == Approx(33e-3));
}

TEST_CASE("a GPU is recognised by the words in its machine's name", "[framework]") {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = folder.path() + "/" + name + ".yaml";
    std::ofstream(path) << text;
    return path;
  };
  const auto page_on = [&](const std::string& gpus, const std::string& machine) {
    const std::string path =
        write("own", "title: t\nsource: s\npage: 16\nfor_gpus: [{gpus: [" + gpus + "], page: 8}]\n");
    return framework_on(path, machine).page;
  };
  CHECK(page_on("H100", "h100-pcie") == 8);
  CHECK(page_on("h100", "h100-pcie") == 8);
  CHECK(page_on("H10", "h100-pcie") == 16);
  CHECK(page_on("RTX 4090", "rtx-4090") == 8);
  CHECK(page_on("\"-\"", "rtx-4090") == 16);
  CHECK(page_on("H200, L4", "l4") == 8);
  // A machine with changed numbers; another host does not make it another GPU.
  CHECK(page_on("A30", "{like: a30, gpu: {hbm_capacity: 48 GB}}") == 8);
  CHECK(page_on("cores", "{like: a30, host: {cores: 9}}") == 16);
  // A user's profile that is derived from another profile, of the same architecture or not.
  const std::string node = write("node", "title: Our node\nlike: {name: h200, uncertainty: 20 %}\nhost: xeon-8480c\n");
  CHECK(page_on("H200", node) == 8);
  const std::string next =
      write("next", "title: Our node\nlike: {name: h200, uncertainty: 20 %, architecture: other}\nhost: xeon-8480c\n");
  CHECK(page_on("H200", next) == 16);
}

TEST_CASE("every key of a framework is read, listed and part of the key of its results", "[framework]") {
  const Framework plain = framework_of("{}");
  for (const FrameworkKey& key : framework_keys()) {
    INFO(key.name);
    CHECK_FALSE(key.about.empty());
    const std::string changed = std::holds_alternative<Framework::Launch Framework::*>(key.member) ? "eager"
                                : std::holds_alternative<Framework::AttentionKernels Framework::*>(key.member)
                                    ? "flash_2"
                                : std::holds_alternative<bool Framework::*>(key.member) ? "true"
                                : key.dimension == Dimension::kSeconds                  ? "3 ms"
                                : key.dimension == Dimension::kBytes                    ? "3 B"
                                                                                        : "7";
    const Framework other = framework_of(fmt::format("{{{}: {}}}", key.name, changed));
    CHECK(setting_of(other, key) != setting_of(plain, key));
    CHECK(canonical(other) != canonical(plain));
  }
}

TEST_CASE("invalid frameworks are rejected with their location", "[framework]") {
  CHECK_THAT(error_of_framework("[eager]"), Catch::Contains("run.yaml:1:12: framework: expected a name or a map"));
  CHECK_THAT(error_of_framework("vlm"),
             Catch::Contains("run.yaml:1:12: nothing named \"vlm\"") && Catch::Contains("vllm"));
  CHECK_THAT(error_of_framework("{name: vllm, engine_steps: 1 ms}"), Catch::Contains("engine_steps"));
  CHECK_THAT(error_of_framework("{name: vllm, engine_step: 1}"), Catch::Contains("run.yaml:1:38"));
  CHECK_THAT(error_of_framework("{engine_step: x2}"), Catch::Contains("a factor needs a framework by name"));
  CHECK_THAT(error_of_framework("{page: -1}"), Catch::Contains("run.yaml:1:19"));
  CHECK_THAT(error_of_framework("{attention_kernels: flash_9}"), Catch::Contains("known: native, flash_2"));
}

TEST_CASE("a framework is found under another spelling and among broken files", "[framework]") {
  CHECK(file_of("VLLM") == "vllm");
  CHECK(file_of("vLLM-0.6") == "vllm-0.6");
  CHECK(file_of("vLLM-0.9.1") == "vllm-0.8");
  const TemporaryDirectory folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directories(folder.path() + "/configs/frameworks");
  std::ofstream(folder.path() + "/configs/frameworks/vllm-0.1.yaml") << "title: no source\n";
  std::filesystem::current_path(folder.path());
  const std::string covered = file_of("vllm-0.6.4");
  const std::string message = error_of([] { find_framework("nothing-1.0", {}); });
  const std::string of_family = error_of([] { find_framework("vllm-0.1.7", {}); });
  std::filesystem::current_path(before);
  CHECK(covered == "vllm-0.6");
  CHECK_THAT(message, Catch::StartsWith("nothing named \"nothing-1.0\"") && !Catch::Contains("not read"));
  CHECK_THAT(of_family, Catch::Contains("(not read: configs/frameworks/vllm-0.1.yaml:1:1: framework file: the required "
                                        "key \"source\" is missing)"));
}

TEST_CASE("a number that a file changes names the file as its source", "[framework]") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/own.yaml";
  std::ofstream(path) << "title: t\nsource: s\nlike: vllm\nengine_step: x2\n";
  CHECK(framework_of(path).engine_step.source == "framework.engine_step as own sets it");
  CHECK(framework_of("{name: vllm, engine_step: x2}").engine_step.source == "framework.engine_step as the run sets it");
  CHECK_THAT(error_of_file("engine_step: 2 ms\n"),
             Catch::Contains("engine_step: expected a map {value, origin, uncertainty, source}, found \"2 ms\""));
}

}  // namespace kvcast::tests
