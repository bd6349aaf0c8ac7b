// Files given to commands: outputs that are inputs, records and models of another trace, results of another program.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Contains;

namespace {

std::string make_trace(const Scratch& scratch, const std::string& name, const std::string& seed = "1") {
  const std::string path = scratch / name;
  const Output made =
      kvcast({"trace", "synth", "needle", "-o", path, "--set", "model=llama-3.2-1b", "--set", "prompt_tokens=300",
              "--set", "decode_steps=3", "--set", "layers=1", "--set", "seed=" + seed});
  INFO(made.err);
  REQUIRE(made.code == 0);
  return path;
}

std::string make_run(const Scratch& scratch, const std::string& trace, const std::string& policy,
                     const std::string& model = "llama-3.2-1b") {
  return scratch.write("run.yaml", "model: " + model +
                                       "\nhardware: h100-sxm\nworkload: {prompt_tokens: 300, decode_tokens: 3}\n"
                                       "trace: {file: " +
                                       trace + "}\npolicy: " + policy + "\n");
}

// Refused with exit code 2, the file unchanged.
void check_kept(const std::string& file, const std::vector<std::string>& arguments, const std::string& option) {
  const std::string before = slurp(file);
  const Output o = kvcast(arguments);
  INFO(arguments[0] << " " << option << ": " << o.err);
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains("would be overwritten: name another file by " + option));
  CHECK(slurp(file) == before);
}

// Replaces bytes of a file by as many others.
std::string with_replaced(const Scratch& scratch, const std::string& file, const std::string& from,
                          const std::string& to) {
  std::string bytes = slurp(file);
  REQUIRE(from.size() == to.size());
  REQUIRE(bytes.find(from) != std::string::npos);
  return scratch.write("changed.safetensors", bytes.replace(bytes.find(from), from.size(), to));
}

}  // namespace

TEST_CASE("an output that is an input is refused") {
  const Scratch scratch;
  const std::string trace = make_trace(scratch, "v.safetensors");
  const std::string link = scratch / "link.safetensors";
  std::filesystem::create_symlink(trace, link);
  for (const std::string& same : {trace, link}) {
    check_kept(trace, {"replay", "--trace", trace, "--policy", "full", "--selections", same}, "--selections");
    check_kept(trace, {"profile", "--trace", trace, "-o", same}, "-o");
    check_kept(trace, {"profile", "--trace", trace, "-o", scratch / "p.yaml", "--bases", same}, "--bases");
  }
  const std::string config = make_run(scratch, trace, "full");
  check_kept(config, {"run", config, "--timeline", config}, "--timeline");
  check_kept(trace, {"run", config, "--timeline", trace}, "--timeline");
  const std::string recipe = scratch.write("r.yaml", slurp(KVCAST_SOURCE_DIR "/traces/recipes/needle.yaml"));
  check_kept(recipe, {"trace", "synth", recipe, "-o", recipe}, "-o");

  const Output both = kvcast({"profile", "--trace", trace, "-o", scratch / "same.x", "--bases", scratch / "./same.x"});
  CHECK(both.code == 2);
  CHECK_THAT(both.err, Contains("-o and --bases name one file"));
  CHECK_FALSE(std::filesystem::exists(scratch / "same.x"));
  const Output lists = kvcast({"replay", "--trace", trace, "--policy", "full", "--selections", scratch / "same.x",
                               "--steps", scratch / "./same.x"});
  CHECK(lists.code == 2);
  CHECK_THAT(lists.err, Contains("--steps and --selections name one file"));
  const Output run = kvcast({"run", config, "--timeline", scratch / "same.x", "--requests", scratch / "same.x"});
  CHECK(run.code == 2);
  CHECK_THAT(run.err, Contains("--requests and --timeline name one file"));
  CHECK_FALSE(std::filesystem::exists(scratch / "same.x"));
}

TEST_CASE("recorded selections are refused on any other trace") {
  const Scratch scratch;
  const std::string trace = make_trace(scratch, "t.safetensors"), other = make_trace(scratch, "u.safetensors", "2");
  const std::string record = scratch / "s.jsonl";
  REQUIRE(
      kvcast({"replay", "--trace", trace, "--policy", "quest", "--set", "budget=64", "--selections", record}).code ==
      0);
  const auto replayed = [&](const std::string& on) {
    return kvcast({"replay", "--trace", on, "--policy", "replayed", "--set", "selections=" + record});
  };
  CHECK(replayed(trace).code == 0);
  const Output refused = replayed(other);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("s.jsonl: ") && Contains("recorded on file ") && Contains("u.safetensors is file "));
  const Output run =
      kvcast({"run", make_run(scratch, other, "{name: replayed, selections: " + record + "}"), "--json"});
  CHECK(run.code == 2);
  CHECK_THAT(run.err, Contains("recorded on file "));

  // Records that name no trace are compared by their shape alone.
  std::string text = slurp(record);
  text.erase(text.find("\"trace\""), text.find("\"layer\"") - text.find("\"trace\""));
  scratch.write("s.jsonl", text);
  CHECK(replayed(other).code == 0);

  const Output missing = kvcast({"run", make_run(scratch, trace, "{name: replayed, selections: nowhere.jsonl}")});
  CHECK(missing.code == 2);
  CHECK_THAT(missing.err, Contains("run.yaml:5:") && Contains("selections: cannot read") &&
                              Contains("nowhere.jsonl; a relative path starts from the working directory"));
}

