#include "serve/planner.hpp"

#include <fmt/format.h>

#include <charconv>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "config/run.hpp"
#include "report/answers.hpp"
#include "serve/recent_replays.hpp"
#include "serve/results.hpp"
#include "study/scoring.hpp"

namespace kvcast::serve {
namespace {

using nlohmann::json;

constexpr std::size_t kReplays = 512;     // replays kept: a hundred policies on a handful of traces
constexpr std::size_t kMostPoints = 256;  // of a sweep: larger ones are for `kvcast sweep`
constexpr const char* kJsonType = "application/json";

bool names_file(const std::string& text) {
  if (text.starts_with('/') || text.starts_with('.') || text.starts_with('~')) return true;
  for (const char* ending : {".yaml", ".yml", ".json", ".jsonl", ".csv", ".safetensors"}) {
    if (text.ends_with(ending)) return true;
  }
  return false;
}

// A page that anyone may have written must not choose which files are read.
void refuse_files(const config::Node& node) {
  const auto refuse = [](const SourceLocation& where) {
    throw UserError(
        where, "requests cannot name files; known: the names that `kvcast models`, `hardware` and `policies` list");
  };
  if (node.kind() == config::Node::Kind::kScalar && names_file(node.text())) refuse(node.where());
  if (node.kind() == config::Node::Kind::kList) {
    for (const config::Node& item : node.items()) refuse_files(item);
  }
  if (node.kind() != config::Node::Kind::kMap) return;
  for (const auto& [key, value] : node.entries()) {
    if (key == "file" || key.ends_with(".file")) refuse(node.key_where(key));
    refuse_files(value);
  }
}

config::Node read_body(const Request& request) {
  static const std::set<std::string> known = {kJsonType, "application/yaml", "application/x-yaml", "text/yaml"};
  // Any other type could come from a form on another page.
  if (!known.contains(request.content_type)) {
    throw UserError({}, fmt::format("Content-Type \"{}\" is not read", request.content_type),
                    {known.begin(), known.end()});
  }
  if (request.content_type == kJsonType) {
    try {
      [[maybe_unused]] const json parsed = json::parse(request.body);
    } catch (const json::parse_error& error) {
      throw UserError({"request", 0, 0}, fmt::format("not valid JSON at byte {}", error.byte));
    }
  }
  config::Node config = config::parse_yaml(request.body, "request");  // JSON is YAML, and has locations this way
  refuse_files(config);
  return config;
}

// Returns the number after `timeline=` in the query.
std::optional<std::size_t> timeline_of(const std::string& query) {
  constexpr std::string_view kKey = "timeline=";
  const std::size_t at = query.find(kKey);
  if (at == std::string::npos) return {};
  std::size_t number = 0;
  const char* const from = query.data() + at + kKey.size();
  const auto [end, error] = std::from_chars(from, query.data() + query.size(), number);
  if (error != std::errc() || (end != query.data() + query.size() && *end != '&'))
    throw UserError("timeline= in the query needs a number");
  return number;
}

}  // namespace

class Planner::Impl {
 public:
  Impl(int threads, const report::Assets& assets) : threads_(threads), assets_(assets) {
    std::string ignored;
    score_replays_ = study::score_cache_file(ignored);
  }

  void answer(const Request& request, Reply& reply) {
    bool begun = false;
    try {
      const config::Node config = read_body(request);
      if (request.path == "/api/run") return run(config, request.query, reply);
      if (request.path == "/api/sweep") return sweep(config, request.query, reply, begun);
      if (request.path == "/api/plan") return plan(config, reply, begun);
      reply.send(404, kJsonType, error_text(fmt::format("nothing at {}", request.path)));
    } catch (const UserError& error) {
      if (reply.stop().stop_requested()) return;
      if (begun) return reply.line(json{{"error", error.what()}}.dump());
      reply.send(400, kJsonType, error_text(error.what()));
    }
  }

 private:
  static std::string error_text(const std::string& what) { return json{{"error", what}}.dump() + "\n"; }

