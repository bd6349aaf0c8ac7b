#include "score/task_replay.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::score {
namespace {

// Room for the answer in a length that a table states (RULER).
constexpr std::int64_t kAnswerRoom = 128;
// All queries of a longer prompt take hours and tens of gigabytes.
constexpr std::int64_t kLongestWhole = 65536;

int window_of(const TaskReplay& replay, std::int64_t context) {
  if (replay.window_share > 0) {
    return static_cast<int>(std::ceil(replay.window_share * static_cast<double>(context)));
  }
  const std::int64_t window = std::min(replay.window, context);
  return window > trace::Recipe().window ? static_cast<int>(window) : 0;
}

}  // namespace

std::vector<PromptLength> prompts_of(const TaskSpec& task, const config::Model& model,
                                     std::optional<std::int64_t> stated) {
  std::vector<PromptLength> prompts;
  for (const double share : task.context_shares) {
    prompts.push_back({std::llround(share * static_cast<double>(model.max_context))});
  }
  if (prompts.empty()) {
    prompts.push_back({stated && *stated > 2 * kAnswerRoom ? *stated - kAnswerRoom : stated.value_or(task.context)});
  }
  // Longer prompts are cut to fit the model or the limit that the table sets.
  for (PromptLength& prompt : prompts) {
    if (task.context > 0) prompt.tokens = std::min({prompt.tokens, task.context, model.max_context});
  }
  return prompts;
}

void spread_over_lengths(TaskReplay& replay, std::int64_t budget, std::int64_t longest) {
  const std::vector<PromptLength>& lengths = replay.task.lengths;
  if (lengths.empty() || lengths.front().tokens > budget) return;
  replay.contexts = lengths;
  for (PromptLength& context : replay.contexts) context.tokens = std::min(context.tokens, longest);
}

void check_whole_prompt(const TaskReplay& replay, const std::string& policy) {
  if (!replay.whole_prompt || replay.contexts.back().tokens <= kLongestWhole) return;
  throw UserError(fmt::format("{} looks at all queries of a prompt, which are replayed up to {} tokens, not {}", policy,
                              kLongestWhole, replay.contexts.back().tokens));
}

std::vector<PartTrace> traces_of(const TaskReplay& replay, int seeds) {
  std::vector<PartTrace> traces;
  const std::vector<TaskPart> parts = parts_of(replay.task, replay.each_turn);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const TaskSpec& task = parts[part].task;
    for (const auto& [context, weight] : replay.contexts) {
      for (int seed = 1; seed <= seeds * task.prompts; ++seed) {
        TraceRequest trace{task.recipe,    replay.model,       context, task.steps, static_cast<std::uint64_t>(seed),
                           replay.coupled, replay.whole_prompt};
        trace.window = window_of(replay, context);
        trace.later_turn = parts[part].later_turn;
        trace.cache = replay.cache;
        traces.push_back({part, std::move(trace), weight});
      }
    }
  }
  return traces;
}

}  // namespace kvcast::score
