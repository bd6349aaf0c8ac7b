// Conclusions: the findings of a sweep and the answers to a plan's questions.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kvcast::store {

struct Finding {
  std::string title;
  std::string text;    // one line per group that is compared
  std::string detail;  // the same, or one line for all
  // JSON, an entry per group: [{"place", "text", "number", "bars": [{"label", "text", "from", "to"}]}]. The number is
  // the conclusion in its shortest form, "2.1 × full KV"; bars, in a unit of their own, show the values behind it. The
  // recommended setting and full KV, each at its best batch: "best" and "full", {"batch", "rps", "hbm", ...}.
  std::string places = "[]";
};

// An answer to a question of a plan, or a comparison of stores.
struct Answer {
  std::string kind = {};                  // "break_even": as a plan writes the question
  std::string question = {};              // as a sentence
  std::string text = {};                  // the conclusion, one sentence
  std::vector<std::string> details = {};  // one line each: grounds, intervals, what would change the conclusion
  nlohmann::json data = {};               // output of `plan --json` except for the other members
  int runs = 0;                           // experiments that it needed

  // Adds a line of details.
  template <typename... T>
  void say(fmt::format_string<T...> line, T&&... values) {
    details.push_back(fmt::format(line, std::forward<T>(values)...));
  }
};

}  // namespace kvcast::store
