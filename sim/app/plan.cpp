// kvcast plan CONFIG: what-if questions about a run, answered by simulation.
#include <fmt/format.h>

#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "api/session.hpp"
#include "app/commands.hpp"
#include "app/scores.hpp"
#include "app/settings.hpp"
#include "app/stored_replays.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "plan/question.hpp"
#include "store/store.hpp"

namespace kvcast::app {
namespace {

struct PlanOptions {
  std::string config, dir;
  std::vector<std::string> settings;
  int jobs = 0;
  bool as_json = false;
};

// The store of a plan: its experiments and answers, for reports and for later plans that reuse them.
class PlanStore {
 public:
  PlanStore(const std::string& dir, const config::Node& config)
      : store_(store::Store::open(dir, store::Store::Open::kCreate)), replays_(store_) {
    const config::Node* const name = config.find("name");
    const config::Node* const description = config.find("description");
    store_.set_metadata(store::kMetaName, name == nullptr ? "" : name->text());
    store_.set_metadata(store::kMetaDescription, description == nullptr ? "" : description->text());
    store_.set_metadata(store::kMetaConfig, config.in_order());
    store_.set_findings({});
    store_.set_answers({});
  }

  study::ReplayCache& replays() { return replays_; }

  void put(const study::Task& task, const result::Result& result) {
    if (!keys_.insert(task.prepared.key).second) return;
    order_.push_back(task.prepared.key);
    keep([&] { return store_.put(static_cast<std::int64_t>(order_.size()), result, study::code_version()); });
    const config::Hardware& machine = task.prepared.run.hardware;
    if (machines_.insert(machine.name).second) store_.set_machine(machine.name, study::machine_numbers(machine));
  }

  void finish(const std::vector<plan::Answer>& answers) {
    store_.show(order_);
    store_.set_metadata(store::kMetaPlanned, fmt::format("{}", order_.size()));
    store_.set_answers(answers);
  }

  const std::string& path() const { return store_.path(); }

 private:
  store::Store store_;
  StoredReplays replays_;
  std::set<std::string> keys_, machines_;
  std::vector<std::string> order_;
};

void print_answer(const plan::Answer& answer) {
  fmt::print("{}\n  {}\n", answer.question, answer.text);
  for (const std::string& line : answer.details) fmt::print("    {}\n", line);
  fmt::print("    ({} experiment{})\n\n", answer.runs, answer.runs == 1 ? "" : "s");
}

// Says on standard error which question is being answered, and on a terminal how many experiments it has had so far.
class PlanProgress {
 public:
  explicit PlanProgress(std::size_t questions) : questions_(questions), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~PlanProgress() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  PlanProgress(const PlanProgress&) = delete;
  PlanProgress& operator=(const PlanProgress&) = delete;

  void begin(const std::string& kind) {
    ++number_, experiments_ = 0, kind_ = kind;
    draw("");
    if (!terminal_) fmt::print(stderr, "\n");
  }
  void end_line() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }
  // Called from one thread at a time.
  void advance(const result::Result& result) {
    ++experiments_;
    if (terminal_)
      draw(
          fmt::format(", {} experiments, last {} on {}", experiments_, result.subject.policy, result.subject.hardware));
  }

 private:
  void draw(const std::string& state) const {
    fmt::print(stderr, "{}question {} of {}: {}{}", terminal_ ? "\r\033[K" : "", number_, questions_, kind_, state);
    std::fflush(stderr);
  }

  std::size_t questions_, number_ = 0, experiments_ = 0;
  bool terminal_;
  std::string kind_;
};

int plan(const PlanOptions& options) {
  const config::Node config = load_with_settings(options.config, options.settings);
  const auto questions = plan::read_plan(config);
  std::unique_ptr<PlanStore> store;
  if (!options.dir.empty()) store = std::make_unique<PlanStore>(options.dir, config);
  study::StudyOptions study;
  study.threads = options.jobs > 0 ? options.jobs : hardware_threads();
  if (store) study.replays = &store->replays();
  ask_for_scores(study, study::Scores::kAtHand);
  PlanProgress progress(questions.size());
  plan::Experiments experiments(study, [&](const study::Task& task, const result::Result& result) {
    progress.advance(result);
    if (store) store->put(task, result);
  });
  std::vector<plan::Answer> answers;
  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto& question = questions[i];
    progress.begin(config.find("plan")->items()[i].entries().front().first);
    answers.push_back(plan::answer(*question, experiments));
    progress.end_line();
    if (options.as_json) {
      all.push_back(api::to_json(answers.back()));
    } else {
      print_answer(answers.back());
    }
  }
  if (options.as_json) fmt::print("{}\n", nlohmann::json{{"answers", std::move(all)}}.dump(1));
  if (store) {
    store->finish(answers);
    fmt::print(stderr, "{}: the experiments and the answers; kvcast report {} makes a page of them\n", store->path(),
               options.dir);
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("plan", "answer what-if questions: break-even points, limits, causes, choices");
  auto options = std::make_shared<PlanOptions>();
  command->add_option("CONFIG", options->config, "YAML of a run with a `plan:` list of questions")->required();
  command->add_option("-o,--out", options->dir,
                      "folder for the experiments and answers, of which `kvcast report` makes a page");
  command->add_option("-j,--jobs", options->jobs, "worker threads (default: all cores)")->check(CLI::Range(1, 1024));
  add_settings(*command, options->settings, "change a key of the run: workload.batch=8, hardware=l40s");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = plan(*options); });
}

}  // namespace kvcast::app
