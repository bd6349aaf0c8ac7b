// kvcast calibrate steps: a run whose machine and framework are those of one's own measured steps.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "base/whole_file.hpp"
#include "calibrate/steps.hpp"
#include "config/left_out.hpp"
#include "config/run.hpp"
#include "config/yaml.hpp"
#include "metrics/errors.hpp"
#include "result/metric.hpp"
#include "study/replays_in_memory.hpp"
#include "study/study.hpp"

namespace kvcast::app {
namespace {

using calibrate::MeasuredTime;
using calibrate::StepRow;
using config::Node;

constexpr double kFaster = 1.05, kLonger = 1e-3;  // by which rates and the host's time are changed for derivatives
constexpr const char* kMemoryKey = "hardware.gpu.hbm_bandwidth";
constexpr const char* kProductsKey = "hardware.gpu.tensor_flops";
constexpr const char* kHostKey = "framework.engine_step";

struct StepsOptions {
  std::vector<std::string> files, settings;
  std::string run, out;
};

Node written(const std::string& text, bool quoted = false) { return Node::scalar(text, {}, quoted); }

Node of_row(const Node& base, const StepRow& row) {
  return base.with("workload.batch", written(std::to_string(row.batch)))
      .with("workload.prompt_tokens", written(std::to_string(row.prompt_tokens)))
      .with("workload.decode_tokens", written(std::to_string(row.output_tokens)));
}

std::vector<result::Result> simulated_rows(const std::vector<Node>& configs, const std::vector<StepRow>& rows,
                                           std::size_t per_row) {
  std::vector<study::Point> points;
  for (const Node& config : configs) points.push_back({config, {}, {}});
  study::StudyOptions options;
  options.threads = hardware_threads();
  study::ReplaysInMemory replays;
  options.replays = &replays;
  std::vector<result::Result> results = study::run_all(points, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const SourceLocation& where = rows[i / per_row].where;
    if (results[i].status == result::Status::kFailed) throw UserError(where, results[i].error);
    if (results[i].experiment.oom)
      throw UserError(where, "this setting does not fit the machine's memory in kvcast's model");
  }
  return results;
}

// The numbers of the run that are fitted.
struct StepNumbers {
  double memory, products, host;
};

StepNumbers numbers_of(const Node& base) {
  const config::Run run = config::read_run(base);
  return {run.hardware.gpu.hbm_bandwidth, run.hardware.gpu.tensor_flops, run.framework.engine_step};
}

std::string rate_text(double rate, const char* unit) { return fmt::format("{:.5g} {}", rate / 1e9, unit); }
std::string memory_text(double rate) { return rate_text(rate, "GB/s"); }
std::string products_text(double rate) { return rate_text(rate, "GFLOP/s"); }
std::string host_text(double seconds) { return fmt::format("{:.4g} us", seconds * 1e6); }

// Each row four times: as it is, with faster memory, with faster products, and with a longer host.
std::vector<MeasuredTime> times_of(const Node& base, const std::vector<StepRow>& rows) {
  const StepNumbers n = numbers_of(of_row(base, rows.front()));
  std::vector<Node> configs;
  for (const StepRow& row : rows) {
    const Node config = of_row(base, row);
    configs.insert(configs.end(), {config, config.with(kMemoryKey, written(memory_text(n.memory * kFaster))),
                                   config.with(kProductsKey, written(products_text(n.products * kFaster))),
                                   config.with(kHostKey, written(host_text(n.host + kLonger)))});
  }
  constexpr std::size_t kEach = 4;
  const std::vector<result::Result> results = simulated_rows(configs, rows, kEach);
  std::vector<MeasuredTime> times;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const bool prefill : {false, true}) {
      const double measured = prefill ? rows[i].ttft_s : rows[i].tpot_s;
      if (measured == 0) continue;
      const auto seconds = [&](std::size_t variant) {
        const result::Experiment& e = results[kEach * i + variant].experiment;
        return prefill ? e.ttft_s : e.tpot_mean_s;
      };
      const double now = seconds(0), per_rate = 1 / (1 - 1 / kFaster);
      times.push_back({i, prefill, measured, now, (now - seconds(1)) * per_rate, (now - seconds(2)) * per_rate,
                       (seconds(3) - now) / kLonger});
    }
  }
  return times;
}

Node fitted_number(const std::string& value, double half_width, const std::string& source) {
  return Node::map({{"value", written(value)},
                    {"origin", written("fitted")},
                    {"uncertainty", written(fmt::format("{:.2g} %", 100 * std::min(half_width, 10.0)))},
                    {"source", written(source, true)}},
                   {});
}

// The run with the fitted numbers; those that no time reaches stay as they are.
Node calibrated(const Node& base, const StepNumbers& n, const calibrate::StepFit& fit, const std::string& source) {
  const auto kept = [&](const char* name) { return std::ranges::find(fit.kept, name) != fit.kept.end(); };
  Node run = base;
  if (!kept("rate of memory")) {
    run =
        run.with(kMemoryKey, fitted_number(memory_text(n.memory * fit.scales.memory), fit.half_widths.memory, source));
  }
  if (!kept("rate of products")) {
    run = run.with(kProductsKey,
                   fitted_number(products_text(n.products * fit.scales.products), fit.half_widths.products, source));
  }
  if (!kept("time between steps")) {
    const double seconds = std::max(0.0, n.host + fit.scales.host_s);
    run = run.with(kHostKey,
                   fitted_number(host_text(seconds), seconds > 0 ? fit.half_widths.host_s / seconds : 1, source));
  }
  return run.with("framework.left_out",
                  fitted_number(fmt::format("{:.2g} %", 100 * fit.interval), 0.2, "rows left out: " + source));
}

