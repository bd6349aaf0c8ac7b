// kvcast init: a commented configuration to start from, for a model, a machine and a question.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string_view>
#include <tuple>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/text.hpp"
#include "plan/question.hpp"
#include "policies/all.hpp"
#include "study/prepare.hpp"

namespace kvcast::app {
namespace {

struct InitOptions {
  std::string model = "llama-3.1-8b", hardware = "h100-sxm", policy = "rocketkv", question = "run", out = "kvcast.yaml";
};

// A text that may follow the run in the file: nothing, or a question about it.
struct Example {
  const char* name;
  const char* about;
  const char* text;
};

constexpr Example kExamples[] = {{"run", "how fast is this setting, and what limits it", ""},
                                 {"policy", "which policy serves most requests", R"(
# kvcast plan FILE: each policy at its own best batch that meets the targets. Prices make the answer the cheapest.
plan:
  - choose:
      policy: [full, {name: quest, budget: 2048}, {name: snapkv, budget: 2048}, {name: rocketkv, budget: 1024}]
      targets: {request.ttft_s: "<= 10 s", decode.tpot_s.mean: "<= 50 ms"}   # `kvcast metrics` lists all that can be limited
)"},
                                 {"service", "which policy serves most within an SLO, as requests come and go", R"(
# kvcast plan FILE: each policy at the highest rate at which 99 % of the requests keep the SLO. With prices, the cheapest.
traffic:            # in place of `workload:`
  rate: 0.5         # requests a second to start from
  requests: 200
  prompt_tokens: 32K
  output_tokens: 512
  slo: {ttft: 5 s, tpot: 50 ms}
plan:
  - choose:
      policy: [full, {name: quest, budget: 2048}, {name: snapkv, budget: 2048}, {name: rocketkv, budget: 1024}]
)"},
                                 {"hardware", "which machine serves a request at the lowest price", R"(
# kvcast plan FILE: prices are those of one GPU an hour, in any currency; replace them by your own.
plan:
  - choose:
      hardware: [h100-sxm, a100-80gb-sxm, l40s, rtx-4090]
      price_per_hour: {h100-sxm: 2.5, a100-80gb-sxm: 1.5, l40s: 0.9, rtx-4090: 0.4}
      targets: {decode.tpot_s.mean: "<= 50 ms"}
)"},
                                 {"batch", "how many requests at a time", R"(
# kvcast plan FILE
plan:
  - largest: {key: workload.batch, targets: {decode.tpot_s.p99: "<= 50 ms", request.ttft_s: "<= 10 s"}}
)"},
                                 {"when", "from which batch on the policy pays", R"(
# kvcast plan FILE
plan:
  - break_even: {key: workload.batch, from: 1, to: 64, metric: request.requests_per_s, of: {policy: POLICY}, against: {policy: full}}
)"},
                                 {"sweep", "how budgets and batches compare", R"(
# kvcast sweep FILE -o out/DIR, then kvcast report out/DIR: all combinations of these lists.
sweep:
  policy.budget: [512, 1024, 2048]
  workload.batch: [1, 4, 16]
)"}};

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

std::string configuration(const InitOptions& options, const Example& example) {
  const policy::Descriptor& policy = policy::find_policy(options.policy);
  const bool budgeted = !policy.budget_convention.empty();
  const bool serves = std::string_view(example.text).find("\ntraffic:") != std::string_view::npos;
  return fmt::format(
             "# {}\n"
             "model: {}            # configs/models; kvcast models lists them\n"
             "hardware: {}         # configs/hardware; {{like: {}, gpu: {{hbm_capacity: 282 GB}}}} changes a number\n"
             "policy: {}           # kvcast policies {} explains its parameters\n"
             "{}"
             "framework: vllm      # kvcast frameworks; without this line: a runtime with CUDA graphs\n"
             "score: ruler         # the benchmark whose score is predicted; none: no score and no floor\n"
             "# price_per_hour: 2.5   # of one GPU: gives the cost of a request and of a million tokens\n",
             example.about, options.model, options.hardware, options.hardware,
             budgeted ? fmt::format("{{name: {}, budget: 2048}}", policy.name) : policy.name, policy.name,
             serves ? ""
                    : "workload: {prompt_tokens: 32K, decode_tokens: 512, batch: 4}   # requests at a time, and their "
                      "lengths\n") +
         replaced(example.text, "POLICY",
                  budgeted ? fmt::format("{{name: {}, budget: 2048}}", policy.name) : policy.name);
}

const Example& example_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Example& example : kExamples) {
    if (name == example.name) return example;
    known.emplace_back(example.name);
  }
  throw UserError({"--question", 1, 1},
                  fmt::format("unknown question \"{}\"{}", name, config::did_you_mean(name, known)), known);
}

// Finds mistakes of the options before anything is written.
void check(const std::string& text, const InitOptions& options) {
  config::Node config = config::parse_yaml(text, options.out);
  for (const auto& [key, name, option] :
       {std::tuple("model", options.model, "--model"), std::tuple("hardware", options.hardware, "--hardware")})
    config = config.with(key, config::Node::scalar(name, {option, 0, 0}));
  if (config.find("plan") != nullptr) {
    plan::read_plan(config);
  } else if (config.find("sweep") != nullptr) {
    study::prepare(config::expand_sweep(config).front().config);
  } else {
    study::prepare(config);
  }
}

int init(const InitOptions& options) {
  const std::string text = configuration(options, example_named(options.question));
  check(text, options);
  if (options.out == "-") {
    fmt::print("{}", text);
    return 0;
  }
  refuse_existing(options.out);
  WholeFile file(options.out);
  file.stream() << text;
  file.commit();
  const bool plans = text.find("\nplan:") != std::string::npos, sweeps = text.find("\nsweep:") != std::string::npos;
  fmt::print("{} is written. Next: kvcast {} {}{}\n", options.out,
             plans    ? "plan"
             : sweeps ? "sweep"
                      : "run",
             options.out, sweeps ? " -o out/mine" : "");
  return 0;
}

}  // namespace

void add_init(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("init", "write a commented configuration for a model, a machine and a question");
  auto options = std::make_shared<InitOptions>();
  command->add_option("--model", options->model, "a model (default: llama-3.1-8b)")->check(has_text());
  command->add_option("--hardware", options->hardware, "a machine (default: h100-sxm)")->check(has_text());
  command->add_option("--policy", options->policy, "a policy (default: rocketkv)")->check(has_text());
  std::vector<std::string> questions;
  for (const Example& example : kExamples) questions.push_back(fmt::format("{} ({})", example.name, example.about));
  command->add_option("--question", options->question, fmt::format("{}", fmt::join(questions, ", ")));
  command->add_option("-o,--out", options->out, "the file (default: kvcast.yaml; - is standard output)")
      ->check(has_text());
  command->callback([options, &result] { result = init(*options); });
}

}  // namespace kvcast::app
