#include "accuracy/score.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::accuracy {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

bool is_average(const PublishedRow& row, const Catalogue& catalogue) {
  return catalogue.task(row.benchmark, row.task) == nullptr &&
         (row.task.starts_with("avg") || row.task.starts_with("cat:") || row.task == "overall");
}

// Returns the key of rows that are compared with one row of the uncompressed model: of a table, or of any table of the
// paper ("").
std::string key_of(const PublishedRow& row, const std::string& table, const std::string& context,
                   const std::string& task, const std::string& partner) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", row.paper, table, row.model, row.benchmark, context, task, partner);
}

// The method that a method is combined with: "MInference" for MInference+CTkvr.
std::string partner_of(const PublishedRow& row) {
  const std::size_t plus = row.method.find('+');
  return plus == std::string::npos ? "" : row.method.substr(0, plus);
}

bool is_cut(const PublishedRow& row) { return row.context.starts_with("max_ctx="); }

// Scales the full score of whole prompts to that of truncated ones: what the cut removes is lost, except for the task's
// floor.
void cut_full_score(Cell& cell, std::int64_t whole) {
  const std::int64_t tokens = cell.contexts.front().tokens;
  if (whole <= tokens) return;
  const double seen = static_cast<double>(tokens) / static_cast<double>(whole);
  const double expected = cell.task.floor + (1 - cell.task.floor) * seen;
  cell.full *= expected;
  cell.full_low = seen / expected;
  cell.full_high = 1 / expected;
}

class Planner {
 public:
  Planner(const std::vector<PublishedRow>& rows, const Catalogue& catalogue) : catalogue_(catalogue) {
    for (const PublishedRow& row : rows) {
      if (!is_full(row)) continue;
      for (const std::string& table : {row.table, std::string()})
        full_.emplace(key_of(row, table, row.context, row.task, partner_of(row)), row.value);
    }
  }

  Cell cell(const PublishedRow& row) {
    Cell cell;
    cell.row = row;
    try {
      fill(cell);  // an unknown model or method is reported before a missing full score
      const std::optional<double> full = full_score(row, row.task);
      if (!full) throw UserError("no score of the uncompressed model to start from");
      cell.full = *full;
      take_attempt(cell);
      if (is_cut(row) && !full_in(row, row.context, row.task)) cut_full_score(cell, cell.task.context);
    } catch (const UserError& error) {
      cell.refused = error.what();
    }
    return cell;
  }

  Average average(const PublishedRow& row) {
    Average average;
    average.row = row;
    try {
      if (row.task.find("_minus_") != std::string::npos) throw UserError("a difference of two scores is not a score");
      const std::optional<double> full = full_score(row, row.task);
      if (!full) throw UserError("no score of the uncompressed model to start from");
      average.full = *full;
      const bool cut = is_cut(row) && !full_in(row, row.context, row.task);
      for (const auto& [name, task] : catalogue_.tasks(row.benchmark)) {
        if (!belongs(row.task, name, task)) continue;
        Cell part;
        part.row = row;
        part.row.task = name;
        part.full = full_score(row, name).value_or(average.full);
        fill(part);
        if (cut) cut_full_score(part, part.task.context);
        average.parts.push_back(std::move(part));
      }
      if (cut) average.full = mean_full(average.parts);
      if (average.parts.empty()) throw UserError(fmt::format("no tasks of {} are known", row.benchmark));
    } catch (const UserError& error) {
      average.refused = error.what();
    }
    return average;
  }

 private:
  // The uncompressed row combined with the same method if there is one, otherwise the plain one; a row of the same
  // table takes precedence over those of others.
  std::optional<double> full_in(const PublishedRow& row, const std::string& context, const std::string& task) const {
    for (const std::string& partner : {partner_of(row), std::string()}) {
      for (const std::string& table : {row.table, std::string()}) {
        const auto at = full_.find(key_of(row, table, context, task, partner));
        if (at != full_.end()) return at->second;
      }
    }
    return {};
  }

  // The full score of truncated prompts or, if there is none, that of whole ones.
  std::optional<double> full_score(const PublishedRow& row, const std::string& task) const {
    const std::optional<double> own = full_in(row, row.context, task);
    return own || !is_cut(row) ? own : full_in(row, "", task);
  }

  // The ratio of the table's own avg@k to pass@k is the share of what all attempts find that one attempt finds.
  void take_attempt(Cell& cell) const {
    if (cell.task.attempts == 1 || !cell.row.task.starts_with("pass")) return;
    const std::optional<double> one = full_in(cell.row, cell.row.context, "avg" + cell.row.task.substr(4));
    if (one && *one > 0 && *one <= cell.full) cell.task.attempt = *one / cell.full;
  }

  static double mean_full(const std::vector<Cell>& parts) {
    double sum = 0;
    for (const Cell& part : parts) sum += part.full;
    return parts.empty() ? 0 : sum / static_cast<double>(parts.size());
  }

