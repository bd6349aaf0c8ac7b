#include "api/session.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "api/catalogue.hpp"
#include "base/build.hpp"
#include "base/failure.hpp"
#include "base/temporary.hpp"
#include "config/sweep.hpp"
#include "report/answers.hpp"
#include "report/figures.hpp"
#include "result/json.hpp"
#include "store/store.hpp"

namespace kvcast::api {
namespace {

using nlohmann::json;

constexpr std::size_t kReplayBytes = std::size_t{256} << 20;   // of the replays kept: thousands, unless they are long
constexpr std::size_t kLoweredBytes = std::size_t{128} << 20;  // of the lowered work kept

// Says for the first points that do not fit what would fit; the replays are those of the points.
void add_nearest(const std::map<std::size_t, config::Node>& unfit, study::StudyOptions options, const Call& call) {
  constexpr std::size_t kMost = 12;
  options.scores = study::Scores::kNone;
  plan::Experiments experiments(options);
  std::size_t answered = 0;
  for (const auto& [index, run] : unfit) {
    if (++answered > kMost) return;
    const auto nearest = plan::nearest_that_fits(run, experiments);
    call.line({{"index", index}, {"nearest", plan::admission_text(nearest)}});
  }
}

std::string temporary_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kvcast-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw OutputError("no temporary folder can be made: " + pattern);
  return pattern;
}

}  // namespace

json to_json(const study::Task& task, const result::Result& result) {
  json out = result::to_json(result);
  const config::Hardware& machine = task.prepared.run.hardware;
  if (!machine.changes.empty()) out["machine_changes"] = changes_json(machine);
  for (const auto& number : study::machine_numbers(machine)) {
    out["origins"].push_back(result::to_json(machine.name, number));
  }
  return out;
}

json to_json(const SimulatedTask& outcome) {
  json out = to_json(outcome.task, outcome.result);
  if (const auto& nearest = outcome.nearest) {
    out["oom"]["nearest"] = {{"change", nearest->change}, {"fit", result::fit_name(result::fit_of(*nearest->result))}};
  }
  return out;
}

json to_json(const plan::Answer& answer) {
  json out = answer.data;
  out["kind"] = answer.kind, out["runs"] = answer.runs;
  out["question"] = answer.question, out["text"] = answer.text, out["details"] = answer.details;
  return out;
}

Session::Session(SessionOptions options)
    : data_(std::move(options.data)),
      study_(std::move(options.study)),
      sweep_scores_(options.sweep_scores),
      budget_(options.budget),
      replays_(kReplayBytes, options.replay_folder),
      shared_(kLoweredBytes) {
  const DataFolder checked(data_);
  if (study_.replays == nullptr) study_.replays = &replays_;
  study_.shared = &shared_;
}

const std::string& Session::version() const { return study::code_version(); }

study::StudyOptions Session::study_options(const Call& call) {
  study::StudyOptions options = study_;
  options.cancel = call.cancel;
  if (budget_.bytes > 0 || budget_.seconds > 0) {
    options.admit = [this, spent = 0.0](const study::Study& plan) mutable {
      const study::Needs needs = study::needs_of(plan, study_.threads);
      study::check_budget(needs, budget_, spent);
      spent += needs.seconds;
    };
  }
  return options;
}

SimulatedTask Session::run(study::Point point, const Call& call,
                           const std::function<void(const study::Study&)>& before) {
  const DataFolder folder(data_);
  point.ask.timeline = call.timeline.has_value();
  const config::Node config = point.config;
  study::StudyOptions options = study_options(call);
  const study::Study plan({std::move(point)}, options.cancel);
  if (before) before(plan);
  SimulatedTask out;
  study::run(plan, options, [&](const study::Task& task, result::Result&& result) {
    out.task = task, out.result = std::move(result);
  });
  if (out.result.status == result::Status::kFailed) throw UserError(out.result.error);
  if (out.result.experiment.oom) {
    options.scores = study::Scores::kNone;
    plan::Experiments experiments(options);
    out.nearest = plan::nearest_that_fits(config, experiments);
  }
  return out;
}

