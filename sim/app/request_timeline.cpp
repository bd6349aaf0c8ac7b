#include "app/request_timeline.hpp"

#include <fmt/format.h>

#include <array>
#include <set>

#include "engine/trace_events.hpp"

namespace kvcast::app {
namespace {

using serving::Span;

constexpr std::array<const char*, 2> kGroups = {"slots", "queue"};
constexpr std::array<const char*, 2> kRows = {"slot", "place"};

std::size_t group_of(const Span& span) {
  return span.kind == Span::Kind::kQueued || span.kind == Span::Kind::kPreempted ? 1 : 0;
}

}  // namespace

void write_request_timeline(std::ostream& out, const std::vector<Span>& spans) {
  engine::TraceEvents events(out);
  std::array<std::set<std::int64_t>, 2> used;
  for (const Span& span : spans) used[group_of(span)].insert(span.row);
  // Some viewers tell rows by their numbers alone, whatever group they are in.
  const std::array<std::int64_t, 2> first = {1, 1 + (used[0].empty() ? 0 : *used[0].rbegin() + 1)};
  const auto group = [](std::size_t g) { return static_cast<int>(g) + 1; };
  const auto row = [&](std::size_t g, std::int64_t number) { return static_cast<int>(first[g] + number); };
  for (std::size_t g = 0; g < used.size(); ++g) {
    if (!used[g].empty()) events.process(group(g), kGroups[g]);
    for (const std::int64_t number : used[g])
      events.row(group(g), row(g, number), fmt::format("{} {}", kRows[g], number));
  }
  for (const Span& span : spans) {
    const char* const name = serving::span_name(span.kind);
    std::string numbers = fmt::format(R"("request":{})", span.request);
    if (span.tokens > 0) numbers += fmt::format(R"(,"tokens":{})", span.tokens);
    const std::size_t g = group_of(span);
    events.slice(group(g), row(g, span.row), fmt::format("{} {}", name, span.request), name, span.from, span.to,
                 numbers);
  }
  events.close();
}

std::string timeline_note(const serving::SpanRecorder& recorder) {
  const auto all = static_cast<std::size_t>(recorder.all());
  if (all <= kMostSpans) return " (opens in Perfetto)";
  return fmt::format(" (the first {} of {} spans; opens in Perfetto)", kMostSpans, all);
}

}  // namespace kvcast::app