  static bool belongs(const std::string& average, const std::string& name, const TaskSpec& task) {
    if (average.starts_with("cat:")) return task.category == average.substr(4);
    if (average == "avg_excl_passage_count") return name != "passage_count" && !name.ends_with("_zh");
    return true;
  }

  const config::Model& model(const PublishedRow& row) {
    const auto at = models_.find(row.model);
    if (at != models_.end()) return at->second;
    return models_.emplace(row.model, config::read_model(config::find_config("models", row.model, row.where)))
        .first->second;
  }

  const TaskSpec& task_of(const PublishedRow& row) const {
    if (const TaskSpec* const task = catalogue_.task(row.benchmark, row.task)) return *task;
    std::vector<std::string> known;
    for (const auto& [name, task] : catalogue_.tasks(row.benchmark)) known.push_back(name);
    throw UserError({}, fmt::format("no task {} of {} is known", row.task, row.benchmark), known);
  }

  // Fills in everything except the full score. A part of an average keeps its prediction even if a cell would be
  // refused for its low full score.
  void fill(Cell& cell) {
    const PublishedRow& row = cell.row;
    const config::Model& shape = model(row);
    cell.model = shape.name, cell.group = shape.group();
    cell.task = task_of(row);
    cell.contexts = score::prompts_of(cell.task, shape, context_tokens(row.context));
    for (const PromptLength& context : cell.contexts) {
      if (context.tokens == 0) throw UserError(fmt::format("context \"{}\" is no number of tokens", row.context));
    }
    const MethodSpec* const method = catalogue_.method(row);
    if (method == nullptr) throw UserError(fmt::format("no policy for the method {}", row.method));
    if (!method->refused.empty()) throw UserError(fmt::format("{}: {}", row.method, method->refused));
    cell.policy = policy_of(*method, row, shape, cell.contexts.front().tokens);
    if (budget_in_tokens(*method, row) && !context_tokens(row.context)) {
      score::spread_over_lengths(cell, budget_of(cell.policy), shape.max_context);
    }
    cell.coupled = method->coupled;
    cell.whole_prompt = method->whole_prompt;
    score::check_whole_prompt(cell, row.method);
    cell.each_turn = method->each_turn;
    cell.window_share = method->window_share, cell.window = method->window;
  }

  static std::int64_t budget_of(const config::PolicyChoice& policy) {
    return config::read_integer(*policy.parameters.find("budget"), "budget", 1, kMostTokens);
  }

  const Catalogue& catalogue_;
  std::map<std::string, double> full_;
  std::map<std::string, config::Model> models_;
};

}  // namespace

bool is_full(const PublishedRow& row) {
  const std::size_t plus = row.method.rfind('+');
  const std::string method = bare_name(plus == std::string::npos ? row.method : row.method.substr(plus + 1));
  return method == "full" || method == "fullkv" || method == "fullattention" || method == "fullcache";
}

ScoreComparison make_comparison(const std::vector<PublishedRow>& rows, const Catalogue& catalogue) {
  Planner planner(rows, catalogue);
  ScoreComparison plan;
  for (const PublishedRow& row : rows) {
    if (is_full(row)) continue;
    if (is_average(row, catalogue)) {
      plan.averages.push_back(planner.average(row));
      continue;
    }
    Cell cell = planner.cell(row);
    if (cell.refused.empty() && cell.full < cell.task.sparse_beats_full) {
      cell.refused = fmt::format(
          "at a full-KV score of {} sparse attention beats full attention, which fidelity to it cannot predict",
          cell.full);
    }
    plan.cells.push_back(std::move(cell));
  }
  return plan;
}

std::optional<double> kendall(const std::vector<double>& a, const std::vector<double>& b) {
  double both = 0, tied_a = 0, tied_b = 0, pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double da = a[i] - a[j], db = b[i] - b[j];
      pairs += 1;
      if (da == 0) tied_a += 1;
      if (db == 0) tied_b += 1;
      if (da != 0 && db != 0) both += (da > 0) == (db > 0) ? 1 : -1;
    }
  }
  const double scale = std::sqrt((pairs - tied_a) * (pairs - tied_b));
  if (scale == 0) return {};
  return both / scale;
}

namespace {

std::vector<double> mean_ranks(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  std::vector<double> ranks(x.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && x[order[end]] == x[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return ranks;
}

}  // namespace

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() < 2) return {};
  const std::vector<double> ra = mean_ranks(a), rb = mean_ranks(b);
  const double middle = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < ra.size(); ++i) {
    xy += (ra[i] - middle) * (rb[i] - middle);
    xx += (ra[i] - middle) * (ra[i] - middle);
    yy += (rb[i] - middle) * (rb[i] - middle);
  }
  if (xx == 0 || yy == 0) return {};
  return xy / std::sqrt(xx * yy);
}

}  // namespace kvcast::accuracy
