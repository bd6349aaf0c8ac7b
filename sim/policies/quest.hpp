// Quest's page retrieval as a second stage.
#pragma once

#include <memory>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct QuestPages {
  std::int64_t budget = 0;  // tokens; a step with no more tokens than this reads all of them
  std::int64_t pages = 0;   // that a step attends to
  std::int64_t tokens = 0;  // where set: no more of them, the last of the pages in order of bounds being cut
  int page = 1;
  Group group = Group::kSumScores;
  bool covers_all = false;  // the budget holds every token that will ever be there
  // The pages that hold the first `sink` and the last `recent` tokens are always among those.
  std::int64_t sink = 0, recent = 0;
  bool one_bound = false;  // the index is laid out so that only the bound that the query's sign asks for is read
};
// The whole pages of `setting.page` that half of a traffic budget pays for; of a page that is larger than half, its
// first tokens.
void spend_half(QuestPages& setting);
std::unique_ptr<Retrieval> retrieve_quest_pages(const QuestPages& setting);

}  // namespace kvcast::policy
