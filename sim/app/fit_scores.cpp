#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "app/commands.hpp"
#include "app/progress.hpp"
#include "base/parallel.hpp"
#include "base/quote.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/run.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "policy/policy.hpp"
#include "score/benchmark.hpp"

namespace kvcast::app {
namespace {

const std::vector<std::int64_t> kBudgets = {256, 512, 1024, 2048, 4096};

struct FitScoresOptions {
  std::vector<std::string> sweeps;
  std::vector<std::string> context_texts, budget_texts;
  std::vector<std::int64_t> contexts, budgets;  // of the texts; empty: all lengths that the model supports; kBudgets
  std::string model = "llama-3.1-8b", replays, out;
  bool all = false;
};

// Counts of tokens as configurations write them: 4096 or 4K.
std::vector<std::int64_t> tokens_of(const char* option, const std::vector<std::string>& texts) {
  std::vector<std::int64_t> tokens;
  for (const std::string& text : texts) {
    const config::Node count = config::parse_yaml(text, option);
    const std::string digits = count.kind() == config::Node::Kind::kScalar ? count.text() : "";
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 1)
      throw UserError({option}, fmt::format("expected tokens, such as 4096 or 4K, found {}", quote(text)));
    tokens.push_back(value);
  }
  return tokens;
}

// Policies that differ in the properties that scores depend on, in the order in which they are added.
class Choices {
 public:
  void add(const config::PolicyChoice& choice) {
    const policy::Descriptor& descriptor = policy::find_policy(choice);
    const policy::ReplayNeeds needs = policy::replay_needs(descriptor, choice.parameters, {16384, 16});
    // Replaying all queries of a prompt takes minutes per task, and unpredictable policies have no score to store.
    if (descriptor.uncompressed() || needs.whole_prompt || !needs.unseen.empty()) return;
    if (seen_.insert(score::policy_text(choice)).second) choices_.push_back(choice);
  }

  // Adds the policy with its own budget and, if that is a number of tokens, with each of the given ones.
  void add(const config::PolicyChoice& choice, const std::vector<std::int64_t>& budgets) {
    add(choice);
    for (const policy::Parameter& p : policy::find_policy(choice).parameters) {
      if (p.key != "budget" || !std::holds_alternative<std::int64_t>(p.fallback)) continue;
      for (const std::int64_t budget : budgets) {
        config::PolicyChoice other = choice;
        other.parameters = choice.parameters.with("budget", config::Node::scalar(std::to_string(budget), {}));
        add(other);
      }
    }
  }

  const std::vector<config::PolicyChoice>& all() const { return choices_; }