  study::StudyOptions study_options(const Reply& reply) {
    study::StudyOptions options;
    options.threads = threads_;
    options.replays = &replays_;
    options.scores = study::Scores::kAtHand;
    options.score_replays = score_replays_;
    options.stop = reply.stop();
    return options;
  }

  void run(const config::Node& config, const std::string& query, Reply& reply) {
    study::Point point{config, {}, {}};
    const auto timeline = timeline_of(query);
    if (timeline && *timeline != 1) throw UserError("timeline= in the query of a run can only be 1");
    point.ask.timeline = timeline.has_value();
    const study::Plan plan({std::move(point)});
    std::string text;
    study::run(plan, study_options(reply), [&](const study::Task& task, result::Result&& result) {
      if (result.status == result::Status::kFailed) throw UserError(result.error);
      text = run_json(task, result).dump();
    });
    if (!text.empty()) reply.send(200, kJsonType, text + "\n");
  }

  void sweep(const config::Node& config, const std::string& query, Reply& reply, bool& begun) {
    const auto timeline = timeline_of(query);
    std::vector<study::Point> points;
    auto expanded = config::expand_sweep(config);
    if (expanded.size() > kMostPoints) {
      throw UserError(config.key_where("sweep"),
                      fmt::format("{} experiments are more than the {} of a request; `kvcast sweep` runs them",
                                  expanded.size(), kMostPoints));
    }
    for (config::SweepPoint& point : expanded) {
      points.push_back({std::move(point.config), std::move(point.values), {}});
      points.back().ask.timeline = timeline == points.size() - 1;
    }
    const std::size_t count = points.size();
    const study::Plan plan(std::move(points));
    begun = true;
    study::StudyOptions options = study_options(reply);
    options.score_advance = progress(reply);
    study::run(plan, options, [&](const study::Task& task, result::Result&& result) {
      json swept = json::object();
      for (const auto& [key, value] : task.point.swept) swept[key] = value;
      reply.line(json{{"index", task.index}, {"swept", std::move(swept)}, {"result", run_json(task, result)}}.dump());
    });
    if (!options.stop.stop_requested()) reply.line(json{{"done", count}}.dump());
  }

  void plan(const config::Node& config, Reply& reply, bool& begun) {
    const auto questions = plan::read_plan(config);
    begun = true;
    study::StudyOptions options = study_options(reply);
    options.score_advance = progress(reply);
    report::Machines machines;
    std::set<std::string> policies;
    plan::Experiments experiments(options, [&](const study::Task& task, const result::Result& result) {
      const config::Hardware& machine = task.prepared.run.hardware;
      machines.try_emplace(machine.name, study::machine_numbers(machine));
      policies.insert(result.subject.policy);
    });
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const plan::Answer answer = plan::answer(*questions[i], experiments);
      report::Palette palette(assets_.palette);
      const store::Answer stored{answer.kind, answer.question, answer.text, "", answer.data.dump(), answer.runs};
      json spec = report::filled_spec(assets_, report::chart_json(stored, {palette, machines, policies}));
      reply.line(json{{"index", i}, {"answer", answer_json(answer)}, {"spec", std::move(spec)}}.dump());
    }
    reply.line(json{{"done", questions.size()}}.dump());
  }

  static std::function<void(std::int64_t, std::int64_t)> progress(Reply& reply) {
    return [&reply](std::int64_t done, std::int64_t total) {
      reply.line(json{{"progress", {{"what", "replays for scores"}, {"done", done}, {"of", total}}}}.dump());
    };
  }

  int threads_;
  const report::Assets& assets_;
  std::string score_replays_;
  RecentReplays replays_{kReplays};
};

Planner::Planner(int threads, const report::Assets& assets) : impl_(std::make_unique<Impl>(threads, assets)) {}
Planner::~Planner() = default;
void Planner::answer(const Request& request, Reply& reply) { impl_->answer(request, reply); }

}  // namespace kvcast::serve
