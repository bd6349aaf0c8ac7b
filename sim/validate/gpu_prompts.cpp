#include "validate/gpu_prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/quote.hpp"
#include "calibrate/json_file.hpp"
#include "validate/times.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

constexpr double kPromptMedian = 20, kPromptP90 = 40;  // per cent, as for other eager frameworks
constexpr double kLongest = 1e6;                       // seconds
constexpr const char* kName = "gpu_prompts";

// A map of the file, and what to call it in messages.
struct NamedMap {
  const std::string& path;
  std::string name;
  const json& map;

  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError({path, 0, 0}, fmt::format("{}: {}", name, what));
  }
  const json& at(const char* key) const {
    if (!map.is_object() || !map.contains(key)) refuse(fmt::format("\"{}\" is missing", key));
    return map[key];
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) refuse(fmt::format("{} is no text", key));
    return at(key).get<std::string>();
  }
  std::string one_of(const char* key, const std::vector<std::string>& known) const {
    const std::string found = text(key);
    if (std::ranges::find(known, found) == known.end()) {
      throw UserError({path, 0, 0}, fmt::format("{}: unknown {} {}", name, key, quote(found)), known);
    }
    return found;
  }
  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most) const {
    const json& found = at(key);
    const bool is_whole = found.is_number_integer() && found >= least && found <= most;
    if (!is_whole) refuse(fmt::format("{} is {}, not a whole number from {} to {}", key, found.dump(), least, most));
    return found.get<std::int64_t>();
  }
  std::vector<double> times(const char* key) const {
    const json& found = at(key);
    if (!found.is_array() || found.empty()) refuse(fmt::format("{} is no list of times", key));
    std::vector<double> all;
    for (const json& time : found) {
      if (!time.is_number() || !(time > 0) || !(time < kLongest)) {
        refuse(fmt::format("{} has {}, not a time in seconds", key, time.dump()));
      }
      all.push_back(time.get<double>());
    }
    return all;
  }
};

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

MeasuredPrompt read_prompt(const NamedMap& entry) {
  constexpr std::int64_t kMost = 100'000'000;
  MeasuredPrompt p;
  p.attention = entry.one_of("attention", {"flash", "sdpa", "eager"});
  p.policy = entry.one_of("policy", {"full", "keydiff", "tova"});
  p.batch = entry.whole("batch", 1, 4096), p.context = entry.whole("context", 1, kMost);
  p.block = entry.whole("block", 0, 65536);
  p.budget = entry.whole("budget", p.policy == "full" ? 0 : 1, kMost);
  if (entry.at("all_s").is_null()) return p;
  const std::vector<double> all = entry.times("all_s");
  p.seconds = p.attention == "sdpa" ? all.front() : median(all);
  p.blocks = entry.times("blocks_s");
  const std::int64_t blocks = p.block == 0 ? 1 : (p.context + p.block - 1) / p.block;
  if (static_cast<std::int64_t>(p.blocks.size()) != blocks) {
    entry.refuse(fmt::format("blocks_s has {} times, the prompt {} blocks", p.blocks.size(), blocks));
  }
  return p;
}

std::string name_of(const MeasuredPrompt& p) {
  return fmt::format("{}_{}_{}_{}_{}_{}", p.attention, p.policy, p.batch, p.context, p.block, p.budget);
}

// The longest cache that a block of the prompt attends to.
std::int64_t longest_cache(const MeasuredPrompt& p) {
  return p.policy == "full" ? p.context : std::min(p.context, p.budget + p.block);
}

bool plans_for(const MeasuredPrompt& earlier, const MeasuredPrompt& p) {
  return earlier.attention == "sdpa" && p.attention == "sdpa" && p.block > 0 && earlier.block == p.block &&
         earlier.batch == p.batch && longest_cache(earlier) >= longest_cache(p);
}

std::string block_text(const MeasuredPrompt& p) {
  return p.block == 0 ? std::string("whole") : fmt::format("in blocks of {}", p.block);
}

// Prompts that differ in nothing but the block.
std::string but_for_block(MeasuredPrompt p) {
  p.block = 0;
  return name_of(p);
}

class Asked {
 public:
  Asked(const MeasuredPrompts& measured, const std::string& profile) : measured_(measured), profile_(profile) {
    paper_.group = "prompts";
  }
  Paper all() {
    for (const MeasuredPrompt& p : measured_.prompts) add_time(p), add_blocks(p);
    for (const MeasuredPrompt& p : measured_.prompts) add_ratio(p), add_saving(p);
    return std::move(paper_);
  }
  // Each prompt's time alone, for the suite `times`.
  Paper times() {
    for (const MeasuredPrompt& p : measured_.prompts) {
      add_time(p).times = p.policy == "full" ? kEagerPrompts : kPoliciesInEagerFrameworks;
    }
    return std::move(paper_);
  }

