// Quest's page retrieval as a second stage.
#pragma once

#include <functional>
#include <memory>

#include "policy_parts/stages.hpp"

namespace kvcast::policy {

struct QuestPages {
  std::int64_t budget = 0;  // tokens; a step with at most this many tokens reads all of them
  std::int64_t pages = 0;   // pages that a step attends to
  std::int64_t tokens = 0;  // if set, the largest number of tokens; the last of the pages in order of bounds is cut
  int page = 1;
  Group group = Group::kSumScores;
  // The pages with the first `sink` and the last `recent` tokens are always among those attended to.
  std::int64_t sink = 0, recent = 0;
  SummaryFormat format = SummaryFormat::kCache;
  bool by_tokens = false;  // a traffic budget pays for tokens rather than whole pages
  bool one_bound = false;  // the index layout lets a query read only the bound that its sign selects
};
// Sets the whole pages of `setting.page` that half of a traffic budget pays for, or the first tokens of one page if a
// page is larger than half.
void spend_half(QuestPages& setting);
// at: the setting for a request.
std::unique_ptr<Retrieval> retrieve_quest_pages(const QuestPages& setting,
                                                std::function<QuestPages(const QuestPages&, const Lengths&)> at);

}  // namespace kvcast::policy
