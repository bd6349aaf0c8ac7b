// Reads the header event by event (SAX), so that no input, however deep or large, builds more than the format allows,
// and duplicate keys are detected.
#include "trace/safetensors_header.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"

namespace kvcast::trace {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr const char* kMetadataKey = "__metadata__";

class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}
  Header take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not an integer below 2^64");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (tensor().shape.size() == kMaxRank) fail(fmt::format("{}: more than {} dimensions", title(), kMaxRank));
      tensor().shape.push_back(value);
    } else if (place_ == Place::kOffsets) {
      if (offsets_ == 2) fail(title() + ": data_offsets must be two numbers");
      (offsets_ == 0 ? tensor().begin : tensor().end) = value;
      ++offsets_;
    } else {
      return unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = value;
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      tensor().dtype = value;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTop) {
      place_ = Place::kTensor;
      header_.tensors.push_back({});
      header_.tensors.back().name = key_;
      tensor_keys_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const char* needed : {"dtype", "shape", "data_offsets"}) {
        if (tensor_keys_.count(needed) == 0) fail(fmt::format("{}: \"{}\" is missing", title(), needed));
      }
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) fail(title() + ": data_offsets must be two numbers");
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    auto& seen = place_ == Place::kTop ? top_keys_ : place_ == Place::kMetadata ? metadata_keys_ : tensor_keys_;
    if (!seen.insert(name).second) fail(fmt::format("{}: key {} appears twice", title(), quote(name)));
    if (place_ == Place::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      throw UserError({file_}, fmt::format("{}: unknown key {}", title(), quote(name)),
                      {"dtype", "shape", "data_offsets"});
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("the header is not JSON (at its byte {})", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  HeaderTensor& tensor() { return header_.tensors.back(); }
  std::string title() const {
    if (place_ == Place::kMetadata) return kMetadataKey;
    const bool inside = place_ == Place::kTensor || place_ == Place::kShape || place_ == Place::kOffsets;
    return inside ? fmt::format("tensor {}", quote(header_.tensors.back().name)) : "header";
  }
  [[noreturn]] void fail(const std::string& what) const { throw UserError({file_}, what); }
  bool unexpected(const char* found) const {
    const char* expected = "";
    switch (place_) {
      case Place::kStart:
        expected = "an object";
        break;
      case Place::kTop:
        expected = "an object (dtype, shape, data_offsets)";
        break;
      case Place::kMetadata:
        expected = "a string";
        break;
      case Place::kTensor:
        expected = key_ == "dtype" ? "a string" : "an array of integers";
        break;
      default:
        expected = "integers from 0";
        break;
    }
    const std::string at = key_.empty() ? "" : fmt::format(" at key {}", quote(key_));
    fail(fmt::format("{}{}: found {} instead of {}", title(), at, found, expected));
  }

  const std::string& file_;
  Header header_;
  Place place_ = Place::kStart;
  std::string key_;
  int offsets_ = 0;
  std::set<std::string> top_keys_, metadata_keys_, tensor_keys_;
};

}  // namespace

Header parse_header(std::string_view json, const std::string& file) {
  if (json.empty() || json.front() != '{') throw UserError({file}, "the header does not begin with '{'");
  HeaderReader reader(file);
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  KVCAST_CHECK(parsed);  // all other cases have thrown
  return reader.take();
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::size_t length = std::min(text.size(), kLongest);
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (length < text.size() && length > 0 && continues(length)) --length;  // never splits a UTF-8 character
  std::string out = "\"";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (text.size() > length ? "...\"" : "\"");
}

}  // namespace kvcast::trace
