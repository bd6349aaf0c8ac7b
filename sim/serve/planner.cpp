#include "serve/planner.hpp"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/sweep.hpp"
#include "plan/admit.hpp"
#include "report/answers.hpp"
#include "serve/client_text.hpp"
#include "serve/recent_replays.hpp"
#include "serve/results.hpp"
#include "study/scoring.hpp"

namespace kvcast::serve {
namespace {

using nlohmann::json;

constexpr std::size_t kReplayBytes = std::size_t{256} << 20;  // of the replays kept: thousands, unless they are long
constexpr const char* kJsonType = "application/json";

// Keys that take files. Wherever a name is looked up it may be that of a listed file only (config/find.hpp).
void refuse_files(const config::Node& node) {
  if (node.kind() == config::Node::Kind::kList) {
    for (const config::Node& item : node.items()) refuse_files(item);
  }
  if (node.kind() != config::Node::Kind::kMap) return;
  for (const auto& [key, value] : node.entries()) {
    if (key == "file" || key.ends_with(".file")) config::refuse_request_for_file(node.key_where(key));
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
      SourceLocation at{"request"};
      at.from_request = true;
      throw UserError(at, fmt::format("not valid JSON at byte {}", error.byte));
    }
  }
  config::Node config = config::parse_request(request.body);  // JSON is YAML, and has locations this way
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
  Impl(int threads, const report::Assets& assets, const study::Budget& budget)
      : threads_(threads), assets_(assets), budget_(budget) {
    std::string ignored;
    score_replays_ = study::score_cache_file(ignored);
  }

  void answer(const Request& request, Reply& reply) {
    try {
      const config::Node config = read_body(request);
      if (request.path == "/api/run") return run(config, request.query, reply);
      if (request.path == "/api/sweep") return sweep(config, request.query, reply);
      if (request.path == "/api/plan") return plan(config, reply);
      reply.send(404, kJsonType, error_text(fmt::format("nothing at {}", request.path)));
    } catch (const Cancelled&) {  // nobody waits for an answer
    } catch (const UserError& error) {
      const std::string text = client_text(error);
      if (text != error.what()) fmt::print(stderr, "kvcast: {}\n", error.what());
      refuse(400, text, reply);
    } catch (const std::bad_alloc&) {
      refuse(503, "this machine has too little memory for that request", reply);
    }
  }

 private:
  static std::string error_text(const std::string& what) {
    return json{{"error", what}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  // The whole answer, or the last line of one that has begun.
  static void refuse(int status, const std::string& why, Reply& reply) {
    reply.send(status, kJsonType, error_text(why));
    reply.line(json{{"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  study::StudyOptions study_options(const Reply& reply) {
    study::StudyOptions options;
    options.threads = threads_;
    options.replays = &replays_;
    options.scores = study::Scores::kAtHand;
    options.score_replays = score_replays_;
    options.cancel = reply.stop();
    options.admit = [this, spent = 0.0](const study::Plan& plan) mutable {
      const study::Needs needs = study::needs_of(plan, threads_);
      study::check_budget(needs, budget_, spent);
      spent += needs.seconds;
    };
    return options;
  }

  void run(const config::Node& config, const std::string& query, Reply& reply) {
    study::Point point{config, {}, {}};
    const auto timeline = timeline_of(query);
    if (timeline && *timeline != 1) throw UserError("timeline= in the query of a run can only be 1");
    point.ask.timeline = timeline.has_value();
    point.ask.tables = &tables_;
    const study::StudyOptions options = study_options(reply);
    const study::Plan plan({std::move(point)}, options.cancel);
    std::string text;
    study::run(plan, options, [&](const study::Task& task, result::Result&& result) {
      if (result.status == result::Status::kFailed) throw UserError(result.error);
      text = run_json(task, result).dump();
    });
    reply.send(200, kJsonType, text + "\n");
  }

  // Says for the first points that do not fit what would fit; the replays are those of the points.
  static void add_nearest(const std::map<std::size_t, config::Node>& unfit, study::StudyOptions options, Reply& reply) {
    constexpr std::size_t kMost = 12;
    options.scores = study::Scores::kNone;
    plan::Experiments experiments(options);
    std::size_t answered = 0;
    for (const auto& [index, run] : unfit) {
      if (++answered > kMost) return;
      const auto nearest = plan::nearest_that_fits(run, experiments);
      reply.line(json{{"index", index}, {"nearest", plan::admission_text(nearest)}}.dump());
    }
  }

  void sweep(const config::Node& config, const std::string& query, Reply& reply) {
    const auto timeline = timeline_of(query);
    const bool nominal = ("&" + query + "&").find("&nominal=1&") != std::string::npos;
    std::vector<study::Point> points;
    for (config::SweepPoint& point : config::expand_sweep(config)) {
      points.push_back({std::move(point.config), std::move(point.values), {}});
      points.back().ask.timeline = timeline == points.size() - 1;
      points.back().ask.tables = &tables_;
      if (nominal) points.back().ask.effects = simulate::Effects::kNone;
    }
    const std::size_t count = points.size();
    study::StudyOptions options = study_options(reply);
    const study::Plan plan(std::move(points), options.cancel);
    options.score_advance = progress(reply);
    std::map<std::size_t, config::Node> unfit;
    std::mutex mutex;
    study::run(plan, options, [&](const study::Task& task, result::Result&& result) {
      if (result.experiment.oom) {
        const std::lock_guard lock(mutex);
        unfit.emplace(task.index, task.point.config);
      }
      json swept = json::object();
      for (const auto& [key, value] : task.point.swept) swept[key] = value;
      reply.line(json{{"index", task.index}, {"swept", std::move(swept)}, {"result", run_json(task, result)}}.dump());
    });
    add_nearest(unfit, options, reply);
    reply.line(json{{"done", count}}.dump());
  }

  void plan(const config::Node& config, Reply& reply) {
    const auto questions = plan::read_plan(config);
    study::StudyOptions options = study_options(reply);
    options.score_advance = progress(reply);
    report::Machines machines;
    std::set<std::string> policies;
    const auto finished = [&](const study::Task& task, const result::Result& result) {
      const config::Hardware& machine = task.prepared.run.hardware;
      machines.try_emplace(machine.name, study::machine_numbers(machine));
      policies.insert(result.subject.policy);
    };
    plan::Experiments experiments(options, finished, &tables_);
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
  study::Budget budget_;
  std::string score_replays_;
  RecentReplays replays_{kReplayBytes};
  study::StepTables tables_;
};

Planner::Planner(int threads, const report::Assets& assets, const study::Budget& budget)
    : impl_(std::make_unique<Impl>(threads, assets, budget)) {}
Planner::~Planner() = default;
void Planner::answer(const Request& request, Reply& reply) { impl_->answer(request, reply); }

}  // namespace kvcast::serve
