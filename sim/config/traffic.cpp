#include "config/traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "config/find.hpp"
#include "config/framework.hpp"

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

std::string read_path(Section& section, const KeyName& key) {
  std::string path = section.text(key);
  const SourceLocation where = section.where(key.name);
  if (where.from_request) refuse_request_for_file(where);
  return path;
}

Lengths read_length_map(Section section, std::string_view title) {
  Lengths lengths;
  lengths.where = section.where();
  const bool file = section.has("file"), mean = section.has("mean") || section.has("cv");
  const bool range = section.has("low") || section.has("high");
  if (file) {
    lengths.kind = Lengths::Kind::kFile;
    lengths.file =
        read_path(section, {"file",
                            "a CSV with the columns `prompt_tokens` and `output_tokens`: requests draw a row each, the "
                            "same for both lengths if both name the file"});
  }
  if (mean) {
    lengths.kind = Lengths::Kind::kLognormal;
    lengths.mean = section.number({"mean",
                                   "mean of a lognormal distribution, which is rounded to whole tokens, at "
                                   "least 1"},
                                  1, kMaxTokens);
    lengths.cv = section.number({"cv", "its standard deviation, divided by the mean"}, 0, 10);
  }
  if (range) {
    lengths.kind = Lengths::Kind::kUniform;
    lengths.low =
        section.integer({"low", "smallest number of tokens, all up to `high` being equally likely"}, 1, kMaxTokens);
    lengths.high = section.integer({"high", "largest number of tokens"}, 1, kMaxTokens);
  }
  section.finish();
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

Lengths read_lengths(Section& section, const KeyName& key, std::int64_t fallback) {
  const std::optional<Node> node = section.optional_node(key.name);
  if (node && node->kind() == Node::Kind::kMap) return read_length_map({*node, std::string(key.name)}, key.name);
  Lengths lengths;
  lengths.mean = static_cast<double>(section.integer(key, 1, kMaxTokens, fallback));
  lengths.where = section.where(key.name);
  return lengths;
}

SharedPrefix read_prefix(Section section) {
  SharedPrefix prefix;
  prefix.tokens = section.integer({"tokens",
                                   "tokens at the start of each prompt that a group has in common; of a "
                                   "shorter prompt all"},
                                  1, kMaxTokens);
  prefix.groups = section.integer({"groups", "groups, each with a prefix of its own"}, 1, kMostRequests, prefix.groups);
  prefix.prompts = section.integer({"prompts",
                                    "different prompts of a group; those of all groups come in one random order, again "
                                    "and again. 0: what follows the prefix never comes again"},
                                   0, kMostPrompts, prefix.prompts);
  if (prefix.groups * prefix.prompts > kMostPrompts) {
    throw UserError(section.where("prompts"),
                    fmt::format("shared_prefix: {} groups of {} prompts are more than {} different prompts",
                                prefix.groups, prefix.prompts, kMostPrompts));
  }
  section.finish();
  return prefix;
}

Sessions read_sessions(Section section) {
  Sessions sessions;
  sessions.turns = section.integer({"turns", "requests of a session, one after the other"}, 1, 100'000);
  sessions.turn_tokens = section.integer(
      {"turn_tokens", "tokens that each later turn adds to the prompt and the answer before"}, 1, kMaxTokens);
  sessions.think_time = section.quantity({"think_time", "time from the end of a turn to the arrival of the next one"},
                                         Dimension::kSeconds, 0, kLongestThinking, 0.0);
  section.finish();
  return sessions;
}

Slo read_slo(Section section) {
  Slo slo;
  const auto bound = [&](const KeyName& key, std::optional<double>& value) {
    if (section.has(key.name)) value = section.quantity(key, Dimension::kSeconds, 1e-9, kLongestTime);
  };
  bound({"ttft", "longest time from a request's arrival to its first token"}, slo.ttft);
  bound({"tpot", "longest mean time of a request's further tokens"}, slo.tpot);
  bound({"e2e", "longest time from a request's arrival to its last token"}, slo.e2e);
  section.finish();
  if (!slo.ttft && !slo.tpot && !slo.e2e) {
    throw UserError(section.where(), "traffic: slo: give at least one bound", {"ttft", "tpot", "e2e"});
  }
  return slo;
}

constexpr const char* kProcesses[] = {"poisson", "constant", "gamma"};
constexpr const char* kTraceFormats[] = {"azure",      "burstgpt",      "mooncake", "bailian",
                                         "vllm-bench", "llmservingsim", "kvcast"};

void read_rate(Section& section, Traffic& traffic) {
  const std::optional<Node> rate = section.optional_node("rate");
  if (rate && rate->kind() == Node::Kind::kScalar && rate->text() == "all") {
    traffic.arrivals = Traffic::Arrivals::kAll;
  } else if (section.has("rate")) {
    traffic.rate = section.number({"rate",
                                   "requests a second that arrive, whatever the service does; `all`: every request at "
                                   "time 0. Turns of sessions count, so that first turns arrive at rate / turns"},
                                  1e-6, 1e9);
  }
  traffic.process = section.one_of<Traffic::Process>(
      {"process", "of the times between arrivals: `poisson`, `constant`, or `gamma` with `cv`"}, kProcesses,
      Traffic::Process::kPoisson);
  if (traffic.process == Traffic::Process::kConstant) traffic.cv = 0;
  if (section.has("cv")) {
    traffic.cv = section.number(
        {"cv", "standard deviation of the times between arrivals, divided by their mean; 1: poisson"}, 0.01, 10);
  }
}

void read_closed(Section& section, Traffic& traffic) {
  if (section.has("concurrency")) {
    traffic.arrivals = Traffic::Arrivals::kConcurrency;
    traffic.concurrency = section.integer(
        {"concurrency", "instead of `rate`: requests, or sessions, at a time; the next one follows when one has ended"},
        1, 10'000'000);
  }
  traffic.think_time =
      section.quantity({"think_time", "time from the end of one of these to the arrival of the next one"},
                       Dimension::kSeconds, 0, kLongestThinking, 0.0);
}

void read_trace_file(Section& section, Traffic& traffic) {
  if (section.has("file")) {
    traffic.arrivals = Traffic::Arrivals::kTrace;
    traffic.file = read_path(section, {"file",
                                       "instead of both: a trace of requests, by its path from the working "
                                       "directory"});
  }
  if (section.has("format")) {
    traffic.format = static_cast<Traffic::Format>(
        1 + section.one_of<int>({"format", "of the trace; known from its content if not written"}, kTraceFormats));
  }
  traffic.speedup = section.number({"speedup", "arrival times of the trace are divided by this"}, 1e-6, 1e6, 1.0);
}

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
  const Lengths& prompt = traffic.prompt_tokens;
  const bool fixed = prompt.kind == Lengths::Kind::kFixed, uniform = prompt.kind == Lengths::Kind::kUniform;
  const double shortest = fixed     ? prompt.mean
                          : uniform ? static_cast<double>(prompt.low)
                                    : traffic.shared_prefix.tokens;
  if (static_cast<double>(traffic.shared_prefix.tokens) <= shortest) return;
  refuse_key(
      section, "shared_prefix",
      fmt::format("{} tokens, but prompts, which contain it, may have {}", traffic.shared_prefix.tokens, shortest));
}

}  // namespace

