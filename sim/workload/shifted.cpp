// Which sources can matter is known before anything is run: no more seconds than an op may be off can a step become
// longer by it, so that the sum over all ops bounds what their source does.
#include "workload/shifted.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/interval.hpp"
#include "hardware/cost_model.hpp"
#include "lower/decode.hpp"
#include "lower/prefill.hpp"
#include "replay/parts.hpp"
#include "workload/index_build.hpp"
#include "workload/timed.hpp"

namespace kvcast::workload {
namespace {

using nlohmann::json;
using BySource = std::map<std::string, double>;

constexpr double kTelling = 0.01;  // of the time

void add_telling(const BySource& by_source, double least, std::set<std::string>& telling) {
  for (const auto& [source, off] : by_source) {
    if (off >= least) telling.insert(source);
  }
}

// Sources that can matter to a step, and to the prefill.
struct Telling {
  std::set<std::string> step, prefill;
  std::set<std::string> all() const {
    std::set<std::string> both = step;
    both.insert(prefill.begin(), prefill.end());
    return both;
  }
};

// Those that could move it by this share.
Telling telling_sources(const ExperimentInput& input, const Experiment& experiment, double share) {
  const hardware::CostModel costs(input.run->hardware, input.run->framework);
  replay::Draw draw = draw_counts(input);
  const lower::DecodeSetting setting = decode_setting(input, draw);
  Telling telling;
  lower::Owners owners;
  lower::Prefill prefill(setting, owners);
  add_telling(uncertain_seconds(prefill, costs), share * experiment.ttft_s, telling.prefill);
  lower::DecodeWindow step(setting, setting.lengths.prompt_tokens + 1, 1, owners);
  add_telling(uncertain_seconds(step, costs), share * experiment.tpot_mean_s, telling.step);
  return telling;
}

// What times a record has, of all that it says.
json times_of(const json& record) {
  json times = json::object();
  for (const char* key : {"decode", "prefill", "breakdown", "build"}) {
    if (record.contains(key)) times[key] = record[key];
  }
  return times;
}

template <class Record>
json both_ways(const std::set<std::string>& sources, const Record& record) {
  json list = json::array();
  for (const std::string& source : sources) {
    list.push_back({{"source", source},
                    {"longer", times_of(record(hardware::Shift{source, 1}))},
                    {"shorter", times_of(record(hardware::Shift{source, -1}))}});
  }
  return list;
}

// Effects below this would not be seen beside the others, as these add as squares.
constexpr double kTellingEffect = 0.02;

// The part of an experiment that tells how its times move: a few steps in the middle of decoding, and the first prompts
// of several that are prefilled one after the other.
class Probe {
 public:
  explicit Probe(const ExperimentInput& input) : input_(input), decode_(*input.run), prefill_(*input.run) {
    decode_.framework.sampled_contexts = 1;
    decode_.framework.measured_steps = std::min(kSteps, decode_.framework.measured_steps);
    if (prefill_.workload.prefill_batch > 0) {
      prefill_.workload.batch = std::min(prefill_.workload.batch, prefill_.workload.prefill_batch);
    }
    as_is_ = {step(input, {}), prefill({})};
  }

  Effect::Times factors(const hardware::Shift& shift, const Telling& telling) const {
    Effect::Times times;
    if (telling.step.count(shift.source) > 0) times.step = step(input_, shift) / as_is_.step;
    if (telling.prefill.count(shift.source) > 0) times.prefill = prefill(shift) / as_is_.prefill;
    return times;
  }

  // By how many times a step may be longer or shorter than with all layers of the model replayed; 1 where it does not
  // hang on those that were.
  double off_by_sample() const {
    std::vector<double> logarithms;
    for (const replay::ReplayResult& part : replay::parts(*input_.replay)) {
      ExperimentInput input = input_;
      input.replay = &part;
      logarithms.push_back(std::log(step(input, {})));
    }
    if (logarithms.empty()) return 1;
    // Drawn without replacement: where all layers were replayed nothing is left to chance.
    const double replayed = static_cast<double>(input_.replay->layers.size()) / input_.run->model.layers;
    return std::exp(off_of_mean(logarithms) * std::sqrt(1 - std::min(1.0, replayed)));
  }

 private:
  static constexpr int kSteps = 2;

  static Experiment run(ExperimentInput input, const config::Run& run, const hardware::Shift& shift, bool decoding) {
    input.run = &run;
    ExperimentOptions options;
    options.shift = shift;
    options.decode = decoding, options.prefill = !decoding;
    return run_experiment(input, options);
  }
  double step(const ExperimentInput& input, const hardware::Shift& shift) const {
    return run(input, decode_, shift, true).tpot_mean_s;
  }
  double prefill(const hardware::Shift& shift) const { return run(input_, prefill_, shift, false).ttft_s; }

  ExperimentInput input_;
  config::Run decode_, prefill_;
  Effect::Times as_is_;  // seconds
};

}  // namespace

Experiment predict(const ExperimentInput& input, const ExperimentOptions& options) {
  Experiment experiment = run_experiment(input, options);
  std::vector<Effect>& effects = experiment.effects.emplace();
  if (experiment.oom) return experiment;
  const Telling telling = telling_sources(input, experiment, kTellingEffect);
  const Probe probe(input);
  for (const std::string& source : telling.all()) {
    effects.push_back({source, probe.factors({source, 1}, telling), probe.factors({source, -1}, telling)});
  }
  if (const double off = probe.off_by_sample(); off >= 1 + kTellingEffect) {
    effects.push_back({kSampleOfTrace, {off, 1}, {1 / off, 1}});
  }
  return experiment;
}

json shifted(const ExperimentInput& input, const Experiment& experiment, const Phases& asked) {
  if (experiment.oom) return json::array();
  Telling telling = telling_sources(input, experiment, kTelling);
  if (!asked.step) telling.step.clear();
  if (!asked.prefill) telling.prefill.clear();
  return both_ways(telling.all(), [&](const hardware::Shift& shift) {
    ExperimentOptions options;
    options.shift = shift;
    options.decode = telling.step.count(shift.source) > 0, options.prefill = telling.prefill.count(shift.source) > 0;
    json record = to_json(run_experiment(input, options), input);
    if (!options.decode) record.erase("decode"), record.erase("breakdown");
    if (!options.prefill) record.erase("prefill");
    return record;
  });
}

json shifted_build(const config::Run& run, const policy::Policy& policy, int kv_heads) {
  std::set<std::string> telling;
  const BySource by_source = uncertain_of_build(run, policy, kv_heads);
  add_telling(by_source, kTelling * build_index(run, policy, kv_heads).seconds, telling);
  return both_ways(telling,
                   [&](const hardware::Shift& shift) { return to_json(build_index(run, policy, kv_heads, shift)); });
}

}  // namespace kvcast::workload