void Session::sweep(const config::Node& config, const Call& call, const study::Finished& finished) {
  const DataFolder folder(data_);
  std::vector<study::Point> points;
  for (config::SweepPoint& point : config::expand_sweep(config)) {
    points.push_back({std::move(point.config), std::move(point.values), {}});
    points.back().ask.timeline = call.timeline == points.size() - 1;
    if (call.nominal) points.back().ask.effects = simulate::Effects::kNone;
  }
  const std::size_t count = points.size();
  study::StudyOptions options = study_options(call);
  options.scores = sweep_scores_;
  const study::Study plan(std::move(points), options.cancel);
  options.score_advance = [&](std::int64_t done, std::int64_t total) {
    call.line({{"progress", {{"what", "replays for scores"}, {"done", done}, {"of", total}}}});
  };
  CountedReplays counted(*options.replays, plan, [&](std::size_t done, std::size_t of) {
    call.line({{"progress", {{"what", "replays"}, {"done", done}, {"of", of}}}});
  });
  options.replays = &counted;
  std::map<std::size_t, config::Node> unfit;
  std::mutex mutex;
  study::run(plan, options, [&](const study::Task& task, result::Result&& result) {
    if (result.experiment.oom) {
      const std::lock_guard lock(mutex);
      unfit.emplace(task.index, task.point.config);
    }
    json swept = json::object();
    for (const auto& [key, value] : task.point.swept) swept[key] = value;
    call.line({{"index", task.index}, {"swept", std::move(swept)}, {"result", to_json(task, result)}});
    if (finished) finished(task, std::move(result));
  });
  add_nearest(unfit, options, call);
  call.line({{"done", count}});
}

void Session::plan(const config::Node& config, const Call& call) {
  const DataFolder folder(data_);
  const auto questions = plan::read_plan(config);
  study::StudyOptions options = study_options(call);
  options.score_advance = [&](std::int64_t done, std::int64_t total) {
    call.line({{"progress", {{"what", "replays for scores"}, {"done", done}, {"of", total}}}});
  };
  plan::Machines machines;
  std::set<std::string> policies;
  const auto finished = [&](const study::Task& task, const result::Result& result) {
    const config::Hardware& machine = task.prepared.run.hardware;
    machines.try_emplace(machine.name, study::machine_numbers(machine));
    policies.insert(result.subject.policy);
  };
  plan::Experiments experiments(options, finished);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const plan::Answer answer = plan::answer(*questions[i], experiments);
    report::Palette palette(assets().palette);
    json spec = report::filled_spec(assets(), report::chart_json(answer, machines, policies, palette));
    call.line({{"index", i}, {"answer", to_json(answer)}, {"spec", std::move(spec)}});
  }
  call.line({{"done", questions.size()}});
}

const report::Assets& Session::assets() {
  const std::lock_guard lock(assets_mutex_);
  const DataFolder folder(data_);
  if (!assets_) assets_ = report::load_assets({.assets = "", .vega = false});
  return *assets_;
}

// A report reads its results from a store.
json Session::charts(const std::vector<SimulatedTask>& outcomes) {
  const DataFolder folder(data_);
  const Temporary files(temporary_folder());
  store::Store store = store::Store::open(files.path(), store::Store::Open::kCreate);
  std::vector<std::string> keys;
  for (const SimulatedTask& outcome : outcomes) {
    keys.push_back(outcome.task.prepared.key);
    store.put(static_cast<std::int64_t>(outcome.task.index), outcome.result, version());
  }
  store.show(keys);
  const report::Content content = report::collect({{"", &store}}, report::Palette(assets().palette));
  json charts = json::array();
  for (const report::ChartFile& figure : report::standalone_figures(assets(), content, json::array())) {
    if (figure.name == "step_timeline" && content.timeline.rows() == 0) continue;  // its rows have no columns
    const json& meta = figure.spec.at("usermeta");
    charts.push_back(
        {{"name", figure.name}, {"title", meta.at("title")}, {"caption", meta.at("caption")}, {"spec", figure.spec}});
  }
  return charts;
}

}  // namespace kvcast::api
