#include "policy_parts/token_list.hpp"

#include "policy/selection.hpp"

namespace kvcast::policy {

void TokenList::append_all(int t, std::vector<std::int32_t>& out) const {
  if (whole_) return append_range(0, size(t), out);
  out.insert(out.end(), kept_.begin(), kept_.end());
  append_range(prompt_, prompt_ + t + 1, out);
}

}  // namespace kvcast::policy
