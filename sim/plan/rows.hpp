// The numbers and texts of every row of a sweep that findings compare, about two hundred bytes a row, so that the
// results need not stay in memory. The few results that a finding describes are loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "result/result.hpp"

namespace kvcast::plan {

// Texts that many rows share, by number.
class Texts {
 public:
  Texts() = default;
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  int number(const std::string& text);
  const std::string& operator[](int number) const { return texts_[static_cast<std::size_t>(number)]; }

 private:
  std::deque<std::string> texts_;  // never moves a text
  std::unordered_map<std::string_view, int> numbers_;
};

// One result. Its texts are numbers in the table's Texts.
struct ResultRow {
  std::size_t index = 0;  // of the result
  int model = 0, hardware = 0, trace = 0, policy = 0, benchmark = 0;
  int setting = 0;   // describe_setting()
  int replica = -1;  // equal for results that differ only in their swept seeds; -1: no seed is swept
  int refused = 0;   // why it has no score
  std::int64_t prompt_tokens = 0, decode_tokens = 0, batch = 0;
  double tokens_per_s = 0, requests_per_s = 0;  // 0 without times
  // Share of full KV's score and the low end of its interval; NaN: none.
  double score = std::numeric_limits<double>::quiet_NaN(), least_score = score;
  bool compared = true;  // neither refused nor an index build
  bool has_times = false, uncompressed = false, oracle = false, borderline = false;
  bool searched = false;  // a batch that was searched, not a row of the sweep

  bool has_score() const { return score == score; }
};
using ResultRows = std::vector<ResultRow>;

// Row of a result whose number is `index`.
ResultRow row_of(const result::Result& result, std::size_t index, Texts& texts);

// Returns a result by its index.
using LoadResult = std::function<std::shared_ptr<const result::Result>(std::size_t index)>;

}  // namespace kvcast::plan