 private:
  // Adds the run unless it is there, and returns its name.
  std::string run(const MeasuredPrompt& p) {
    const std::string name = name_of(p) + (p.planned ? "_planned" : "");
    if (!names_.insert(name).second) return name;
    const std::string block = p.block == 0 ? std::string() : fmt::format(", block: {}", p.block);
    const std::string evicts = fmt::format("{{name: {}, budget: {}{}}}", p.policy, p.budget, block);
    const bool full = p.policy == "full";
    // TOVA ranks by the last query of every block.
    const std::int64_t window = p.policy == "tova" ? p.context : std::min<std::int64_t>(64, p.context);
    const std::string text = fmt::format(
        "model: {{layers: {}}}\nframework: {{name: transformers-{}-{}{}}}\npolicy: {}\n"
        "workload: {{prompt_tokens: {}, decode_tokens: 2, batch: {}, prefill_chunk: {}}}\n"
        "trace: {{recipe: local, layers: 1, steps: 2, window: {}}}\n",
        measured_.layers, measured_.release, p.attention, p.planned ? ", attention_plan: 0 s" : "",
        full ? "full" : evicts, p.context, p.batch, full ? p.block : 0, window);
    const auto quoted = [](const std::string& value) { return config::Node::scalar(value, {}, true); };
    PaperRun& added = paper_.runs.emplace_back();
    added.name = name;
    added.point.config =
        config::parse_yaml(text, name).with("model.like", quoted(measured_.model)).with("hardware", quoted(profile_));
    added.point.ask.effects = simulate::Effects::kDetailed;
    return name;
  }

  Claim& claim(const std::string& id, const std::string& group, const std::string& quantity, const std::string& unit,
               std::int64_t context, const std::string& predict, std::optional<double> measured) {
    Claim& added = paper_.claims.emplace_back();
    Case& c = added.base;
    c.id = id, c.group = group, c.quantity = quantity, c.unit = unit, c.expected = measured;
    c.tolerance = kPromptMedian / 100, c.size = static_cast<double>(context);
    c.source = fmt::format("transformers {} on {}", measured_.release, measured_.device);
    c.depends_on = "the framework's preset and the profile " + profile_;
    added.readings.push_back({"", Formula(predict, {})});
    return added;
  }

  static std::string group_of(const MeasuredPrompt& p) { return p.attention + ", " + p.policy; }
  static std::string quantity_of(const MeasuredPrompt& p) {
    return fmt::format("{}, {} tokens {}", group_of(p), p.context, block_text(p));
  }

  Claim& add_time(const MeasuredPrompt& p) {
    return claim(name_of(p), group_of(p), "prompt, " + quantity_of(p), "ms", p.context,
                 fmt::format("1000 * {}.ttft", run(p)), p.seconds ? std::optional(1e3 * *p.seconds) : std::nullopt);
  }

  void add_blocks(const MeasuredPrompt& p) {
    const std::string name = name_of(p), group = group_of(p), quantity = quantity_of(p), ran = run(p);
    if (p.policy != "full" || p.block == 0 || p.context % (4 * p.block) != 0) return;
    // The time of a block is the difference between prompts that end with and without it.
    MeasuredPrompt quarter = p, three = p;
    quarter.context = p.context / 4, three.context = 3 * p.context / 4;
    const auto quarter_blocks = static_cast<std::ptrdiff_t>(quarter.context / p.block);
    const auto mean_of = [&](std::ptrdiff_t first) -> std::optional<double> {
      if (p.blocks.empty()) return {};
      double sum = 0;
      for (std::ptrdiff_t i = first; i < first + quarter_blocks; ++i) sum += p.blocks[static_cast<std::size_t>(i)];
      return 1e3 * sum / static_cast<double>(quarter_blocks);
    };
    claim(name + " first", group, "block of the first quarter, " + quantity, "ms", quarter.context,
          fmt::format("1000 * {}.ttft / {}", run(quarter), quarter_blocks), mean_of(0));
    claim(name + " last", group, "block of the last quarter, " + quantity, "ms", p.context,
          fmt::format("1000 * ({}.ttft - {}.ttft) / {}", ran, run(three), quarter_blocks), mean_of(3 * quarter_blocks));
  }

  // The longest of the blocks that p was read in, whole prompts apart.
  const MeasuredPrompt* longest_blocks(const MeasuredPrompt& p) const {
    const MeasuredPrompt* longest = nullptr;
    for (const MeasuredPrompt& other : measured_.prompts) {
      if (but_for_block(other) == but_for_block(p) && (longest == nullptr || other.block > longest->block)) {
        longest = &other;
      }
    }
    return longest;
  }