void print_step_errors(const char* name, const std::vector<MeasuredTime>& times, bool prefill,
                       const std::vector<std::pair<const char*, const std::vector<double>*>>& lists) {
  std::string text;
  std::size_t n = 0;
  for (const auto& [what, errors] : lists) {
    std::vector<double> relative;
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i].prefill == prefill) relative.push_back(std::expm1((*errors)[i]));
    }
    n = relative.size();
    const metrics::ErrorSummary e = metrics::summarise_errors(relative);
    text += fmt::format("   {} {:5.1f} % {:5.1f} % ({:+.1f} %)", what, 100 * e.median, 100 * e.p90, 100 * e.bias);
  }
  if (n > 0) fmt::print("  {} {:>3} times{}\n", name, n, text);
}

std::string tpot_interval(const result::Result& r, const char* metric) {
  const auto interval = result::interval(r, *result::find_metric(metric));
  const auto value = result::value(r, *result::find_metric(metric));
  if (!interval || !value) return "none";
  return fmt::format("{:+.0f} to {:+.0f} %", 100 * (interval->low / *value - 1), 100 * (interval->high / *value - 1));
}

int calibrate_steps(const StepsOptions& options) {
  std::vector<std::string> inputs = options.files;
  refuse_repeated(inputs);
  inputs.push_back(options.run);
  refuse_overwritten(options.out, "-o", inputs);
  Node base = load_with_settings(options.run, options.settings);
  for (const char* key : {"traffic", "sweep", "plan", "match"}) {
    if (base.find(key) == nullptr) continue;
    throw UserError(base.key_where(key),
                    fmt::format("calibrate steps: rows are static batches; a run without `{}`", key));
  }
  std::vector<StepRow> rows;
  for (const std::string& file : options.files) {
    const std::vector<StepRow> more = calibrate::read_step_rows(file);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const StepNumbers n = numbers_of(of_row(base, rows.front()));
  const std::vector<MeasuredTime> times = times_of(base, rows);
  calibrate::StepPriors priors;
  priors.rates = config::left_out().fused;
  priors.host_s = std::max(priors.host_s, n.host / 2);
  priors.least_host_s = -n.host;
  calibrate::StepFit fit = calibrate::fit_steps(times, priors);
  const std::string source = fmt::format("{} times of {}", times.size(), fmt::join(options.files, ", "));
  const Node out = calibrated(base, n, fit, source);
  std::vector<Node> before, after;
  for (const StepRow& row : rows) before.push_back(of_row(base, row)), after.push_back(of_row(out, row));
  const std::vector<result::Result> then = simulated_rows({before.front()}, rows, 1),
                                    now = simulated_rows(after, rows, 1);
  for (std::size_t i = 0; i < times.size(); ++i) {  // of the run that is written, rather than of its derivatives
    const result::Experiment& e = now[times[i].row].experiment;
    fit.after[i] = std::log((times[i].prefill ? e.ttft_s : e.tpot_mean_s) / times[i].measured);
  }
  fmt::print("Errors: median, 90th percentile (bias)\n");
  for (const bool prefill : {false, true}) {
    print_step_errors(prefill ? "TTFT" : "TPOT", times, prefill,
                      {{"before", &fit.before}, {"after", &fit.after}, {"left out", &fit.left_out}});
  }
  const auto rate = [](double scale, double width) {
    return fmt::format("x{:.3f} (-{:.0f} to +{:.0f} %)", scale, -100 * std::expm1(-width), 100 * std::expm1(width));
  };
  fmt::print("\n  rate of memory     {}\n  rate of products   {}\n  time between steps {:+.2f} ms (± {:.2f} ms)\n",
             rate(fit.scales.memory, fit.half_widths.memory), rate(fit.scales.products, fit.half_widths.products),
             fit.scales.host_s * 1e3, fit.half_widths.host_s * 1e3);
  if (!fit.kept.empty()) fmt::print("  not reached by these times, and kept: {}\n", fmt::join(fit.kept, ", "));
  fmt::print("  80 % interval of TPOT, first row: {} before, {} after\n\n",
             tpot_interval(then.front(), "decode.tpot_s.mean"), tpot_interval(now.front(), "decode.tpot_s.mean"));
  if (!fit.better()) {
    fmt::print(stderr, "rows that are left out are not predicted better than before: nothing is written\n");
    return 1;
  }
  std::string text = fmt::format("# Made by `kvcast calibrate steps` from {}.\n", source);
  for (const auto& [key, value] : out.entries()) text += fmt::format("{}: {}\n", key, config::flow_text(value));
  write_whole_file(options.out, text);
  fmt::print("{}\n", options.out);
  return 0;
}

}  // namespace

void add_calibrate_steps(CLI::App& calibrate, int& result) {
  CLI::App* command =
      calibrate.add_subcommand("steps", "fit a run's machine and framework to one's own measured steps");
  auto options = std::make_shared<StepsOptions>();
  command
      ->add_option("FILE", options->files,
                   "CSV with batch, context, tpot_ms, ttft_ms (and output_tokens), or JSON of vLLM's serving benchmark")
      ->required();
  command->add_option("--run", options->run, "YAML: model, hardware, framework and policy of the measurements")
      ->required();
  add_settings(*command, options->settings, "change a key of the run: hardware=a100-80gb-sxm");
  command->add_option("-o,--out", options->out, "the run to write (YAML), with the fitted numbers")->required();
  command->callback([options, &result] { result = calibrate_steps(*options); });
}

}  // namespace kvcast::app