 private:
  std::vector<config::PolicyChoice> choices_;
  std::set<std::string> seen_;
};

Choices choices_of(const FitScoresOptions& options) {
  Choices choices;
  for (const std::string& path : options.sweeps) {
    for (const config::SweepPoint& point : config::expand_sweep(config::load_yaml(path))) {
      if (point.config.find("match") != nullptr) {
        throw UserError(point.config.key_where("match"),
                        "fit scores: budgets that `match:` solves for depend on a trace; name the budgets");
      }
      choices.add(config::read_policy(*point.config.find("policy")));
    }
  }
  if (!options.all) return choices;
  for (const policy::Descriptor& d : policy::all_policies()) {
    choices.add({d.name, config::Node::map({}, {}), {}, {}}, options.budgets);
  }
  for (const std::string& path : config::config_files("policies")) {
    choices.add(config::read_policy(config::Node::map({{"file", config::Node::scalar(path, {})}}, {})),
                options.budgets);
  }
  return choices;
}

// Returns the existing rows that are still valid, of all models.
std::vector<score::ScoreRow> rows_that_hold(const std::string& path, const score::ScoreModel& model) {
  if (!std::filesystem::exists(path)) return {};
  std::vector<score::ScoreRow> rows = score::ScoreTable(path).rows();
  const score::BenchmarkScores scores(model, nullptr, "", 1);
  const score::Benchmark benchmark = score::find_benchmark(model.catalogue, config::ScoreChoice());
  std::map<std::string, std::string> made_with;  // by model; empty if it is no longer known
  for (const score::ScoreRow& row : rows) {
    if (made_with.contains(row.model)) continue;
    const auto file = config::find_config_if_any("models", row.model, {});
    made_with[row.model] = file ? scores.made_with(benchmark, config::read_model(*file)) : "";
  }
  std::erase_if(rows, [&](const score::ScoreRow& row) { return row.made_with != made_with.at(row.model); });
  return rows;
}

// A table has the lengths that `run` looks up, and no others.
void check_contexts(const std::vector<std::int64_t>& contexts, const config::Model& model) {
  const std::vector<std::int64_t> known = score::stated_contexts(model);
  for (const std::int64_t context : contexts) {
    if (std::ranges::find(known, context) != known.end()) continue;
    throw UserError(fmt::format("--contexts {}: RULER is replayed with {} at other lengths; known: {}", context,
                                model.name, fmt::join(known, ", ")));
  }
}

// Adds a context's rows, and returns how many policies are refused.
std::size_t add_rows(const FitScoresOptions& options, const score::ScoreModel& model, const Choices& choices,
                     const config::Model& shape, std::int64_t context, std::vector<score::ScoreRow>& rows) {
  score::BenchmarkScores scores(model, nullptr, options.replays, hardware_threads());
  std::vector<score::BenchmarkRequest> requests;
  for (const config::PolicyChoice& choice : choices.all()) {
    const std::string text = score::policy_text(choice);
    const bool there = std::ranges::any_of(rows, [&](const score::ScoreRow& row) {
      return row.model == shape.name && row.context == context && row.policy == text;
    });
    if (there) continue;
    requests.push_back({choice, options.model, context, {}});
    scores.request(requests.back());
  }
  scores.run(progress_of(fmt::format("{} tokens", context)));
  std::size_t refused = 0;
  for (const score::BenchmarkRequest& request : requests) {
    if (auto row = scores.row_of(request)) {
      rows.push_back(std::move(*row));
    } else {
      ++refused;
    }
  }
  return refused;
}

int run(FitScoresOptions options) {
  const std::string shipped = "accuracy/scores/ruler.csv";
  if (options.out.empty()) options.out = config::find_file(shipped).value_or("configs/" + shipped);
  if (options.sweeps.empty() && !options.all) throw UserError("fit scores: name the policies by --sweep or --all");
  if (!options.budget_texts.empty() && !options.all) throw UserError("fit scores: --budgets belongs to --all");
  options.contexts = tokens_of("--contexts", options.context_texts);
  options.budgets = options.budget_texts.empty() ? kBudgets : tokens_of("--budgets", options.budget_texts);
  const config::Model shape = config::model_named(options.model);
  check_contexts(options.contexts, shape);
  if (options.contexts.empty()) options.contexts = score::stated_contexts(shape);
  const score::ScoreModel model;
  const Choices choices = choices_of(options);
  if (choices.all().empty()) throw UserError("fit scores: no policy of the sweeps has a score that a table may hold");
  std::vector<score::ScoreRow> rows = rows_that_hold(options.out, model);
  WholeFile(options.out);  // shows that it can be written before the replays, which take minutes
  for (const std::int64_t context : options.contexts) {
    const std::size_t before = rows.size(), refused = add_rows(options, model, choices, shape, context, rows);
    write_whole_file(options.out, score::write_score_table(rows));
    fmt::print("{} tokens: {} policies, {} of them made now, {} refused\n", context, choices.all().size(),
               rows.size() - before, refused);
  }
  return 0;
}

}  // namespace

void add_fit_scores(CLI::App& fit, int& result) {
  CLI::App* command = fit.add_subcommand("scores", "write the table of benchmark scores that need no replay");
  auto options = std::make_shared<FitScoresOptions>();
  command->add_option("--sweep", options->sweeps, "the policies of these sweeps")->take_all();
  command->add_flag("--all", options->all,
                    "every policy, and every file under configs/policies, also with the budgets of --budgets");
  command
      ->add_option("--contexts", options->context_texts,
                   "prompt lengths in tokens: 4K, 8K, ..., 128K (default: all that the model supports)")
      ->delimiter(',');
  command->add_option("--budgets", options->budget_texts, "budgets of --all, in tokens (256,512,1K,2K,4K)")
      ->delimiter(',');
  command->add_option("--model", options->model, "a model: a name under configs/models");
  command->add_option("--replays", options->replays, "keep replays in this file, and reuse those in it");
  command->add_option("-o,--out", options->out,
                      "the table (default: the one that `run` reads); rows that are still valid are kept");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
