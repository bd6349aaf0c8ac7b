#include "plan/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace kvcast::plan {
namespace {

using nlohmann::json;

std::string policy_text(const json& policy) {
  std::string text = policy.value("name", "?");
  for (const auto& [key, value] : policy.items()) {
    if (key != "name") text += fmt::format(", {} {}", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

// Three significant digits without an exponent: 1050, 82.3.
std::string rate_text(double tokens_per_s) {
  if (tokens_per_s < 100) return fmt::format("{:.3g}", tokens_per_s);
  const double unit = std::pow(10, std::floor(std::log10(tokens_per_s)) - 2);
  return fmt::format("{:.0f}", std::round(tokens_per_s / unit) * unit);
}

std::string tokens_text(std::int64_t tokens) {
  return tokens >= 10240 ? fmt::format("{}K", (tokens + 512) / 1024) : fmt::format("{}", tokens);
}

std::vector<std::string> cards(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& r : rows) {
    if (std::find(names.begin(), names.end(), r.hardware) == names.end()) names.push_back(r.hardware);
  }
  return names;
}

// The fastest row that fits and keeps enough, among those that `wanted` lets through.
template <typename Wanted>
std::optional<Row> recommended(const std::vector<Row>& rows, const Wanted& wanted) {
  double best_recall = 0;
  const auto candidate = [&wanted](const Row& r) { return !r.oom && !r.oracle && wanted(r); };
  for (const Row& r : rows) {
    if (candidate(r)) best_recall = std::max(best_recall, r.recall);
  }
  std::optional<Row> best;
  for (const Row& r : rows) {
    if (!candidate(r) || r.recall < kRecallShare * best_recall) continue;
    if (!best || r.tokens_per_s > best->tokens_per_s) best = r;
  }
  return best;
}

struct Limit {
  std::int64_t context = 0, batch = 0;
};

// The longest context, and the largest batch at which anything fits there.
std::optional<Limit> memory_limit(const std::vector<Row>& rows, const std::string& card) {
  std::optional<Limit> limit;
  for (const Row& r : rows) {
    if (r.hardware != card || r.oom) continue;
    const auto size = [](const Limit& l) { return std::pair{l.context, l.batch}; };
    if (!limit || size({r.context, r.batch}) > size(*limit)) limit = Limit{r.context, r.batch};
  }
  return limit;
}

std::optional<Row> winner(const std::vector<Row>& rows, const std::string& card) {
  const auto limit = memory_limit(rows, card);
  if (!limit) return {};
  return recommended(
      rows, [&](const Row& r) { return r.hardware == card && r.context == limit->context && r.batch == limit->batch; });
}

const Row* full_at(const std::vector<Row>& rows, const std::string& card, std::int64_t context, std::int64_t batch) {
  for (const Row& r : rows) {
    if (r.hardware == card && r.context == context && r.batch == batch && r.policy_name == "full") return &r;
  }
  return nullptr;
}

struct Line {
  std::string text, detail;
};

Line best_line(const std::vector<Row>& rows, const Row& best) {
  const Row* full = full_at(rows, best.hardware, best.context, best.batch);
  Line line;
  line.text = fmt::format("{} ({} tokens/s at {} tokens, batch {})", best.policy, rate_text(best.tokens_per_s),
                          tokens_text(best.context), best.batch);
  line.detail = fmt::format("between {} and {} tokens/s, {:.1f} % of the attention mass kept", rate_text(best.low),
                            rate_text(best.high), 100 * best.recall);
  if (full != nullptr) {
    line.detail +=
        full->oom ? ", full KV does not fit" : fmt::format(", full KV {} tokens/s", rate_text(full->tokens_per_s));
  }
  return line;
}

struct BreakEven {
  // By context, the smallest batch at which the policy is faster than full KV.
  std::map<std::int64_t, std::string> first;
  // Whether full KV was swept beside the policy anywhere.
  bool compared = false;
};

BreakEven break_even(const std::vector<Row>& rows, const Row& best) {
  std::map<std::pair<std::int64_t, std::int64_t>, const Row*> of_policy;
  for (const Row& r : rows) {
    if (r.hardware == best.hardware && r.policy == best.policy && !r.oom) of_policy[{r.context, r.batch}] = &r;
  }
  BreakEven out;
  std::map<std::int64_t, std::string>& first = out.first;
  for (const auto& [point, row] : of_policy) {
    const auto [context, batch] = point;
    const Row* full = full_at(rows, best.hardware, context, batch);
    if (full == nullptr) continue;
    out.compared = true;
    if (first.count(context) != 0) continue;
    if (full->oom) first[context] = fmt::format("{} (full KV no longer fits)", batch);
    if (!full->oom && row->tokens_per_s > full->tokens_per_s) first[context] = fmt::format("{}", batch);
  }
  return out;
}

Line break_even_line(const std::vector<Row>& rows, const Row& best) {
  if (best.policy_name == "full") return {"full KV is the fastest here", ""};
  const BreakEven found = break_even(rows, best);
  if (!found.compared) return {fmt::format("{} was not swept beside full KV", best.policy), ""};
  std::map<std::string, std::vector<std::string>> contexts;  // by batch
  std::vector<std::string> batches;                          // in order of the first context
  for (const auto& [context, batch] : found.first) {
    if (contexts.count(batch) == 0) batches.push_back(batch);
    contexts[batch].push_back(tokens_text(context));
  }
  std::vector<std::string> parts;
  for (const std::string& batch : batches) {
    parts.push_back(fmt::format("{} at {}", batch, fmt::join(contexts[batch], ", ")));
  }
  if (parts.empty()) return {fmt::format("{} is never faster than full KV in this sweep", best.policy), ""};
  return {fmt::format("{} beats full KV from batch {}", best.policy, fmt::join(parts, "; ")),
          "the smallest swept batch at which it is faster, by context"};
}

Line bound_line(const std::vector<Row>& rows, const Row& best) {
  const Row* full = full_at(rows, best.hardware, best.context, 1);
  const std::string detail = full != nullptr && !full->oom ? fmt::format("full KV at batch 1: {}", full->bound) : "";
  return {fmt::format("{} sets the pace of {}", best.bound, best.policy), detail};
}

}  // namespace

std::vector<Row> read_rows(const store::Store& store) {
  std::vector<Row> rows;
  store.for_each([&rows](const store::Record& record) {
    if (record.status == store::Status::kFailed) return;
    Row row;
    const json& config = record.config;
    const json& result = record.result;
    row.hardware = config.value("hardware", "?");
    row.context = config["workload"].value("prompt_tokens", std::int64_t{0});
    row.batch = config["workload"].value("batch", std::int64_t{0});
    row.policy_name = config["policy"].value("name", "?");
    row.policy = policy_text(config["policy"]);
    row.oracle = config.value("policy_category", "").find("oracle") != std::string::npos;
    row.oom = record.status == store::Status::kOom;
    row.recall = result["accuracy"].value("recall_mass_mean", 0.0);
    if (!row.oom) {
      row.tokens_per_s = result["decode"].value("tokens_per_s", 0.0);
      row.low = result["intervals"]["decode.tokens_per_s"][0];
      row.high = result["intervals"]["decode.tokens_per_s"][1];
      row.bound = result.value("binding_resource", "");
    }
    rows.push_back(std::move(row));
  });
  return rows;
}

std::vector<Finding> findings(const std::vector<Row>& rows) {
  using Describe = Line (*)(const std::vector<Row>&, const Row&);
  static constexpr std::pair<const char*, Describe> kKinds[] = {{"Best policy at the memory limit", best_line},
                                                                {"Break-even batch", break_even_line},
                                                                {"Binding resource", bound_line}};
  std::vector<Finding> all;
  for (const auto& [title, describe] : kKinds) {
    Finding finding{title, "", ""};
    for (const std::string& card : cards(rows)) {
      const auto best = winner(rows, card);
      const Line line = best ? describe(rows, *best) : Line{"nothing in this sweep fits", ""};
      finding.text += fmt::format("{}{}: {}", finding.text.empty() ? "" : "\n", card, line.text);
      if (!line.detail.empty())
        finding.detail += fmt::format("{}{}: {}", finding.detail.empty() ? "" : "\n", card, line.detail);
    }
    all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace kvcast::plan
