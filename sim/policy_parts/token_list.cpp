#include "policy_parts/token_list.hpp"

#include <algorithm>
#include <numeric>

namespace kvcast::policy {

void TokenList::append_all(int t, std::vector<std::int32_t>& out) const {
  const std::size_t before = out.size();
  const std::int64_t n = prompt_tokens_kept();
  out.resize(before + static_cast<std::size_t>(size(t)));
  const auto begin = out.begin() + static_cast<std::ptrdiff_t>(before);
  if (whole_) {
    std::iota(begin, out.end(), 0);
  } else {
    std::copy(kept_.begin(), kept_.end(), begin);
    std::iota(begin + n, out.end(), static_cast<std::int32_t>(prompt_));
  }
}

}  // namespace kvcast::policy
