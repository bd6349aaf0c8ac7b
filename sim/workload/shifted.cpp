// Which sources can matter is known before anything is run: no more seconds than an op may be off can a step become
// longer by it, so that the sum over all ops bounds what their source does.
#include "workload/shifted.hpp"

#include <map>
#include <set>
#include <string>

#include "hardware/cost_model.hpp"
#include "lower/decode.hpp"
#include "lower/prefill.hpp"
#include "workload/index_build.hpp"
#include "workload/timed.hpp"

namespace kvcast::workload {
namespace {

using nlohmann::json;
using BySource = std::map<std::string, double>;

constexpr double kTelling = 0.01;  // of the time

void add_telling(const BySource& by_source, double seconds, std::set<std::string>& telling) {
  for (const auto& [source, off] : by_source) {
    if (off >= kTelling * seconds) telling.insert(source);
  }
}

std::set<std::string> telling_sources(const ExperimentInput& input, const Experiment& experiment) {
  const hardware::CostModel costs(input.run->hardware, input.run->framework);
  replay::Draw draw = draw_counts(input);
  const lower::DecodeSetting setting = decode_setting(input, draw);
  std::set<std::string> telling;
  lower::Owners owners;
  lower::Prefill prefill(setting, owners);
  add_telling(uncertain_seconds(prefill, costs), experiment.ttft_s, telling);
  lower::DecodeWindow step(setting, setting.lengths.prompt_tokens + 1, 1, owners);
  add_telling(uncertain_seconds(step, costs), experiment.tpot_mean_s, telling);
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

}  // namespace

json shifted(const ExperimentInput& input, const Experiment& experiment) {
  if (experiment.oom) return json::array();
  return both_ways(telling_sources(input, experiment), [&](const hardware::Shift& shift) {
    ExperimentOptions options;
    options.shift = shift;
    return to_json(run_experiment(input, options), input);
  });
}

json shifted_build(const config::Run& run, const policy::Policy& policy, int kv_heads) {
  std::set<std::string> telling;
  const BySource by_source = uncertain_of_build(run, policy, kv_heads);
  add_telling(by_source, build_index(run, policy, kv_heads).seconds, telling);
  return both_ways(telling,
                   [&](const hardware::Shift& shift) { return to_json(build_index(run, policy, kv_heads, shift)); });
}

}  // namespace kvcast::workload