TEST_CASE("a trace of another model is refused by name") {
  const Scratch scratch;
  const std::string trace = make_trace(scratch, "t.safetensors");
  CHECK_THAT(kvcast({"run", make_run(scratch, trace, "full")}).err, !Contains("note:"));
  const std::string renamed = with_replaced(scratch, trace, "\"llama-3.2-1b\"", "\"llama-3.1-8b\"");
  const Output run = kvcast({"run", make_run(scratch, renamed, "full")});
  CHECK(run.code == 0);
  CHECK_THAT(run.err, Contains("changed.safetensors is a trace of llama-3.1-8b, not llama-3.2-1b\n"));
  const std::string odd = with_replaced(scratch, trace, "\"llama-3.2-1b\"", "\"\\u001b3.2-1b\"");
  CHECK_THAT(kvcast({"run", make_run(scratch, odd, "full")}).err,
             Contains("is a trace of \\x1b3.2-1b, not llama-3.2-1b\n"));
  const std::string task = with_replaced(scratch, trace, "\"niah_uuid\"", "\"\\u001buid\"");
  CHECK_THAT(kvcast({"run", make_run(scratch, task, "full")}).out,
             Contains("The task score is that of \\x1buid, one text."));
  with_replaced(scratch, trace, "\"llama-3.2-1b\"", "\"llama-3.1-8b\"");
  const Output check = kvcast({"trace", "check", renamed});
  CHECK(check.code == 0);
  CHECK_THAT(check.out, Contains("warning: model: llama-3.1-8b has 32 layers") && Contains("the trace has 16 layers"));
  CHECK_THAT(kvcast({"trace", "check", trace}).out, !Contains("model"));

  const std::string turned = with_replaced(scratch, trace, "\"rope_theta\":\"500000\"", "\"rope_theta\":\"400000\"");
  CHECK_THAT(kvcast({"run", make_run(scratch, turned, "full")}).err,
             Contains("is a trace with RoPE theta 400000, not 500000\n"));
}

TEST_CASE("a profile lists each of its traces once and is written only if its bases are") {
  const Scratch scratch;
  const std::string trace = make_trace(scratch, "t.safetensors"), profile = scratch / "p.yaml";
  REQUIRE(kvcast({"profile", "--trace", trace, "-o", profile}).code == 0);
  CHECK_THAT(slurp(profile), Contains("t.safetensors") && Contains("synthetic trace, file "));

  const Output twice = kvcast({"profile", "--trace", trace, "--trace", trace, "-o", profile});
  CHECK(twice.code == 2);
  CHECK_THAT(twice.err, Contains("t.safetensors: the trace is given twice"));
  const std::string copy = scratch.write("copy.safetensors", slurp(trace));
  CHECK_THAT(kvcast({"profile", "--trace", trace, "--trace", copy, "-o", profile}).err,
             Contains("copy.safetensors: the same trace as ") && Contains("t.safetensors"));

  const std::string two_layers = scratch / "two.safetensors";
  REQUIRE(kvcast({"trace", "synth", "needle", "-o", two_layers, "--set", "model=llama-3.2-1b", "--set",
                  "prompt_tokens=300", "--set", "decode_steps=3"})
              .code == 0);
  CHECK_THAT(kvcast({"profile", "--trace", trace, "--trace", two_layers, "-o", profile}).err,
             Contains("two.safetensors: the traces of a profile must be of one model and have the same layers") &&
                 Contains("t.safetensors differ"));
  const std::string no_targets = with_replaced(scratch, trace, "\"targets\"", "\"tergats\"");
  CHECK_THAT(kvcast({"profile", "--trace", no_targets, "-o", profile}).err,
             Contains("changed.safetensors: no step of the trace has targets"));

  std::filesystem::remove(profile);
  const Output no_bases =
      kvcast({"profile", "--trace", trace, "-o", profile, "--bases", scratch / "nowhere/b.safetensors"});
  CHECK(no_bases.code == 2);
  CHECK_FALSE(std::filesystem::exists(profile));
}

TEST_CASE("validate names a file with results of another program") {
  const std::string folder = "configs/validation/gpu/h200-kvcast/";
  const Output pipeline =
      kvcast({"validate", "gpu_pipeline", "--from", folder + "kernels.json", "--profile", "h200-kvcast"});
  CHECK(pipeline.code == 2);
  CHECK_THAT(pipeline.err, Contains("kernels.json: ") && Contains("results of kvcast-pipeline are needed"));
  const Output kernels =
      kvcast({"validate", "policy_kernels", "--from", folder + "pipeline.json", "--profile", "h200-kvcast"});
  CHECK(kernels.code == 2);
  CHECK_THAT(kernels.err,
             Contains("pipeline.json: results of kvcast-pipeline; this suite compares those of kvcast-kernels"));
}

