#include "config/traffic.hpp"

#include <fmt/format.h>

#include <vector>

#include "config/find.hpp"
#include "config/framework.hpp"
#include "config/keys.hpp"

namespace kvcast::config {
namespace {

// Simulated time ends after 106 days (base/units.hpp).
constexpr double kLongestTime = 4e6;      // of the arrivals of a run, seconds
constexpr double kLongestThinking = 1e6;  // seconds
constexpr std::int64_t kMostRequests = 1'000'000'000, kMostPrompts = 10'000'000;

[[noreturn]] void refuse_key(const Section& section, std::string_view key, std::string_view why) {
  throw UserError(section.where(key), fmt::format("traffic: {}: {}", key, why));
}

// Throws UserError for the first of the keys that is written.
void refuse_keys(Section& section, const std::vector<std::string_view>& keys, std::string_view why) {
  for (const std::string_view key : keys) {
    if (section.has(key)) refuse_key(section, key, why);
  }
}

// Refuses the path of a file that a request over the network states.
void check_path(const Section& section) {
  const SourceLocation where = section.where("file");
  if (where.from_request) refuse_request_for_file(where);
}

constexpr Limits kLengthLimits{1, kMaxTokens}, kThinking{0, kLongestThinking, Dimension::kSeconds}, kSpread{0, 10},
    kBound{1e-9, kLongestTime, Dimension::kSeconds};

template <LengthDistribution::Kind Kind>
bool is(const LengthDistribution& lengths) {
  return lengths.kind == Kind;
}

constexpr Key<LengthDistribution> kLengthKeys[] = {
    {"file", when(is<LengthDistribution::Kind::kFile>, need<&LengthDistribution::file>),
     "a CSV with the columns `prompt_tokens` and `output_tokens`: requests draw a row each, the same for both lengths "
     "if both name the file"},
    {"mean", when(is<LengthDistribution::Kind::kLognormal>, within(kLengthLimits, need<&LengthDistribution::mean>)),
     "mean of a lognormal distribution, which is rounded to whole tokens, at least 1"},
    {"cv", when(is<LengthDistribution::Kind::kLognormal>, within(kSpread, need<&LengthDistribution::cv>)),
     "its standard deviation, divided by the mean"},
    {"low", when(is<LengthDistribution::Kind::kUniform>, within(kLengthLimits, need<&LengthDistribution::low>)),
     "smallest number of tokens, all up to `high` being equally likely"},
    {"high", when(is<LengthDistribution::Kind::kUniform>, within(kLengthLimits, need<&LengthDistribution::high>)),
     "largest number of tokens"}};

LengthDistribution read_length_map(Section section, std::string_view title) {
  LengthDistribution lengths;
  lengths.where = section.where();
  const bool file = section.has("file"), mean = section.has("mean") || section.has("cv");
  const bool range = section.has("low") || section.has("high");
  if (file) lengths.kind = LengthDistribution::Kind::kFile;
  if (mean) lengths.kind = LengthDistribution::Kind::kLognormal;
  if (range) lengths.kind = LengthDistribution::Kind::kUniform;
  read_keys(section, kLengthKeys, lengths);
  section.finish();
  if (file) check_path(section);
  if (file + mean + range != 1) {
    throw UserError(section.where(),
                    fmt::format("traffic: {}: give a number, {{mean, cv}}, {{low, high}} or {{file}}", title));
  }
  if (lengths.low > lengths.high) {
    throw UserError(section.where("low"),
                    fmt::format("traffic: {}: low is {}, above high, which is {}", title, lengths.low, lengths.high));
  }
  return lengths;
}

template <auto Member, int Default>
void read_lengths(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  LengthDistribution& lengths = traffic.*Member;
  const std::optional<Node> node = section.optional_node(key.name);
  if (node && node->kind() == Node::Kind::kMap) {
    lengths = read_length_map({*node, std::string(key.name)}, key.name);
    return;
  }
  std::int64_t tokens = Default;
  read_key(section, key, tokens);
  lengths.mean = static_cast<double>(tokens);
  lengths.where = section.where(key.name);
}

constexpr Key<SharedPrefix> kPrefixKeys[] = {
    {"tokens", within(kLengthLimits, need<&SharedPrefix::tokens>),
     "tokens at the start of each prompt that a group has in common; of a shorter prompt all"},
    {"groups", within(1, kMostRequests, into<&SharedPrefix::groups>), "groups, each with a prefix of its own"},
    {"prompts", within(0, kMostPrompts, into<&SharedPrefix::prompts>),
     "different prompts of a group; those of all groups come in one random order, again and again. 0: what follows the "
     "prefix never comes again"}};

void read_prefix(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (!section.has(key.name)) return;
  SharedPrefix& prefix = traffic.shared_prefix;
  const Section map = read_map(section, key.name, kPrefixKeys, prefix);
  if (prefix.groups * prefix.prompts > kMostPrompts) {
    throw UserError(map.where("prompts"),
                    fmt::format("shared_prefix: {} groups of {} prompts are more than {} different prompts",
                                prefix.groups, prefix.prompts, kMostPrompts));
  }
}

constexpr Key<Sessions> kSessionKeys[] = {
    {"turns", within(1, 100'000, need<&Sessions::turns>), "requests of a session, one after the other"},
    {"turn_tokens", within(kLengthLimits, need<&Sessions::turn_tokens>),
     "tokens that each later turn adds to the prompt and the answer before"},
    {"think_time", within(kThinking, into<&Sessions::think_time>),
     "time from the end of a turn to the arrival of the next one"}};

void read_sessions(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (section.has(key.name)) read_map(section, key.name, kSessionKeys, traffic.sessions.emplace());
}

constexpr Key<Slo> kSloKeys[] = {
    {"ttft", within(kBound, into<&Slo::ttft>), "longest time from a request's arrival to its first token"},
    {"tpot", within(kBound, into<&Slo::tpot>), "longest mean time of a request's further tokens"},
    {"e2e", within(kBound, into<&Slo::e2e>), "longest time from a request's arrival to its last token"}};

void read_slo(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (!section.has(key.name)) return;
  Slo& slo = traffic.slo.emplace();
  const Section map = read_map(section, key.name, kSloKeys, slo);
  if (slo.ttft || slo.tpot || slo.e2e) return;
  throw UserError(map.where(), "traffic: slo: give at least one bound", {"ttft", "tpot", "e2e"});
}

constexpr const char* kProcesses[] = {"poisson", "constant", "gamma"};
constexpr const char* kTraceFormats[] = {"azure",      "burstgpt",      "mooncake", "bailian",
                                         "vllm-bench", "llmservingsim", "kvcast"};

bool is_text(const std::optional<Node>& node, std::string_view text) {
  return node && node->kind() == Node::Kind::kScalar && node->text() == text;
}

void read_rate(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (is_text(section.optional_node(key.name), "all")) {
    traffic.arrivals = Traffic::Arrivals::kAll;
  } else if (section.has(key.name)) {
    traffic.rate = section.number(key.name, key.slot.limits.low, key.slot.limits.high);
  }
}

void read_cv(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (traffic.process == Traffic::Process::kConstant) traffic.cv = 0;
  read_key(section, key, traffic.cv);
}

void read_concurrency(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (!section.has(key.name)) return;
  traffic.arrivals = Traffic::Arrivals::kConcurrency;
  read_key(section, key, traffic.concurrency);
}

void read_file(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (!section.has(key.name)) return;
  traffic.arrivals = Traffic::Arrivals::kTrace;
  read_key(section, key, traffic.file);
  check_path(section);
}

void read_format(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  if (section.has(key.name))
    traffic.format = static_cast<Traffic::Format>(1 + section.one_of<int>(key.name, key.slot.names()));
}

void read_length_factor(Section& section, const Key<Traffic>& key, Traffic& traffic) {
  traffic.published_factor = is_text(section.optional_node(key.name), "published");
  if (!traffic.published_factor) read_key(section, key, traffic.length_factor);
}

using Type = KeyShape::Type;

constexpr Key<Traffic> kTrafficKeys[] = {
    {"rate", within(1e-6, 1e9, by(read_rate, own<Traffic>(Type::kNumber))),
     "requests a second that arrive, whatever the service does; `all`: every request at time 0. Turns of sessions "
     "count, so that first turns arrive at rate / turns"},
    {"process", among<kProcesses>(into<&Traffic::process>),
     "of the times between arrivals: `poisson`, `constant`, or `gamma` with `cv`"},
    {"cv", within(0.01, 10, by(read_cv, own<Traffic>(Type::kNumber))),
     "standard deviation of the times between arrivals, divided by their mean; 1: poisson"},
    {"concurrency", within(1, 10'000'000, by(read_concurrency, own<Traffic>(Type::kInteger))),
     "instead of `rate`: requests, or sessions, at a time; the next one follows when one has ended"},
    {"think_time", within(kThinking, into<&Traffic::think_time>),
     "time from the end of one of these to the arrival of the next one"},
    {"file", by(read_file, own<Traffic>(Type::kText)),
     "instead of both: a trace of requests, by its path from the working directory"},
    {"format", among<kTraceFormats>(by(read_format, own<Traffic>(Type::kText))),
     "of the trace; known from its content if not written"},
    {"speedup", within(1e-6, 1e6, into<&Traffic::speedup>), "arrival times of the trace are divided by this"},
    {"requests", within(1, kMostRequests, into<&Traffic::requests>),
     "requests that arrive, of a trace its first ones if it has more"},
    {"prompt_tokens",
     within(kLengthLimits, by(read_lengths<&Traffic::prompt_tokens, 8192>, own<Traffic>(Type::kInteger, "8192"))),
     "tokens of a prompt, of a session's first one: a number, {mean, cv}, {low, high} or {file}"},
    {"output_tokens",
     within(kLengthLimits, by(read_lengths<&Traffic::output_tokens, 256>, own<Traffic>(Type::kInteger, "256"))),
     "tokens generated for a request, written like those of a prompt"},
    {"length_factor", within(0.1, 10, by(read_length_factor, into<&Traffic::length_factor>)),
     "factor on output lengths, since answers grow under policies that evict; `published`: that of the policy and its "
     "budget, from configs/accuracy/answer_lengths.yaml"},
    {"shared_prefix", by(read_prefix, own<Traffic>(Type::kMap)),
     "tokens at the start of prompts that others start with as well"},
    {"sessions", by(read_sessions, own<Traffic>(Type::kMap)),
     "requests are turns of sessions, whose prompts repeat what was said before"},
    {"seed", within(0, Limits().high, into<&Traffic::seed>),
     "seed of the random numbers: a request has the same lengths whatever the rate, policy and scheduler"},
    {"slo", by(read_slo, own<Traffic>(Type::kMap)), "longest times that a request may take; at least one"}};

using Arrivals = Traffic::Arrivals;

// Throws UserError for keys that contradict each other or that have no effect.
void check_arrivals(Section& section, const Traffic& traffic) {
  if (!section.has("rate") && !section.has("concurrency") && !section.has("file")) {
    throw UserError(section.where(), "traffic: give one of the keys that say when requests arrive",
                    {"rate", "concurrency", "file"});
  }
  if (section.has("file")) refuse_keys(section, {"rate", "concurrency"}, "the trace says when requests arrive");
  if (section.has("concurrency")) refuse_keys(section, {"rate"}, "give either rate or concurrency");
  if (!section.has("concurrency")) {
    refuse_keys(section, {"think_time"}, "belongs to concurrency (that of turns is sessions.think_time)");
  }
  const bool random = traffic.arrivals == Arrivals::kRate;
  if (!random) refuse_keys(section, {"process", "cv"}, "belongs to a rate in requests a second");
  const bool gamma = traffic.process == Traffic::Process::kGamma;
  if (!gamma) refuse_keys(section, {"cv"}, "belongs to `process: gamma`");
  if (gamma && !section.has("cv")) refuse_key(section, "process", "gamma needs cv");
  if (!section.has("file")) {
    refuse_keys(section, {"format", "speedup"}, "belongs to file");
  } else {
    refuse_keys(section, {"prompt_tokens", "output_tokens", "shared_prefix", "sessions"},
                "the trace says which requests arrive");
  }
  if (random && static_cast<double>(traffic.requests) / traffic.rate > kLongestTime) {
    refuse_key(section, "rate",
               fmt::format("{} requests take more than {} s to arrive", traffic.requests, kLongestTime));
  }
}

// Prompts contain their shared prefix.
void check_prefix(const Section& section, const Traffic& traffic) {
  const LengthDistribution& prompt = traffic.prompt_tokens;
  const bool fixed = prompt.kind == LengthDistribution::Kind::kFixed,
             uniform = prompt.kind == LengthDistribution::Kind::kUniform;
  const auto prefix = static_cast<double>(traffic.shared_prefix.tokens);
  const double shortest = fixed ? prompt.mean : uniform ? static_cast<double>(prompt.low) : prefix;
  if (prefix <= shortest) return;
  refuse_key(
      section, "shared_prefix",
      fmt::format("{} tokens, but prompts, which contain it, may have {}", traffic.shared_prefix.tokens, shortest));
}

using TextVisit = std::function<void(const std::string&, const std::string&)>;

template <class T>
void visit_number(const TextVisit& visit, const std::string& key, const T& value) {
  visit(key, fmt::format("{}", value));
}

void visit_arrivals(const Traffic& traffic, const TextVisit& visit) {
  switch (traffic.arrivals) {
    case Traffic::Arrivals::kAll:
      return visit("rate", "all");
    case Traffic::Arrivals::kConcurrency:
      visit_number(visit, "concurrency", traffic.concurrency);
      return visit_number(visit, "think_time", traffic.think_time);
    case Traffic::Arrivals::kTrace:
      visit("file", traffic.file);
      if (traffic.format != Traffic::Format::kKnownFromContent) visit("format", format_name(traffic.format));
      return visit_number(visit, "speedup", traffic.speedup);
    case Traffic::Arrivals::kRate:
      break;
  }
  visit_number(visit, "rate", traffic.rate);
  visit("process", process_name(traffic.process));
  if (traffic.process == Traffic::Process::kGamma) visit_number(visit, "cv", traffic.cv);
}

// The keys of a map within the section.
template <class Rows, class Owner>
void visit_map(const std::string& name, const Rows& keys, const Owner& owner, const TextVisit& visit) {
  for_each_text(keys, owner, [&](const std::string& key, const std::string& text) { visit(name + "." + key, text); });
}

void visit_lengths(const LengthDistribution& lengths, const std::string& key, const TextVisit& visit) {
  if (lengths.kind == LengthDistribution::Kind::kFixed) visit_number(visit, key, lengths.mean);
  visit_map(key, kLengthKeys, lengths, visit);
}

}  // namespace

const char* process_name(Traffic::Process process) { return kProcesses[static_cast<int>(process)]; }
const char* format_name(Traffic::Format format) { return kTraceFormats[static_cast<int>(format) - 1]; }

Traffic read_traffic(Section section) {
  check_keys(section, kTrafficKeys);
  Traffic traffic;
  traffic.where = section.where();
  read_keys(section, kTrafficKeys, traffic);
  check_arrivals(section, traffic);
  if (section.has("shared_prefix")) check_prefix(section, traffic);
  return traffic;
}

void for_each_key(const Traffic& traffic, const TextVisit& visit) {
  visit_arrivals(traffic, visit);
  visit_number(visit, "requests", traffic.requests);
  if (traffic.arrivals != Traffic::Arrivals::kTrace) {
    visit_lengths(traffic.prompt_tokens, "prompt_tokens", visit);
    visit_lengths(traffic.output_tokens, "output_tokens", visit);
    visit_number(visit, "seed", traffic.seed);
  }
  visit_number(visit, "length_factor", traffic.length_factor);
  if (traffic.shared_prefix.tokens > 0) visit_map("shared_prefix", kPrefixKeys, traffic.shared_prefix, visit);
  if (traffic.sessions) visit_map("sessions", kSessionKeys, *traffic.sessions, visit);
  if (traffic.slo) visit_map("slo", kSloKeys, *traffic.slo, visit);
}

Shapes traffic_shapes() {
  return {{"traffic", shapes_in(kTrafficKeys)},      {"prompt_tokens", shapes_in(kLengthKeys)},
          {"output_tokens", shapes_in(kLengthKeys)}, {"shared_prefix", shapes_in(kPrefixKeys)},
          {"sessions", shapes_in(kSessionKeys)},     {"slo", shapes_in(kSloKeys)}};
}

}  // namespace kvcast::config
