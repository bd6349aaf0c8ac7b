// Interprets published tables: tasks as recipes, methods as policies. The data are under configs/accuracy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model.hpp"
#include "config/run.hpp"
#include "score/table.hpp"

namespace kvcast::score {

enum class Score { kExact, kOverlap, kCount };

// A group of a task's prompts.
struct PromptLength {
  std::int64_t tokens = 0;
  double weight = 1;  // number of these prompts
  bool operator==(const PromptLength&) const = default;
};

struct TaskSpec {
  // The full score at the known length that is nearest in ratio; 100 if none is known.
  double full_at(std::int64_t tokens) const;

  std::string recipe;
  int steps = 0;   // decode steps replayed
  int answer = 0;  // tokens of one answer
  Score score = Score::kExact;
  double floor = 0;
  std::int64_t context = 0;            // tokens, if the table names none; 0: the table must name it
  std::vector<double> context_shares;  // or shares of the model's longest context; the score averages over them
  std::vector<PromptLength> lengths;   // of its prompts, ascending; empty: all are about as long as `context`
  std::string category;
  double sparse_beats_full = 0;
  // Points that an uncompressed model typically scores, by tokens of the prompt; empty: 100 points at any length.
  std::map<std::int64_t, double> full;
  int turns = 1;                // successive questions about one prompt
  double weight = 1;            // of a part of a task with several kinds of questions
  std::vector<TaskSpec> parts;  // kinds of questions; the task has contexts for all of them and no recipe of its own
  bool product = false;         // whether the score is the product of the parts' shares instead of their mean
  int prompts = 1;              // replayed per requested trace, as the location of the needed text affects the result
  int attempts = 1;             // attempts of which one must be right
  double attempt = 1;           // chance that one attempt of the uncompressed model finds what it finds at all
};

// Questions of one kind; later_turn: a policy that looked at the prompt's last queries saw another question there.
struct TaskPart {
  TaskSpec task;
  double weight = 1;  // weights of all parts add up to 1
  bool later_turn = false;
  bool factor = false;  // whether it is a factor of a product; its weight is then 1
};

// The parts that make up a task's score. `each_turn`: the policy starts from each turn's question, so no part is a
// later turn.
std::vector<TaskPart> parts_of(const TaskSpec& task, bool each_turn);

struct MethodSpec {
  std::vector<std::string> methods, papers, benchmarks, contexts;
  std::vector<std::string> any_value;  // parameters with any value of which a run counts as this method
  enum class Budget { kTokens, kQueryHeads, kSparsity, kNone } budget = Budget::kTokens;
  bool coupled = false, whole_prompt = false;
  int bits = 16;               // per number that it keeps; budgets are in memory at 16 bits
  std::int64_t uncounted = 0;  // tokens of a row's budget that the budget of the policy does not include
  std::string refused;         // why the method has no policy here
  bool each_turn = false;      // selects from the whole prompt again at each turn's question
  bool row_block = false;      // the policy's block is that of the row's context "block=N", otherwise the prompt
  double window_share = 0;  // share of the prompt whose last queries the policy sees; 0: no more than recipes capture
  std::int64_t window = 0;  // or the number of these queries
  config::Node policy;
};

// A name in lower case and without marks: "adakv" for ada-kv and AdaKV.
std::string bare_name(std::string_view name);

// The tasks of one benchmark by name. Throws UserError with the location of anything invalid.
std::map<std::string, TaskSpec> read_tasks(const config::Node& list);

class Catalogue {
 public:
  // Reads configs/accuracy/tasks.yaml and methods.yaml, again only after they have changed; throws UserError with the
  // location of anything invalid. Policies that no entry names are methods under their own names and with their own
  // settings.
  Catalogue();

  // Null if the benchmark or task is unknown. Case and marks of names are ignored ("Math-500", MATH500).
  const TaskSpec* task(const std::string& benchmark, const std::string& name) const;
  // The task whose recipe's name is the one in its traces (the file name with '_' for '-'); null if there is none.
  const TaskSpec* task_of_trace(const std::string& name) const;
  // All tasks of a benchmark by name.
  const std::map<std::string, TaskSpec>& tasks(const std::string& benchmark) const;
  // The first entry that fits: those for the row's paper precede those for any paper.
  const MethodSpec* method(const PublishedRow& row) const;
  const std::vector<MethodSpec>& methods() const { return contents_->methods; }

 private:
  struct Contents {
    std::map<std::string, std::map<std::string, TaskSpec>> tasks;  // by benchmark
    std::vector<MethodSpec> methods;
  };
  static Contents read(const std::string& tasks, const std::string& methods);
  std::shared_ptr<const Contents> contents_;
};

// Tokens in a row's context ("16K", "32768", "max_ctx=8192"); empty if it states none ("", "block=128").
std::optional<std::int64_t> context_tokens(const std::string& context);

// Returns whether the budget is a number of tokens that does not depend on the prompt's length.
bool budget_in_tokens(const MethodSpec& method, const PublishedRow& row);

// The policy of a row: the method's settings with the row's budget in tokens. Throws UserError if the budget's unit is
// unknown or its value is invalid.
config::PolicyChoice policy_of(const MethodSpec& method, const PublishedRow& row, const config::Model& model,
                               std::int64_t prompt_tokens);

}  // namespace kvcast::score