TEST_CASE("validate gpu_pipeline writes predictions of steps that nobody has measured") {
  const Scratch scratch;
  std::ifstream in(KVCAST_SOURCE_DIR "/configs/validation/gpu/h100-kvcast/pipeline.json");
  nlohmann::json cases = nlohmann::json::parse(in);
  nlohmann::json row = cases["rows"][0];
  row["time_s"] = nullptr, row["skip_reason"] = "the emulator has no sense of time";
  cases["rows"] = nlohmann::json::array({row});
  const std::string first = scratch / "first.csv";
  const Output o = kvcast({"validate", "gpu_pipeline", "--from", scratch.write("cases.json", cases.dump()), "--profile",
                           "h100-kvcast", "--first", first});
  CHECK(o.code == 0);
  CHECK_THAT(o.out, Contains("unmeasured"));
  std::ifstream table(first);
  std::string header, line, more;
  std::getline(table, header), std::getline(table, line);
  CHECK_THAT(header, Contains("scheme,batch,context,") && Contains(",profile,predicted_s"));
  CHECK_THAT(line, Contains("full,1,8192,") && Contains(",h100-kvcast,0.00"));
  CHECK_FALSE(std::getline(table, more));
}

TEST_CASE("a replay whose heads do not attend to the targets states why it has no task score") {
  const Scratch scratch;
  const std::string recipe = scratch.write("local.yaml",
                                           "description: d\nheads: {retrieval: 0, local: 1, streaming: 0}\n"
                                           "task: {needles: 2, value_tokens: 2}\n");
  const std::string trace = scratch / "local.safetensors";
  const std::vector<std::string> synth = {
      "trace", "synth",         recipe, "-o", trace, "--set", "model=llama-3.2-1b", "--set", "prompt_tokens=600",
      "--set", "decode_steps=4"};
  REQUIRE(kvcast(synth).code == 0);
  CHECK_THAT(kvcast({"trace", "check", trace}).out, Contains("warning: targets: no captured query head"));
  std::vector<std::string> replay = {"replay", "--trace", trace, "--policy", "exact_topk", "--set", "budget=64"};
  CHECK_THAT(kvcast(replay).out, Contains("task score             none: no compressed layer"));
  replay.push_back("--json");
  const auto answer = nlohmann::json::parse(kvcast(replay).out);
  CHECK(answer["task"].is_null());
  CHECK_THAT(answer["task_refused"].get<std::string>(), Contains("attends to the targets"));
  const std::string run =
      scratch.write("run.yaml",
                    "model: llama-3.2-1b\nhardware: h100-sxm\nworkload: {prompt_tokens: 600, decode_tokens: 4}\ntrace: "
                    "{file: " +
                        trace + "}\npolicy: {name: exact_topk, budget: 64}\n");
  CHECK_THAT(kvcast({"run", run}).out,
             Contains("No task score is predicted: no compressed layer of the trace has a head"));

  std::vector<std::string> no_window = synth;
  no_window.insert(no_window.end(), {"--set", "window=0"});
  const Output refused = kvcast(no_window);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("window") && Contains("between 1 and 600"));
}

TEST_CASE("errors in a trace file are reported with its name") {
  const Scratch scratch;
  const std::string trace = make_trace(scratch, "t.safetensors");
  const std::string turned = with_replaced(scratch, trace, "\"task\":\"niah_uuid\"", "\"turns\":\"[100,50]\"");
  const std::string what = "__metadata__: turns: expected ascending positions in 0 .. 302";
  const Output check = kvcast({"trace", "check", turned});
  CHECK(check.code == 1);
  CHECK(check.out == "error: " + turned + ": " + what + "\n");
  CHECK_THAT(kvcast({"trace", "info", turned}).err, Contains(turned + ": " + what));
  CHECK_THAT(kvcast({"replay", "--trace", turned, "--policy", "full"}).err, Contains(turned + ": " + what));

  // The queries of a file are fixed: no key of a configuration adds any.
  const Output queries = kvcast({"replay", "--trace", trace, "--policy", "h2o", "--set", "budget=64"});
  CHECK(queries.code == 2);
  CHECK_THAT(queries.err, Contains("Use a capture with more queries") && !Contains("trace.window"));

  const Output missing = kvcast({"trace", "check", scratch / "nowhere"});
  CHECK(missing.code == 2);
  CHECK_THAT(missing.err, Contains("nowhere: no such file"));
  for (const char* command : {"info", "check"}) {
    CHECK_THAT(kvcast({"trace", command, trace}).out, !Catch::EndsWith("\n\n"));
  }
}

TEST_CASE("calibrate's help states its budgets") {
  for (const auto& [command, median, p90] :
       {std::tuple("cpu", "(20)", "(40)"), std::tuple("cuda", "(8)", "(20)"), std::tuple("table", "(5)", "(13)")}) {
    const std::string help = kvcast({"calibrate", command, "--help"}).out;
    CHECK_THAT(help, Contains(median) && Contains(p90) && Contains("none are held out"));
  }
}

}  // namespace kvcast::tests
