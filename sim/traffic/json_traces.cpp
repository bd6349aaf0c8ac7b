#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "traffic/draws.hpp"
#include "traffic/json_object.hpp"
#include "traffic/lines.hpp"
#include "traffic/trace.hpp"

namespace kvcast::traffic {
namespace {

using Format = config::Traffic::Format;

// One object a line.
class JsonLines : public TraceRows {
 public:
  explicit JsonLines(const std::string& path) : lines_(path) {}
  bool read(TraceRow& row) final {
    if (!lines_.next(line_)) return false;
    row = {};
    row.where = lines_.where();
    read_line(line_, row);
    return true;
  }

 private:
  virtual void read_line(std::string& line, TraceRow& row) = 0;
  Lines lines_;
  std::string line_;
};

// The prompt as blocks that each have an identity; the last one may be shorter.
std::vector<Segment> content_of(const JsonObject& object, std::int64_t prompt, std::int64_t block) {
  std::vector<Segment> content;
  if (!object.has("hash_ids") || prompt == 0) return content;
  const JsonObject::Value& ids = object.list("hash_ids");
  const auto blocks = static_cast<std::int64_t>(ids.numbers.size());
  if (blocks > (prompt + block - 1) / block) {
    throw UserError(ids.where, fmt::format("hash_ids: {} blocks of {} tokens, but the prompt has {} tokens", blocks,
                                           block, prompt));
  }
  content.reserve(ids.numbers.size());
  for (const JsonObject::Number& id : ids.numbers) {
    if (!id.whole) throw UserError(ids.where, fmt::format("hash_ids: expected whole numbers, found {}", id.value));
    const std::int64_t rest = prompt - block * static_cast<std::int64_t>(content.size());
    content.push_back({*id.whole, std::min(block, rest)});
  }
  return content;
}

class Mooncake final : public JsonLines {
 public:
  using JsonLines::JsonLines;

 private:
  void read_line(std::string& line, TraceRow& row) override {
    static constexpr std::string_view kKeys[] = {"timestamp", "input_length", "output_length", "hash_ids"};
    const JsonObject object(line, row.where, kKeys);
    row.seconds = object.number("timestamp") * 1e-3;
    row.prompt_tokens = object.tokens("input_length");
    row.output_tokens = object.tokens("output_length");
    row.content = content_of(object, row.prompt_tokens, 512);
  }
};

class Bailian final : public JsonLines {
 public:
  using JsonLines::JsonLines;

 private:
  void read_line(std::string& line, TraceRow& row) override {
    static constexpr std::string_view kKeys[] = {"timestamp", "input_length",   "output_length", "hash_ids",
                                                 "chat_id",   "parent_chat_id", "turn"};
    const JsonObject object(line, row.where, kKeys);
    row.seconds = object.number("timestamp");
    row.prompt_tokens = object.tokens("input_length");
    row.output_tokens = object.tokens("output_length");
    row.content = content_of(object, row.prompt_tokens, 16);
    if (object.has("turn")) row.turn = static_cast<std::int32_t>(std::max<std::int64_t>(0, object.tokens("turn") - 1));
    if (!object.has("chat_id")) return;
    // A chat is one request; its session is the first one of the chain of parents.
    const std::int64_t chat = identity(object, "chat_id");
    row.session = chat;
    if (object.has("parent_chat_id") && object.number("parent_chat_id") >= 0) {
      const std::int64_t parent = identity(object, "parent_chat_id");
      const std::int64_t* const session = sessions_.find(parent);
      row.session = session == nullptr ? parent : *session;
    }
    sessions_.put(chat, row.session);
  }

  static std::int64_t identity(const JsonObject& object, std::string_view key) {
    return static_cast<std::int64_t>(object.whole(key) & std::numeric_limits<std::int64_t>::max());
  }

  FifoMap<std::int64_t> sessions_;
};

class LlmServingSim final : public JsonLines {
 public:
  using JsonLines::JsonLines;
  std::size_t window() const override { return 64; }