const char* process_name(Traffic::Process process) { return kProcesses[static_cast<int>(process)]; }
const char* format_name(Traffic::Format format) { return kTraceFormats[static_cast<int>(format) - 1]; }

Traffic read_traffic(Section section) {
  section.only({"rate", "process", "cv", "concurrency", "think_time", "file", "format", "speedup", "requests",
                "prompt_tokens", "output_tokens", "length_factor", "shared_prefix", "sessions", "seed", "slo"});
  Traffic traffic;
  traffic.where = section.where();
  read_rate(section, traffic);
  read_closed(section, traffic);
  read_trace_file(section, traffic);
  traffic.requests = section.integer({"requests", "requests that arrive, of a trace its first ones if it has more"}, 1,
                                     kMostRequests, traffic.requests);
  traffic.prompt_tokens = read_lengths(
      section,
      {"prompt_tokens", "tokens of a prompt, of a session's first one: a number, {mean, cv}, {low, high} or {file}"},
      8192);
  traffic.output_tokens =
      read_lengths(section, {"output_tokens", "tokens generated for a request, written like those of a prompt"}, 256);
  const KeyName factor("length_factor",
                       "factor on output lengths, since answers grow under policies that evict; `published`: that of "
                       "the policy and its budget, from configs/accuracy/answer_lengths.yaml");
  if (const auto written = section.optional_node("length_factor");
      written && written->kind() == Node::Kind::kScalar && written->text() == "published") {
    traffic.published_factor = true;
  } else {
    traffic.length_factor = section.number(factor, 0.1, 10, 1.0);
  }
  if (section.has("shared_prefix")) {
    traffic.shared_prefix = read_prefix(section.section(
        {"shared_prefix", "tokens at the start of prompts that others start with as well"}, "shared_prefix"));
  }
  if (section.has("sessions")) {
    traffic.sessions = read_sessions(section.section(
        {"sessions", "requests are turns of sessions, whose prompts repeat what was said before"}, "sessions"));
  }
  traffic.seed = static_cast<std::uint64_t>(section.integer(
      {"seed", "seed of the random numbers: a request has the same lengths whatever the rate, policy and scheduler"}, 0,
      std::numeric_limits<std::int64_t>::max(), static_cast<std::int64_t>(traffic.seed)));
  if (section.has("slo")) {
    traffic.slo = read_slo(section.section({"slo", "longest times that a request may take; at least one"}, "slo"));
  }
  section.finish();
  check_arrivals(section, traffic);
  if (section.has("shared_prefix")) check_prefix(section, traffic);
  return traffic;
}

Shapes traffic_shapes() {
  const Node none = Node::map({}, {});
  const std::function<void()> readers[] = {[&] { read_traffic(Section(none, "traffic")); },
                                           [&] { read_length_map(Section(none, "prompt_tokens"), "prompt_tokens"); },
                                           [&] { read_length_map(Section(none, "output_tokens"), "output_tokens"); },
                                           [&] { read_prefix(Section(none, "shared_prefix")); },
                                           [&] { read_sessions(Section(none, "sessions")); },
                                           [&] { read_slo(Section(none, "slo")); },
                                           [&] { read_scheduler(Section(none, "scheduler")); }};
  Shapes all;
  for (const std::function<void()>& reader : readers) all.merge(shapes_of(reader));
  return all;
}

}  // namespace kvcast::config
