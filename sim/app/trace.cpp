// kvcast trace synth | info | check: makes, describes and verifies attention traces.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "config/find.hpp"
#include "config/model.hpp"
#include "config/section.hpp"
#include "synth/synthetic.hpp"
#include "trace/inspect.hpp"
#include "trace/trace_file.hpp"

namespace kvcast::app {
namespace {

struct SynthOptions {
  std::string recipe, out;
  std::vector<std::string> settings;
};

// --set may change the shape of the trace. The recipe defines its content.
trace::SynthShape read_shape(const SynthOptions& options, std::string& dtype) {
  config::Node settings = config::Node::map({}, {"--set", 0, 0});
  for (const std::string& setting : options.settings) {
    const auto [key, value] = config::parse_setting(setting);
    settings = settings.with(key, value);
  }
  config::Section section(settings, "trace shape");
  const std::string name = section.text("model", "llama-3.1-8b");
  const config::Model model =
      config::attending(config::read_model(config::find_config("models", name, section.where("model"))));
  const std::int64_t prompt = section.integer("prompt_tokens", 1, 4'000'000, 16384);
  const auto steps = section.count("decode_steps", 1, 1'000'000, 16);
  const auto layers = section.count("layers", 1, model.layers, std::min(2, model.layers));
  const auto seed = static_cast<std::uint64_t>(section.integer("seed", 0, std::numeric_limits<std::int64_t>::max(), 1));
  dtype = section.choice("dtype", {"bf16", "f16", "f32"}, "bf16");
  trace::SynthShape shape = trace::synth_shape(model, prompt, steps, layers, seed);
  if (section.has("window")) shape.window = section.count("window", 1, static_cast<int>(prompt));
  section.finish();
  return shape;
}

int synth(const SynthOptions& options) {
  const std::string recipe = trace::find_recipe(options.recipe);
  refuse_overwritten(options.out, "-o", {{recipe}});
  std::string dtype;
  const trace::SynthShape shape = read_shape(options, dtype);
  const auto trace = trace::synthesize(trace::read_recipe(recipe), shape);
  const trace::Dtype type = dtype == "f32"   ? trace::Dtype::kF32
                            : dtype == "f16" ? trace::Dtype::kF16
                                             : trace::Dtype::kBF16;
  trace::write_trace(options.out, *trace, type, hardware_threads());
  fmt::print("{}: {} layers of {}, {} prompt tokens, {} decode steps\n", options.out, trace->info().layers.size(),
             shape.model, shape.prompt_tokens, shape.decode_steps);
  return 0;
}

void add_synth(CLI::App& parent, int& result) {
  CLI::App* command = parent.add_subcommand("synth", "make a synthetic trace from a recipe");
  auto options = std::make_shared<SynthOptions>();
  command->add_option("RECIPE", options->recipe, "a name under traces/recipes, or a YAML file")->required();
  command->add_option("-o,--out", options->out, "the trace to write (safetensors)")->required();
  add_settings(*command, options->settings,
               "change a setting: model, prompt_tokens, decode_steps, layers, seed, window, dtype (bf16, f16, f32)");
  command->callback([options, &result] { result = synth(*options); });
}

// Options of commands that take a trace and may answer in JSON.
struct LookOptions {
  std::string path;
  bool as_json = false;
};

std::shared_ptr<LookOptions> look_options(CLI::App& command) {
  auto options = std::make_shared<LookOptions>();
  command.add_option("TRACE", options->path, "a trace file (safetensors)")->required();
  command.add_flag("--json", options->as_json, "print JSON");
  return options;
}

int info(const LookOptions& options) {
  const auto trace = trace::open_trace(options.path);
  const nlohmann::json info = trace::trace_info(*trace, hardware_threads());
  fmt::print("{}", options.as_json ? info.dump(1) + "\n" : trace::trace_info_text(info));
  return 0;
}

// Returns 0 if the trace can be replayed, with or without warnings; 1 if it cannot.
int check(const LookOptions& options) {
  std::error_code unknown;
  if (const auto status = std::filesystem::status(options.path, unknown); !std::filesystem::is_regular_file(status)) {
    throw UserError({options.path, 0, 0},
                    std::filesystem::exists(status) ? "not a file, and so no trace" : "no such file");
  }
  if (!std::ifstream(options.path)) throw UserError({options.path, 0, 0}, "cannot be read");
  const auto findings = trace::check_trace_file(options.path, hardware_threads());
  if (options.as_json) {
    fmt::print("{}\n", trace::findings_json(findings).dump(1));
  } else {
    fmt::print("{}", findings.empty() ? options.path + ": nothing wrong\n" : trace::findings_text(findings));
  }
  return trace::has_errors(findings) ? 1 : 0;
}

}  // namespace

void add_trace(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("trace", "make, describe and check attention traces (synth, info, check)");
  command->require_subcommand(1);
  add_synth(*command, result);
  CLI::App* tell =
      command->add_subcommand("info", "describe a trace: identity, shape, positions, attention of its heads");
  tell->callback([options = look_options(*tell), &result] { result = info(*options); });
  CLI::App* verify = command->add_subcommand("check", "verify a trace; exits with 1 if it cannot be replayed");
  verify->callback([options = look_options(*verify), &result] { result = check(*options); });
}

}  // namespace kvcast::app
