// Conclusions: the findings of a sweep and the answers to a plan's questions.
#pragma once

#include <string>

namespace kvcast::store {

struct Finding {
  std::string title;
  std::string text;    // one line per group that is compared
  std::string detail;  // the same, or one line for all
  // JSON, an entry per group: [{"place", "text", "number", "bars": [{"label", "text", "from", "to"}]}]. The number is
  // the conclusion in its shortest form, "2.1 × full KV"; bars, in a unit of their own, show the values behind it.
  std::string places = "[]";
};

// An answer to a question of a plan.
struct Answer {
  std::string kind;      // "break_even"
  std::string question;  // as a sentence
  std::string text;      // the conclusion
  std::string details;   // lines
  std::string data;      // JSON, as `kvcast plan --json` prints it
  int runs = 0;          // experiments that it needed
};

}  // namespace kvcast::store