 private:
  void read_line(std::string& line, TraceRow& row) override {
    static constexpr std::string_view kKeys[] = {"input_toks", "output_toks", "queued_ts"};
    const JsonObject object(line, row.where, kKeys);
    row.seconds = object.number("queued_ts");
    row.prompt_tokens = object.tokens("input_toks");
    row.output_tokens = object.tokens("output_toks");
  }
};

class VllmBench final : public TraceRows {
 public:
  explicit VllmBench(const config::Traffic& traffic) {
    static constexpr std::string_view kKeys[] = {"input_lens",   "output_lens", "start_times",
                                                 "request_rate", "burstiness",  "max_concurrency"};
    Lines file(traffic.file);
    const JsonObject object(*file.stream().rdbuf(), {traffic.file, 1, 1}, kKeys);
    prompts_ = tokens_of_list(object, "input_lens");
    outputs_ = tokens_of_list(object, "output_lens");
    where_ = object.list("output_lens").where;
    check_length(object, "output_lens", outputs_.size());
    if (object.has("start_times")) {
      for (const JsonObject::Number& time : object.list("start_times").numbers) times_.push_back(time.value);
      check_length(object, "start_times", times_.size());
    } else {
      draw_times(object, traffic.seed);
      if (object.has("max_concurrency")) concurrency_ = object.tokens("max_concurrency");
    }
    order_.resize(prompts_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return times_[i]; });
  }
  std::int64_t concurrency() const override { return concurrency_; }

  bool read(TraceRow& row) override {
    if (read_ == order_.size()) return false;
    const std::size_t i = order_[read_++];
    row = {};
    row.seconds = times_[i], row.prompt_tokens = prompts_[i], row.output_tokens = outputs_[i], row.where = where_;
    return true;
  }

 private:
  static std::vector<std::int64_t> tokens_of_list(const JsonObject& object, std::string_view key) {
    const JsonObject::Value& list = object.list(key);
    std::vector<std::int64_t> tokens;
    for (const JsonObject::Number& number : list.numbers) tokens.push_back(tokens_in(number, key, list.where));
    return tokens;
  }

  void check_length(const JsonObject& object, std::string_view key, std::size_t length) const {
    if (length == prompts_.size()) return;
    throw UserError(object.value(key).where,
                    fmt::format("{}: {} requests, but input_lens has {}", key, length, prompts_.size()));
  }

  // The benchmark sends requests after gaps of a gamma distribution whose shape is the burstiness; without a finite
  // rate
  // ("inf") it sends all at once.
  void draw_times(const JsonObject& object, std::uint64_t seed) {
    times_.assign(prompts_.size(), 0);
    if (!object.has("request_rate") || !object.value("request_rate").text.empty()) return;
    const double rate = object.number("request_rate");
    const double shape = object.has("burstiness") ? object.number("burstiness") : 1;
    if (!(rate > 0)) throw UserError(object.value("request_rate").where, "request_rate: must be above 0");
    if (!(shape >= 0.01 && shape <= 1e4)) {
      throw UserError(object.value("burstiness").where, "burstiness: must be between 0.01 and 10000");
    }
    const auto process = shape == 1 ? config::Traffic::Process::kPoisson : config::Traffic::Process::kGamma;
    const Stream gaps = stream_of(seed, Purpose::kGap);
    double elapsed = 0;
    for (std::size_t i = 0; i < times_.size(); ++i) {
      elapsed += unit_gap(gaps, static_cast<std::int64_t>(i), process, 1 / std::sqrt(shape));
      times_[i] = elapsed / rate;
    }
  }

  std::vector<std::int64_t> prompts_, outputs_;
  std::vector<double> times_;
  std::vector<std::size_t> order_;  // by time
  std::size_t read_ = 0;
  std::int64_t concurrency_ = 0;
  SourceLocation where_;
};

}  // namespace

std::unique_ptr<TraceRows> open_json_trace(const config::Traffic& traffic, Format format) {
  if (format == Format::kMooncake) return std::make_unique<Mooncake>(traffic.file);
  if (format == Format::kBailian) return std::make_unique<Bailian>(traffic.file);
  if (format == Format::kLlmServingSim) return std::make_unique<LlmServingSim>(traffic.file);
  return std::make_unique<VllmBench>(traffic);
}

}  // namespace kvcast::traffic
