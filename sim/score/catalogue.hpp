// What published tables mean: tasks as recipes, methods as policies. Data under configs/accuracy.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model.hpp"
#include "config/run.hpp"
#include "score/table.hpp"

namespace kvcast::score {

enum class Score { kExact, kOverlap, kCount };

// Some of a task's prompts.
struct PromptLength {
  std::int64_t tokens = 0;
  double weight = 1;  // as many of them
  bool operator==(const PromptLength&) const = default;
};

struct TaskSpec {
  // Of the length that is nearest in ratio; 100 where none is known.
  double full_at(std::int64_t tokens) const;

  std::string recipe;
  int steps = 0;   // decode steps replayed
  int answer = 0;  // tokens of one answer
  Score score = Score::kExact;
  double floor = 0;
  std::int64_t context = 0;            // tokens, where the table names none; 0: the table must
  std::vector<double> context_shares;  // instead: of the model's longest context, the score being the mean over them
  std::vector<PromptLength> lengths;   // of its prompts, ascending; none: all are about as long as `context`
  std::string category;
  double sparse_beats_full = 0;
  // Points that an uncompressed model typically scores, by tokens of the prompt; none: 100 points at any length.
  std::map<std::int64_t, double> full;
  int turns = 1;                // questions about one prompt, one after the other
  double weight = 1;            // in a task of several kinds of questions ...
  std::vector<TaskSpec> parts;  // ... which has no recipe of its own, and its contexts for all of them
  bool product = false;         // of the parts' shares, instead of their mean
  int prompts = 1;     // replayed for each trace that is asked for: where the prompt has what is needed decides
  int attempts = 1;    // of which one must be right ...
  double attempt = 1;  // ... where the uncompressed model finds so much of what it finds in all attempts in one
};

// Questions of one kind, and whether a policy that looked at the prompt's last queries saw another one there.
struct TaskPart {
  TaskSpec task;
  double weight = 1;  // all together 1
  bool later_turn = false;
  bool factor = false;  // of a product; its weight is 1
};

// What a task's score is the mean of. `each_turn`: the policy starts from each turn's question, so that none is later.
std::vector<TaskPart> parts_of(const TaskSpec& task, bool each_turn);

struct MethodSpec {
  std::vector<std::string> methods, papers, benchmarks, contexts;
  enum class Budget { kTokens, kQueryHeads, kSparsity, kNone } budget = Budget::kTokens;
  bool coupled = false, whole_prompt = false;
  int bits = 16;            // of what it keeps; budgets are of memory at 16
  std::int64_t beside = 0;  // tokens of the row's budget that the policy's own does not count
  std::string refused;      // why the method has no policy here
  bool each_turn = false;   // chooses from the whole prompt again at each turn's question
  bool row_block = false;   // the policy's block is the row's, of its context "block=N"; else the prompt
  double window_share = 0;  // of the prompt, whose last queries the policy looks at; 0: no more than recipes capture
  std::int64_t window = 0;  // or so many of them
  config::Node policy;
};

// A name without the marks and cases that tables write it with: ada-kv, AdaKV.
std::string bare_name(std::string_view name);

// The tasks of one benchmark by name. UserError with the place for anything odd.
std::map<std::string, TaskSpec> read_tasks(const config::Node& list);

class Catalogue {
 public:
  // Reads configs/accuracy/tasks.yaml and methods.yaml; UserError with the place for anything odd. Policies that no
  // entry names are methods by their own names and with their own settings.
  Catalogue();

  // Null where a benchmark or task is unknown. Names are the same in any case and without marks ("Math-500", MATH500).
  const TaskSpec* task(const std::string& benchmark, const std::string& name) const;
  // The task whose recipe names itself so in its traces (its file's name with '_' for '-'); null where there is none.
  const TaskSpec* task_of_trace(const std::string& name) const;
  // All tasks of a benchmark by name.
  const std::map<std::string, TaskSpec>& tasks(const std::string& benchmark) const;
  // The first that fits: those of the row's paper stand before those of any.
  const MethodSpec* method(const Row& row) const;
  const std::vector<MethodSpec>& methods() const { return methods_; }

 private:
  std::map<std::string, std::map<std::string, TaskSpec>> tasks_;
  std::vector<MethodSpec> methods_;
};

// Tokens that a row's context ("16K", "32768", "max_ctx=8192") stands for; nothing where it says none ("",
// "block=128").
std::optional<std::int64_t> context_tokens(const std::string& context);

// The budget is a number of tokens, whatever the prompt's length.
bool budget_in_tokens(const MethodSpec& method, const Row& row);

// The policy of a row: the method's settings with the row's budget in tokens. UserError where the budget's unit is
// unknown or its value is odd.
config::PolicyChoice policy_of(const MethodSpec& method, const Row& row, const config::Model& model,
                               std::int64_t prompt_tokens);

}  // namespace kvcast::score
