// kvcast run CONFIG: one experiment, as text, JSON and timeline.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cctype>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "api/session.hpp"
#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/progress.hpp"
#include "app/run_text.hpp"
#include "app/scores.hpp"
#include "app/service_text.hpp"
#include "app/settings.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/quote.hpp"
#include "base/whole_file.hpp"
#include "config/card.hpp"
#include "engine/trace_events.hpp"
#include "serving/spans.hpp"
#include "study/prepare.hpp"
#include "study/study.hpp"
#include "trace/inspect.hpp"

namespace kvcast::app {
namespace {

using serving::RequestSpan;

constexpr std::array<const char*, 2> kGroups = {"slots", "queue"};
constexpr std::array<const char*, 2> kRows = {"slot", "place"};

std::size_t group_of(const RequestSpan& span) {
  return span.kind == RequestSpan::Kind::kQueued || span.kind == RequestSpan::Kind::kPreempted ? 1 : 0;
}

constexpr std::size_t kMostSpans = 20'000;  // viewers become slow with many more

// A row a slot, with the passes of the requests that had it, and below them a row for each place in the queue.
void write_request_timeline(std::ostream& out, const std::vector<RequestSpan>& spans) {
  engine::TraceEvents events(out);
  std::array<std::set<std::int64_t>, 2> used;
  for (const RequestSpan& span : spans) used[group_of(span)].insert(span.row);
  // Some viewers tell rows by their numbers alone, whatever group they are in.
  const std::array<std::int64_t, 2> first = {1, 1 + (used[0].empty() ? 0 : *used[0].rbegin() + 1)};
  const auto group = [](std::size_t g) { return static_cast<int>(g) + 1; };
  const auto row = [&](std::size_t g, std::int64_t number) { return static_cast<int>(first[g] + number); };
  for (std::size_t g = 0; g < used.size(); ++g) {
    if (!used[g].empty()) events.process(group(g), kGroups[g]);
    for (const std::int64_t number : used[g])
      events.row(group(g), row(g, number), fmt::format("{} {}", kRows[g], number));
  }
  for (const RequestSpan& span : spans) {
    const char* const name = serving::span_name(span.kind);
    std::string numbers = fmt::format(R"("request":{})", span.request);
    if (span.tokens > 0) numbers += fmt::format(R"(,"tokens":{})", span.tokens);
    const std::size_t g = group_of(span);
    events.slice(group(g), row(g, span.row), fmt::format("{} {}", name, span.request), name, span.from, span.to,
                 numbers);
  }
  events.close();
}

// " (opens in Perfetto)", and if there are more spans than were written, how many.
std::string timeline_note(const serving::SpanRecorder& recorder) {
  const auto all = static_cast<std::size_t>(recorder.all());
  if (all <= kMostSpans) return " (opens in Perfetto)";
  return fmt::format(" (the first {} of {} spans; opens in Perfetto)", kMostSpans, all);
}

struct RunOptions {
  std::string config, timeline, requests;
  std::vector<std::string> settings;
  bool as_json = false;
};

// The files that a configuration may name: all of its texts. A name of configs is no file in the working directory, or
// it is the user's own.
void add_texts(const config::Node& node, std::vector<std::string>& texts) {
  if (node.kind() == config::Node::Kind::kScalar) texts.push_back(node.text());
  if (node.kind() == config::Node::Kind::kList) {
    for (const config::Node& item : node.items()) add_texts(item, texts);
  }
  if (node.kind() != config::Node::Kind::kMap) return;
  for (const auto& [key, value] : node.entries()) add_texts(value, texts);
}

// Says where a trace file is of another model than the run, whose shape it has.
void print_other_models(const config::Run& run) {
  for (const config::TraceChoice& choice : run.traces) {
    if (choice.file.empty()) continue;
    const auto trace = study::open_trace_of(choice);
    const trace::TraceInfo& info = trace->info();
    const std::optional<config::Model> named = trace::named_model(info);
    std::vector<std::string> differences;
    if ((named ? named->name : info.model) != run.model.name) {
      differences.push_back(fmt::format("of {}, not {}", escape_controls(info.model), run.model.name));
    }
    if (info.rope_theta != run.model.rope.theta) {
      differences.push_back(fmt::format("with RoPE theta {}, not {}", info.rope_theta, run.model.rope.theta));
    }
    if (differences.empty()) continue;
    fmt::print(stderr, "note: {} is a trace {}\n", choice.file, fmt::join(differences, ", and "));
  }
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// Opens the file of requests, which is written as they end.
void log_requests(const RunOptions& options, const std::vector<std::string>& inputs, study::Point& point,
                  std::optional<WholeFile>& file) {
  refuse_overwritten(options.requests, "--requests", inputs);
  if (point.config.find("traffic") == nullptr) {
    throw UserError("--requests: the configuration has no `traffic:`, and so no requests");
  }
  std::ostream& rows = file.emplace(options.requests).stream();
  write_requests_head(rows);
  point.ask.requests = [&rows](const serving::Departure& outcome) { write_request(rows, outcome); };
}

int run(const RunOptions& options) {
  study::Point point{load_with_settings(options.config, options.settings), {}, {}};
  std::vector<std::string> inputs = {options.config};
  add_texts(point.config, inputs);
  refuse_overwritten(options.timeline, "--timeline", inputs);
  refuse_same(options.timeline, "--timeline", options.requests, "--requests");
  std::optional<WholeFile> timeline;
  if (!options.timeline.empty()) timeline.emplace(options.timeline);
  const bool serves = point.config.find("traffic") != nullptr;
  serving::SpanRecorder spans(kMostSpans);
  if (timeline && serves) point.ask.observer = &spans;
  if (timeline && !serves) point.ask.chrome_trace = &timeline->stream();
  std::optional<WholeFile> requests;
  if (!options.requests.empty()) log_requests(options, inputs, point, requests);
  api::SessionOptions session_options;
  session_options.study.threads = hardware_threads();
  ask_for_scores(session_options.study, study::Scores::kAtHand);
  session_options.replay_folder = replay_folder(session_options.study);
  std::optional<LongWait> wait;
  const auto before = [&wait](const study::Study& plan) {
    const study::Prepared& prepared = plan.tasks().front().prepared;
    print_other_models(prepared.run);
    for (const std::string& note : config::card_notes(*prepared.run.source.find("model"))) {
      fmt::print(stderr, "note: {}\n", note);
    }
    const result::Subject asked = study::subject_of(prepared);
    wait.emplace(fmt::format("{} on {}, {}", asked.policy, asked.hardware, asked.trace));
  };
  const api::SimulatedTask outcome = api::Session(std::move(session_options)).run(point, {}, before);
  wait.reset();
  const result::Result& result = outcome.result;
  if (timeline && result.experiment.oom) {
    fmt::print(stderr, "{} is not written: an experiment that does not fit has no decode step\n", options.timeline);
  } else if (timeline) {
    if (serves) write_request_timeline(timeline->stream(), spans.spans());
    timeline->commit();
  }
  if (requests) requests->commit();
  if (options.as_json) {
    fmt::print("{}\n", to_json(outcome).dump(1));
    return 0;
  }
  print_result(outcome.task, result);
  if (result.experiment.oom) fmt::print("\n{}.\n", sentence(plan::admission_text(outcome.nearest)));
  if (!options.timeline.empty() && !result.experiment.oom) {
    fmt::print("Timeline: {}{}\n", options.timeline, timeline_note(spans));
  }
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("run", "run one experiment: time, memory and accuracy proxies of a policy");
  auto options = std::make_shared<RunOptions>();
  command
      ->add_option("CONFIG", options->config, "YAML: model, hardware, policy, workload, trace; - reads standard input")
      ->required();
  add_settings(*command, options->settings, "change a key: policy.budget=96, policy=quest, workload.batch=8");
  command
      ->add_option("--timeline", options->timeline,
                   "write a decode window, or the requests of `traffic:`, as a Chrome trace (opens in Perfetto)")
      ->check(has_text());
  command
      ->add_option("--requests", options->requests,
                   "write a row for each request of `traffic:`: its times, preemptions and hits")
      ->check(has_text());
  command->add_flag_callback(
      "--without-evidence", [options] { options->settings.push_back("score.evidence=false"); },
      "predict the benchmark score by simulation alone, without published rows");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
