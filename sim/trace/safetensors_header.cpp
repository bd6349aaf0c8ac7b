#include "trace/safetensors_header.hpp"

#include <iterator>
#include <unordered_set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "base/strict_json.hpp"

namespace kvcast::trace {
namespace {

constexpr std::size_t kMaxRank = 8;

enum Part : JsonPart { kHeader, kMetadata, kMetadataText, kTensor, kDtype, kShape, kLength, kOffsets, kOffset };

constexpr JsonKey kHeaderKeys[] = {{"__metadata__", kMetadata, false}};
constexpr JsonKey kTensorKeys[] = {{"dtype", kDtype, true}, {"shape", kShape, true}, {"data_offsets", kOffsets, true}};
constexpr JsonPartSpec kGrammar[] = {
    {"the header", JsonType::kObject, kHeaderKeys, kTensor},  // its other keys are names of tensors
    {"\"__metadata__\"", JsonType::kObject, {}, kMetadataText},
    {"a value of \"__metadata__\"", JsonType::kString},
    {"a tensor", JsonType::kObject, kTensorKeys},
    {"\"dtype\"", JsonType::kString},
    {"\"shape\"", JsonType::kList, {}, kLength},
    {"a length in \"shape\"", JsonType::kWholeNumber},
    {"\"data_offsets\"", JsonType::kList, {}, kOffset},
    {"an offset in \"data_offsets\"", JsonType::kWholeNumber},
};
static_assert(std::size(kGrammar) == kOffset + 1);

class HeaderTaker final : public JsonTaker {
 public:
  explicit HeaderTaker(const std::string& file) : file_(file) {}
  Header take() { return std::move(header_); }

  void begin(JsonPart part, TextOffset) override {
    in_metadata_ = in_metadata_ || part == kMetadata;
    if (part != kTensor) return;
    header_.tensors.push_back({});
    tensor().name = key_;
  }
  void end(JsonPart part, TextOffset at) override {
    if (part == kOffsets && offsets_ != 2) fail(at, "data_offsets must be two numbers", {});
    if (part == kOffsets) offsets_ = 0;
    if (part != kTensor && part != kMetadata) return;
    in_metadata_ = false;
    key_.clear();
  }
  bool free_key(JsonPart object, const std::string& name, TextOffset) override {
    key_ = name;
    return (object == kHeader ? tensors_ : metadata_keys_).insert(name).second;
  }
  void string(JsonPart part, const std::string& value, TextOffset) override {
    (part == kDtype ? tensor().dtype : header_.metadata[key_]) = value;
  }
  void number(JsonPart part, const JsonNumber& value, TextOffset at) override {
    if (part == kLength) {
      if (tensor().shape.size() == kMaxRank) fail(at, fmt::format("more than {} dimensions", kMaxRank), {});
      tensor().shape.push_back(*value.whole);
    } else {
      if (offsets_ == 2) fail(at, "data_offsets must be two numbers", {});
      (offsets_ == 0 ? tensor().begin : tensor().end) = *value.whole;
      ++offsets_;
    }
  }
  // The header is one long line: a position is more use than a line and a column.
  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known) override {
    const std::string inside = key_.empty()   ? (in_metadata_ ? "__metadata__: " : "")
                               : in_metadata_ ? fmt::format("__metadata__, key {}: ", quote(key_))
                                              : fmt::format("tensor {}: ", quote(key_));
    throw UserError({file_}, fmt::format("header, byte {}: {}{}", at, inside, what), known);
  }

 private:
  HeaderTensor& tensor() { return header_.tensors.back(); }

  const std::string& file_;
  Header header_;
  bool in_metadata_ = false;
  std::string key_;  // of the tensor or the metadata text that is being read; empty between them
  int offsets_ = 0;
  std::unordered_set<std::string> tensors_, metadata_keys_;
};

}  // namespace

Header parse_header(std::string_view json, const std::string& file) {
  if (json.empty() || json.front() != '{') throw UserError({file}, "the header does not begin with '{'");
  HeaderTaker taker(file);
  read_strict_json(json, kGrammar, taker);
  return taker.take();
}

}  // namespace kvcast::trace
