// Thousands of broken files: each is either a valid trace or rejected with a UserError, and nothing else. The address
// and undefined-behaviour sanitizers would report reads out of bounds and overflows here.
#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "base/error.hpp"
#include "support.hpp"
#include "trace/inspect.hpp"
#include "trace/trace_file.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

struct Parts {
  std::string header, data;
};

Parts sound_file() {
  const TemporaryFolder folder;
  TraceInfo info = small_info();
  info.hidden = 3;
  write_trace(folder / "t", RandomTrace(info), Dtype::kF16, 1);
  const std::string bytes = read_bytes(folder / "t");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return {bytes.substr(8, length), bytes.substr(8 + length)};
}

// Draws one after the other from a stream.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(stream_.below(next_++, n)); }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> all = {"0",
                                               "1",
                                               "-1",
                                               "7",
                                               "1e3",
                                               "1.5",
                                               "4294967296",
                                               "9223372036854775807",
                                               "18446744073709551615",
                                               "99999999999999999999",
                                               "null",
                                               "true",
                                               "[]",
                                               "{}",
                                               "\"\"",
                                               "\"F16\"",
                                               "\"BF16\"",
                                               "\"F32\"",
                                               "\"I64\"",
                                               "\"I32\"",
                                               "\"F64\"",
                                               "\"F4\"",
                                               "\"U8\"",
                                               "[",
                                               "]",
                                               "{",
                                               "}",
                                               ",",
                                               ":",
                                               "\"",
                                               "\\",
                                               "\\u0000",
                                               "\"__metadata__\":{},",
                                               "\"shape\":[1],",
                                               "\"layers.0.keys\"",
                                               "\"query_positions\"",
                                               std::string(1, '\0'),
                                               "\xff",
                                               "[[[[[[[["};
  return all;
}

// Replaces a run of digits with another number.
void change_number(std::string& text, Dice& dice) {
  const std::size_t from = dice.below(text.size());
  const std::size_t first = text.find_first_of("0123456789", from);
  if (first == std::string::npos) return;
  const std::size_t last = std::min(text.find_first_not_of("0123456789", first), text.size());
  const std::vector<std::string> numbers = {"0",  "1",  "2",      "3",          "8",
                                            "22", "-5", "100000", "4294967295", "9223372036854775808"};
  text.replace(first, last - first, dice.pick(numbers));
}

void change_header(std::string& header, Dice& dice) {
  const std::size_t at = dice.below(header.size());
  switch (dice.below(6)) {
    case 0:
      header[at] = static_cast<char>(dice.below(256));
      break;
    case 1:
      header.erase(at, 1 + dice.below(20));
      break;
    case 2:
      header.insert(at, dice.pick(pieces()));
      break;
    case 3:
      header.insert(at, header.substr(dice.below(header.size()), dice.below(200)));
      break;
    case 4:
      header.replace(at, std::min<std::size_t>(header.size() - at, 1 + dice.below(8)), dice.pick(pieces()));
      break;
    default:
      change_number(header, dice);
      break;
  }
}

std::string mutant(const Parts& sound, Dice& dice) {
  Parts parts = sound;
  const std::size_t kind = dice.below(10);
  const std::size_t changes = 1 + dice.below(3);
  if (kind < 7) {
    for (std::size_t i = 0; i < changes && !parts.header.empty(); ++i) change_header(parts.header, dice);
  } else if (kind == 7) {
    for (std::size_t i = 0; i < changes; ++i)
      parts.data[dice.below(parts.data.size())] = static_cast<char>(dice.below(256));
  }
  std::string bytes = safetensors_bytes(parts.header, parts.data);
  if (kind == 8) bytes.resize(dice.below(bytes.size()));
  if (kind == 9) bytes[dice.below(8)] = static_cast<char>(dice.below(256));  // the header's length is wrong
  return bytes;
}

// Everything that kvcast does with an opened trace.
void use(const Trace& trace) {
  for (std::size_t i = 0; i < trace.info().layers.size(); ++i) {
    const auto layer = trace.load(i, 1);
    layer->decode_scores(trace.info().n_q_heads - 1);
    if (trace.info().longest_window() > 0) layer->window_queries(0, static_cast<int>(trace.info().longest_window()));
  }
}

}  // namespace

TEST_CASE("malformed bytes are rejected or harmless") {
  const Parts sound = sound_file();
  use(*open_trace(SafetensorsFile::from_bytes(safetensors_bytes(sound.header, sound.data), "whole")));
  Dice dice(2024);
  int accepted = 0, refused = 0;
  std::set<std::string> reasons;
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = mutant(sound, dice);
    try {
      use(*open_trace(SafetensorsFile::from_bytes(bytes, "broken")));
      ++accepted;
    } catch (const UserError& e) {
      ++refused;
      const std::string what = e.what();
      REQUIRE(what.rfind("broken: ", 0) == 0);  // names the file
      reasons.insert(what.substr(0, 40));
    }
  }
  CHECK(accepted > 500);  // a changed number of the data, a space in the header
  CHECK(refused > 10000);
  CHECK(reasons.size() > 100);  // the mutants trigger many different checks
}

TEST_CASE("malformed files on disk behave like malformed bytes") {
  const Parts sound = sound_file();
  const TemporaryFolder folder;
  Dice dice(7);
  int differing = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = mutant(sound, dice);
    if (bytes.empty()) continue;
    const auto outcome = [&](auto open) -> std::string {
      try {
        use(*open());
        return "accepted";
      } catch (const UserError& e) {
        return e.what();
      }
    };
    const std::string path = folder / "t";
    write_bytes(path, bytes);
    differing += outcome([&] { return open_trace(path); }) !=
                 outcome([&] { return open_trace(SafetensorsFile::from_bytes(bytes, path)); });
  }
  CHECK(differing == 0);
}

TEST_CASE("every truncation is rejected") {
  const Parts sound = sound_file();
  const std::string bytes = safetensors_bytes(sound.header, sound.data);
  int accepted = 0;
  for (std::size_t n = 0; n < bytes.size(); n += n < 3000 ? 1 : 97) {
    try {
      open_trace(SafetensorsFile::from_bytes(bytes.substr(0, n), "short"));
      ++accepted;
    } catch (const UserError&) {
    }
  }
  CHECK(accepted == 0);
}

}  // namespace kvcast::tests
