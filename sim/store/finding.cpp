#include "store/finding.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace kvcast::store {
namespace {

// In the order of the enumeration.
constexpr std::string_view kAnswerKinds[] = {"break_even", "largest", "why",     "sensitivities",
                                             "choose",     "map",     "changes", "compared"};

}  // namespace

std::string_view name_of(AnswerKind kind) { return kAnswerKinds[static_cast<std::size_t>(kind)]; }

std::optional<AnswerKind> find_answer_kind(std::string_view name) {
  const auto* const at = std::ranges::find(kAnswerKinds, name);
  if (at == std::end(kAnswerKinds)) return {};
  return static_cast<AnswerKind>(at - kAnswerKinds);
}

}  // namespace kvcast::store
