// Sums by bucket of a logarithmic scale.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace kvcast::serving {

// Values by the number of their bucket, in pages: those in use lie together, and far fewer than there are numbers.
template <class T>
class Buckets {
 public:
  static constexpr int kZero = std::numeric_limits<int>::min();  // the bucket of zero, before all others

  T& operator[](int bucket) {
    if (bucket == kZero) return zero_;
    const int page = bucket >> kBits;
    if (pages_.empty()) first_ = page;
    if (page < first_) {
      pages_.insert(pages_.begin(), static_cast<std::size_t>(first_ - page), {});
      first_ = page;
    }
    const auto at = static_cast<std::size_t>(page - first_);
    if (at >= pages_.size()) pages_.resize(at + 1);
    if (pages_[at].empty()) pages_[at].resize(kSize);
    return pages_[at][static_cast<std::size_t>(bucket & (kSize - 1))];
  }
  // Calls visit(bucket, value) in order of the buckets, until it returns true. Some of them were never used.
  template <class Visit>
  void until(const Visit& visit) const {
    if (visit(kZero, zero_)) return;
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      for (std::size_t i = 0; i < pages_[p].size(); ++i) {
        if (visit((first_ + static_cast<int>(p)) * kSize + static_cast<int>(i), pages_[p][i])) return;
      }
    }
  }

 private:
  static constexpr int kBits = 6, kSize = 1 << kBits;
  T zero_{};
  int first_ = 0;  // page
  std::vector<std::vector<T>> pages_;
};

}  // namespace kvcast::serving
