#include "validate/papers.hpp"

#include <algorithm>
#include <cctype>
#include <map>

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

enum class Bound { kMiddle, kLow, kHigh };

// As number_of; times at an end of their interval, all costs off in the same direction.
std::optional<double> number_at(const json& record, const std::string& name, Bound bound) {
  const std::optional<double> middle = number_of(record, name);
  if (!middle || bound == Bound::kMiddle) return middle;
  const auto short_name = short_names().find(name);
  const std::string path = short_name != short_names().end() ? short_name->second : name;
  const json* intervals = at_path(record, "intervals");
  if (intervals == nullptr || !intervals->contains(path)) return middle;
  const json& ends = (*intervals)[path];
  const bool slow_is_low = path == "decode.tokens_per_s";  // long times are few tokens a second
  return ends[(bound == Bound::kLow) != slow_is_low ? 0 : 1].get<double>();
}

Origin origin_at(const json& record, const std::string& name) {
  for (const char* exact :
       {"hbm", "decode_hbm", "dram", "fits", "batch", "kv_read", "hbm_read", "h2d", "h2d_pieces", "d2h", "cpu_dram"}) {
    if (name == exact) return Origin::kExact;
  }
  if (name.rfind("hbm_of.", 0) == 0 || name.rfind("dram_of.", 0) == 0) return Origin::kExact;
  const json* origins = at_path(record, "origin");
  if (name == "build" && origins != nullptr) return origin_from_name((*origins)["build.seconds"].get<std::string>());
  const bool prefill = name == "ttft" || name.rfind("prefill", 0) == 0;
  const char* key = prefill ? "prefill.ttft_s" : "decode.tpot_s";
  if (origins == nullptr || !origins->contains(key)) return Origin::kExact;
  return origin_from_name((*origins)[key].get<std::string>());
}

// The records of a paper's runs by name.
class Records {
 public:
  void add(const std::string& name, json record) { records_[name] = std::move(record); }

  // Nothing where a number is missing; `missing` then names it.
  std::optional<double> value(const Formula& formula, Bound bound, std::string& missing) const {
    std::map<std::string, double> numbers;
    for (const std::string& name : formula.names()) {
      const auto [record, path] = find(name);
      const std::optional<double> number = number_at(record, path, bound);
      if (!number) {
        missing = fmt::format("{} is missing", name);
        const json* oom = at_path(record, "oom");
        if (oom != nullptr && oom->is_object()) {
          missing += fmt::format(": does not fit in {} at {}", oom->value("pool", ""), oom->value("moment", ""));
        }
        return {};
      }
      numbers[name] = *number;
    }
    return formula.value([&numbers](const std::string& name) { return numbers.at(name); });
  }

  Origin origin(const Formula& formula) const {
    Origin worst = Origin::kExact;
    for (const std::string& name : formula.names()) {
      const auto [record, path] = find(name);
      worst = worse(worst, origin_at(record, path));
    }
    return worst;
  }

 private:
  std::pair<const json&, std::string> find(const std::string& name) const {
    const std::size_t dot = name.find('.');
    return {records_.at(name.substr(0, dot)), name.substr(dot + 1)};
  }
  std::map<std::string, json> records_;
};

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

Case judge(const Claim& claim, const Records& records) {
  Case c = claim.base;
  if (claim.readings.empty()) {
    c.verdict = Verdict::kUnanswered;
    return c;
  }
  std::string missing;
  std::vector<std::pair<std::string, double>> values;
  for (const Reading& r : claim.readings) {
    const auto value = records.value(r.predict, Bound::kMiddle, missing);
    if (!value) continue;
    values.emplace_back(r.of, *value);
    raise(c, *value);
  }
  const bool several = values.size() > 1;
  append(c.note, missing);
  if (values.empty() || !records.value(claim.readings.front().predict, Bound::kMiddle, missing)) {
    c.verdict = Verdict::kOff;  // asked for, and nothing came out
    return c;
  }
  c.predicted = values.front().second;
  c.origin = records.origin(claim.readings.front().predict);
  if (several) append(c.rests_on, "readings: " + readings_text(values));
  if (!several) {
    for (const Bound end : {Bound::kLow, Bound::kHigh}) {
      if (const auto value = records.value(claim.readings.front().predict, end, missing)) raise(c, *value);
    }
  }
  if (claim.holds) {
    const auto holds = records.value(*claim.holds, Bound::kMiddle, missing);
    c.verdict = holds && *holds != 0 ? Verdict::kAgrees : Verdict::kOff;
  } else {
    c.verdict = verdict_of(c, several);
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
  for (const Paper& paper : papers) runs.insert(runs.end(), paper.runs.begin(), paper.runs.end());
  std::vector<json> results = run_all(runs);
  std::size_t next = 0;
  for (const Paper& paper : papers) {
    Records records;
    for (const PaperRun& run : paper.runs) records.add(run.name, std::move(results[next++]));
    for (const Claim& claim : paper.claims) suite.cases.push_back(judge(claim, records));
  }
  suite.budgets = budgets(suite);
  return suite;
}

}  // namespace kvcast::validate