  void add_ratio(const MeasuredPrompt& p) {
    const MeasuredPrompt* longest = longest_blocks(p);
    if (p.block == 0 || longest == nullptr || longest->block <= p.block) return;
    const auto measured = p.seconds && longest->seconds ? std::optional(*p.seconds / *longest->seconds) : std::nullopt;
    claim(name_of(p) + " ratio", "short over long blocks",
          fmt::format("{}, {}, {} tokens, blocks of {} over {}", p.attention, p.policy, p.context, p.block,
                      longest->block),
          "x", p.context, fmt::format("{}.ttft / {}.ttft", run(p), run(*longest)), measured);
  }

  // KeyDiff needs no attention weights; TOVA does, and cannot use a fused kernel.
  void add_saving(const MeasuredPrompt& tova) {
    if (tova.policy != "tova") return;
    for (const MeasuredPrompt& p : measured_.prompts) {
      const bool same = p.policy == "keydiff" && p.batch == tova.batch && p.context == tova.context &&
                        p.block == tova.block && p.budget == tova.budget;
      if (!same) continue;
      const auto measured =
          p.seconds && tova.seconds ? std::optional(100 * (1 - *p.seconds / *tova.seconds)) : std::nullopt;
      claim(name_of(p) + " saved", "saved against TOVA",
            fmt::format("{}, {} tokens {}", p.attention, p.context, block_text(p)), "%", p.context,
            fmt::format("100 * (1 - {}.ttft / {}.ttft)", run(p), run(tova)), measured);
    }
  }

  const MeasuredPrompts& measured_;
  std::string profile_;
  Paper paper_;
  std::set<std::string> names_;
};

std::vector<Paper> papers_of(const Measured& input, Paper (Asked::*claims)()) {
  std::vector<Paper> papers;
  for (const Measured& from : given_or_committed(kName, input, "transformers_prompts.json")) {
    const MeasuredPrompts measured = read_prompts(from.results);
    papers.push_back((Asked(measured, from.profile).*claims)());
  }
  return papers;
}

}  // namespace

MeasuredPrompts read_prompts(const std::string& path) {
  const json document = calibrate::read_json_file(path, "the prompts");
  const NamedMap whole{path, "results", document};
  MeasuredPrompts all;
  all.device = whole.text("device"), all.model = whole.text("model");
  all.layers = whole.whole("layers", 1, 10000);
  const std::string version = whole.text("transformers");
  all.release = version.substr(0, version.find('.', version.find('.') + 1));
  const bool is_release = std::ranges::all_of(
      all.release, [](char c) { return c == '.' || std::isdigit(static_cast<unsigned char>(c)) != 0; });
  if (!is_release || version.find('.') == std::string::npos) {
    whole.refuse(fmt::format("transformers is {}, not a version", quote(version)));
  }
  const json& prompts = whole.at("prompts");
  if (!prompts.is_array()) whole.refuse("prompts: expected a list");
  std::set<std::string> names;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const NamedMap entry{path, fmt::format("prompt {}", i), prompts[i]};
    MeasuredPrompt p = read_prompt(entry);
    p.planned = std::ranges::any_of(all.prompts, [&](const MeasuredPrompt& earlier) { return plans_for(earlier, p); });
    if (!names.insert(name_of(p)).second) entry.refuse("measured twice");
    all.prompts.push_back(std::move(p));
  }
  return all;
}

std::vector<Paper> prompt_times() { return papers_of({}, &Asked::times); }

Suite gpu_prompts(const Measured& input, const RunAll& run_all) {
  Suite suite;
  suite.name = kName;
  suite.question = "How accurately are prompts predicted that are read in blocks, with and without eviction?";
  suite.baseline_is = kStepBaseline;
  suite.size_unit = "tokens of context";
  suite.cases = cases_of(papers_of(input, &Asked::all), run_all);
  if (suite.cases.empty()) {
    suite.status =
        "unmeasured: kernels/transformers_prompts.py measures it on a GPU; then kvcast validate gpu_prompts --from "
        "OUT.json --profile PROFILE.yaml";
    return suite;
  }
  std::vector<double> errors;
  for (const Case& c : suite.cases) {
    if (c.unit == "ms" && relative_error(c)) errors.push_back(*relative_error(c));
  }
  const metrics::ErrorSummary s = metrics::summarise_errors(errors);
  const auto value = [&](double x) { return s.n > 0 ? std::optional<double>(100 * x) : std::nullopt; };
  suite.budgets = {{"times, median error", "%", kPromptMedian, value(s.median)},
                   {"times, p90 error", "%", kPromptP90, value(s.p90)}};
  return suite;
}

}  // namespace kvcast::validate
