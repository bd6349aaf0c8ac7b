// Conclusions: the findings of a sweep and the answers to a plan's questions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvcast::store {

struct Finding {
  std::string title;
  std::string text;    // one line per group that is compared
  std::string detail;  // the same, or one line for all
  // JSON, an entry per group: [{"place", "text", "number", "bars": [{"label", "text", "from", "to"}]}]. The number is
  // the conclusion in its shortest form, "2.1 × full KV"; bars, in a unit of their own, show the values behind it.
  std::string places = "[]";
};

// Kinds of answers: one for each question of a plan, and two that compare stores.
enum class AnswerKind { kBreakEven, kLargest, kWhy, kSensitivities, kChoose, kMap, kChanges, kCompared };
// "break_even": as a plan writes the question.
std::string_view name_of(AnswerKind kind);
std::optional<AnswerKind> find_answer_kind(std::string_view name);

// An answer to a question of a plan.
struct Answer {
  AnswerKind kind = AnswerKind::kBreakEven;
  std::string question;  // as a sentence
  std::string text;      // the conclusion
  std::string details;   // lines
  std::string data;      // JSON, as `kvcast plan --json` prints it
  int runs = 0;          // experiments that it needed
};

}  // namespace kvcast::store
