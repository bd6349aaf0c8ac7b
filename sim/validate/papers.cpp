#include "validate/papers.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "validate/paper_records.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

const std::map<std::string, const char*>& short_names() {
  static const std::map<std::string, const char*> names = {
      {"tpot", "decode.tpot_s.mean"},       {"ttft", "prefill.ttft_s"},
      {"tps", "decode.tokens_per_s"},       {"build", "build.seconds"},
      {"hbm", "memory.hbm_peak_bytes"},     {"decode_hbm", "memory.decode_hbm_peak_bytes"},
      {"dram", "memory.dram_peak_bytes"},   {"batch", "config.workload.batch"},
      {"kv_read", "traffic.kv_read_bytes"}, {"hbm_read", "traffic.hbm_read_bytes"},
      {"h2d", "traffic.h2d_bytes"},         {"h2d_pieces", "traffic.h2d_pieces"},
      {"d2h", "traffic.d2h_bytes"},         {"cpu_dram", "traffic.cpu_dram_bytes"}};
  return names;
}

const json* at_path(const json& record, const std::string& path) {
  const json* at = &record;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = path.find('.', begin);
    const std::string key = path.substr(begin, end - begin);
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
    if (end == std::string::npos) return at;
    begin = end + 1;
  }
}

// What a formula can write: "low-rank keys" is low_rank_keys.
std::string as_name(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return text;
}

// The entry of a list whose `by` is `name`, in its part `what`; 0 without, nothing without the list.
std::optional<double> listed(const json& record, const std::string& list, const char* by, const std::string& name,
                             const char* what) {
  const json* all = at_path(record, list);
  if (all == nullptr || !all->is_array()) return {};
  for (const json& entry : *all) {
    if (as_name(entry[by].get<std::string>()) == name) return entry[what].get<double>();
  }
  return 0;
}

std::string readings_text(const std::vector<std::pair<std::string, double>>& readings) {
  std::string text;
  for (const auto& [of, value] : readings) text += fmt::format("{}{}: {:.3g}", text.empty() ? "" : "; ", of, value);
  return text;
}

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : ". ") + more;
}

void raise(Case& c, double value) {
  c.low = c.low ? std::min(*c.low, value) : value;
  c.high = c.high ? std::max(*c.high, value) : value;
}

// The verdict on readings alone: what costs may be off by excuses nothing.
Case judge(const Claim& claim, const Records& records) {
  Case c = claim.base;
  if (claim.readings.empty()) {
    c.verdict = Verdict::kUnanswered;
    return c;
  }
  std::string missing;
  std::vector<std::pair<std::string, double>> values;
  for (const Reading& r : claim.readings) {
    const auto value = records.value(r.predict, missing);
    if (!value) continue;
    values.emplace_back(r.of, *value);
    raise(c, *value);
  }
  const bool several = values.size() > 1;
  append(c.note, missing);
  if (values.empty() || !records.value(claim.readings.front().predict, missing)) {
    c.verdict = Verdict::kOff;  // asked for, and nothing came out
    return c;
  }
  c.predicted = values.front().second;
  c.origin = records.origin(claim.readings.front().predict);
  if (several) append(c.rests_on, "readings: " + readings_text(values));
  if (claim.holds) {
    const auto holds = records.value(*claim.holds, missing);
    c.verdict = holds && *holds != 0 ? Verdict::kAgrees : Verdict::kOff;
  } else {
    c.verdict = verdict_of(c, several);
  }
  for (const Reading& r : claim.readings) {
    const auto interval = records.interval(r.predict);
    if (!interval) continue;
    if (!c.cost_low) c.cost_low = interval->low, c.cost_high = interval->high;
    raise(c, interval->low), raise(c, interval->high);
  }
  return c;
}

// Limits that the suite sets itself: they keep a change from making the whole worse unseen.
std::vector<Budget> budgets(const Suite& suite) {
  constexpr double kMedian = 15, kShare = 60;  // per cent
  const GroupSummary all = summarise(suite).front();
  Budget median{"held-out numbers, median error", "%", kMedian, {}, false};
  if (all.errors.n > 0) median.value = 100 * all.errors.median;
  Budget share{"held-out claims that agree or are bracketed", "%", kShare, {}, true};
  int good = 0, judged = 0;
  for (const Case& c : suite.cases) {
    if (!c.held_out || c.verdict == Verdict::kUnanswered || c.verdict == Verdict::kUnmeasured) continue;
    ++judged;
    good += c.verdict == Verdict::kAgrees || c.verdict == Verdict::kBracketed ? 1 : 0;
  }
  if (judged > 0) share.value = 100.0 * good / judged;
  return {median, share};
}

}  // namespace

std::optional<double> number_of(const json& record, const std::string& name) {
  if (name == "fits") return record.contains("oom") && record["oom"].is_null() ? 1 : 0;
  const auto after = [&name](const char* prefix) -> std::optional<std::string> {
    if (name.rfind(prefix, 0) != 0) return {};
    return name.substr(std::string(prefix).size());
  };
  if (const auto kind = after("exposed.")) return listed(record, "breakdown", "kind", *kind, "exposed_s");
  if (const auto kind = after("hidden.")) return listed(record, "breakdown", "kind", *kind, "hidden_s");
  if (const auto kind = after("prefill.exposed.")) {
    return listed(record, "prefill.breakdown", "kind", *kind, "exposed_s");
  }
  if (const auto kind = after("prefill.hidden.")) return listed(record, "prefill.breakdown", "kind", *kind, "hidden_s");
  if (const auto owner = after("hbm_of.")) {
    return listed(record, "memory.decode_hbm_owners", "owner", *owner, "bytes");
  }
  if (const auto owner = after("dram_of.")) {
    return listed(record, "memory.dram_owners", "owner", *owner, "bytes");
  }
  const auto short_name = short_names().find(name);
  const json* value = at_path(record, short_name != short_names().end() ? short_name->second : name);
  if (value == nullptr || !value->is_number()) return {};
  return value->get<double>();
}

Suite papers(const std::vector<Paper>& papers, const RunAll& run_all) {
  Suite suite;
  suite.name = "papers";
  suite.question = "Do the papers' efficiency claims come out of the mechanisms?";
  suite.expected_is = "published";
  suite.size_unit = "context, tokens";
  std::vector<PaperRun> runs;
  for (const Paper& paper : papers) {
    for (const PaperRun& run : paper.runs) {
      runs.push_back(run);
      for (const config::Node& other : run.on_other_traces) {
        PaperRun& on_other = runs.emplace_back(run);
        on_other.config = other, on_other.shifted = false;
      }
    }
  }
  std::vector<json> results = run_all(runs);
  std::size_t next = 0;
  for (const Paper& paper : papers) {
    Records records;
    for (const PaperRun& run : paper.runs) {
      const auto first = results.begin() + static_cast<std::ptrdiff_t>(next);
      const auto others = static_cast<std::ptrdiff_t>(run.on_other_traces.size());
      records.add(run.name, *first, {first + 1, first + 1 + others});
      next += 1 + run.on_other_traces.size();
    }
    for (const Claim& claim : paper.claims) suite.cases.push_back(judge(claim, records));
  }
  suite.budgets = budgets(suite);
  return suite;
}

}  // namespace kvcast::validate
