// Every number is read whole or rejected; ranges keep all derived sizes within 64 bits.
#include "trace/metadata.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "trace/targets.hpp"

namespace kvcast::trace {
namespace {

// Positions are 32-bit numbers throughout kvcast, prompt and decode steps together.
constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max() / 2;
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxHeads = 65'536;
constexpr std::int64_t kMaxHeadDim = 65'536;

class Reader {
 public:
  Reader(const std::map<std::string, std::string>& metadata, const std::string& file)
      : metadata_(metadata), file_(file) {}

  const std::string& text(const std::string& key) const {
    const auto it = metadata_.find(key);
    if (it == metadata_.end()) refuse(key, "is missing");
    return it->second;
  }

  std::int64_t integer(const std::string& key, std::int64_t low, std::int64_t high) const {
    return parse_integer(key, "is", text(key), low, high);
  }

  std::int64_t parse_integer(const std::string& key, const char* verb, std::string_view text, std::int64_t low,
                             std::int64_t high) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      refuse(key, fmt::format("{} {}, not an integer", verb, quote(text)));
    }
    if (error != std::errc() || value < low || value > high) {
      refuse(key, fmt::format("{} {}, outside of {} .. {}", verb, text.substr(0, 40), low, high));
    }
    return value;
  }

  double positive(const std::string& key) const {
    const std::string& written = text(key);
    double value = 0;
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
    if (error == std::errc::invalid_argument || end != written.data() + written.size()) {
      refuse(key, fmt::format("is {}, not a number", quote(written)));
    }
    if (error != std::errc() || !std::isfinite(value) || value <= 0) {
      refuse(key, fmt::format("is {}, not a finite number above 0", quote(written)));
    }
    return value;
  }

  std::vector<int> layers(int n_layers) const {
    std::vector<int> ids;
    std::string_view rest = text("layers");
    while (true) {
      const std::size_t comma = rest.find(',');
      std::string_view item = rest.substr(0, comma);
      while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
      while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
      const auto id = static_cast<int>(parse_integer("layers", "name", item, 0, n_layers - 1));
      if (!ids.empty() && id <= ids.back())
        refuse("layers", fmt::format("are not ascending: {} after {}", id, ids.back()));
      ids.push_back(id);
      if (comma == std::string_view::npos) return ids;
      rest.remove_prefix(comma + 1);
    }
  }

  void json(const std::string& key) const {
    const auto it = metadata_.find(key);
    if (it != metadata_.end() && !nlohmann::json::accept(it->second)) refuse(key, "is not JSON");
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& what,
                           const std::vector<std::string>& known = {}) const {
    throw UserError({file_}, fmt::format("__metadata__: {} {}", key, what), known);
  }

 private:
  const std::map<std::string, std::string>& metadata_;
  const std::string& file_;
};

const std::set<std::string>& required_keys() {
  static const std::set<std::string> keys = {"format",     "model",         "source",      "layers",
                                             "n_layers",   "n_q_heads",     "n_kv_heads",  "head_dim",
                                             "rope_theta", "prompt_tokens", "decode_steps"};
  return keys;
}

std::string shortest(double value) { return fmt::format("{}", value); }

}  // namespace

TraceInfo read_metadata(const std::map<std::string, std::string>& metadata, const std::string& file) {
  const Reader reader(metadata, file);
  if (reader.text("format") != kTraceFormat) {
    reader.refuse("format", fmt::format("is {}, not a format that is known", quote(reader.text("format"))),
                  {kTraceFormat});
  }
  TraceInfo info;
  info.file = file;
  info.model = reader.text("model");
  info.source = reader.text("source");
  if (info.source != "captured" && info.source != "synthetic") {
    reader.refuse("source", fmt::format("is {}", quote(info.source)), {"captured", "synthetic"});
  }
  info.n_layers = static_cast<int>(reader.integer("n_layers", 1, kMaxLayers));
  info.layers = reader.layers(info.n_layers);
  info.n_q_heads = static_cast<int>(reader.integer("n_q_heads", 1, kMaxHeads));
  info.n_kv_heads = static_cast<int>(reader.integer("n_kv_heads", 1, kMaxHeads));
  if (info.n_q_heads % info.n_kv_heads != 0) {
    reader.refuse("n_q_heads",
                  fmt::format("is {}, not a multiple of n_kv_heads = {}", info.n_q_heads, info.n_kv_heads));
  }
  info.head_dim = static_cast<int>(reader.integer("head_dim", 1, kMaxHeadDim));
  info.rope_theta = reader.positive("rope_theta");
  info.prompt_tokens = reader.integer("prompt_tokens", 1, kMaxTokens);
  info.decode_steps = static_cast<int>(reader.integer("decode_steps", 1, kMaxTokens));
  for (const char* key : {"targets", "turns"}) reader.json(key);
  for (const auto& [key, value] : metadata) {
    if (required_keys().count(key) == 0) info.optional[key] = value;
  }
  try {
    read_targets(info);
    turns_of(info);
  } catch (const UserError& error) {
    throw UserError({file, 0, 0}, fmt::format("__metadata__: {}", error.what()));
  }
  return info;
}

std::vector<std::int64_t> turns_of(const TraceInfo& info) {
  std::vector<std::int64_t> turns;
  const auto written = info.optional.find("turns");
  if (written == info.optional.end()) return turns;
  const nlohmann::json list = nlohmann::json::parse(written->second, nullptr, false);
  bool good = list.is_array();
  for (std::size_t i = 0; good && i < list.size(); ++i) {
    good = list[i].is_number_unsigned() &&
           list[i].get<std::uint64_t>() < static_cast<std::uint64_t>(info.positions()) &&
           (turns.empty() || list[i].get<std::int64_t>() > turns.back());
    if (good) turns.push_back(list[i].get<std::int64_t>());
  }
  if (!good) throw UserError(fmt::format("turns: expected ascending positions in 0 .. {}", info.positions() - 1));
  return turns;
}

std::map<std::string, std::string> write_metadata(const TraceInfo& info) {
  std::map<std::string, std::string> metadata = info.optional;
  metadata["format"] = kTraceFormat;
  metadata["model"] = info.model;
  metadata["source"] = info.source;
  metadata["layers"] = fmt::format("{}", fmt::join(info.layers, ","));
  metadata["n_layers"] = std::to_string(info.n_layers);
  metadata["n_q_heads"] = std::to_string(info.n_q_heads);
  metadata["n_kv_heads"] = std::to_string(info.n_kv_heads);
  metadata["head_dim"] = std::to_string(info.head_dim);
  metadata["rope_theta"] = shortest(info.rope_theta);
  metadata["prompt_tokens"] = std::to_string(info.prompt_tokens);
  metadata["decode_steps"] = std::to_string(info.decode_steps);
  return metadata;
}

}  // namespace kvcast::trace
