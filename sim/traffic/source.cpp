#include "traffic/source.hpp"

#include <algorithm>
#include <fstream>

#include "base/whole_file.hpp"
#include "traffic/generated.hpp"
#include "traffic/trace_source.hpp"

namespace kvcast::traffic {
namespace {

using config::Traffic;
using Format = Traffic::Format;

// Knows the format of a trace by names at its start: columns of a table, or keys.
Format format_of(const std::string& path) {
  std::string start(64u << 10, '\0');
  std::ifstream in = open_trace(path);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  const auto has = [&](std::string_view text) { return start.find(text) != std::string::npos; };
  const std::size_t first = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (first == std::string::npos) throw UserError({path, 0, 0}, "the trace has no requests");
  if (start[first] == '{') {
    if (has("\"input_toks\"")) return Format::kLlmServingSim;
    if (has("\"input_length\"")) return has("\"chat_id\"") ? Format::kBailian : Format::kMooncake;
    if (has("\"input_lens\"") || has("\"request_throughput\"") || has("\"num_prompts\"")) return Format::kVllmBench;
  } else {
    start.resize(std::min(start.find('\n', first), start.size()));
    if (has("ContextTokens")) return Format::kAzure;
    if (has("Request tokens")) return Format::kBurstGpt;
    if (has("arrival_s")) return Format::kKvcast;
  }
  throw UserError({path, 1, 1}, "the trace has no format that its start tells; set `format`",
                  {"azure", "burstgpt", "mooncake", "bailian", "vllm-bench", "llmservingsim", "kvcast"});
}

}  // namespace

std::unique_ptr<TraceRows> open_trace(const Traffic& traffic) {
  const Format format = traffic.format == Format::kKnownFromContent ? format_of(traffic.file) : traffic.format;
  const bool table = format == Format::kAzure || format == Format::kBurstGpt || format == Format::kKvcast;
  return table ? open_csv_trace(traffic.file, format) : open_json_trace(traffic, format);
}

std::unique_ptr<RequestSource> make_source(const Traffic& traffic) {
  if (traffic.arrivals == Traffic::Arrivals::kTrace) return std::make_unique<TraceSource>(traffic);
  return std::make_unique<Generated>(traffic);
}

}  // namespace kvcast::traffic
