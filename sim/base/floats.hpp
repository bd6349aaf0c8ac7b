// Large arrays of floats that are written before they are read, and the floats of a vector register.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace kvcast {

// An array that is not zeroed, so that the thread which fills it touches its pages first, backed by large pages if the
// system has them. With large pages, predicting scores at 16K and 32K tokens spends a fifth less time in the system (2
// % of the total).
using Floats = std::unique_ptr<float[]>;
// Throws NoMemory, which says what it was wanted for.
Floats uninitialised_floats(std::size_t n, const char* wanted_for = "the layers of a trace");

// An array as above that is kept from one use to the next: the system clears its pages once.
class ReusedFloats {
 public:
  ReusedFloats() = default;
  ReusedFloats(ReusedFloats&& other) noexcept
      : floats_(std::move(other.floats_)), size_(std::exchange(other.size_, 0)) {}
  ReusedFloats& operator=(ReusedFloats&& other) noexcept {
    floats_ = std::move(other.floats_), size_ = std::exchange(other.size_, 0);
    return *this;
  }
  // Returns room for n floats of any content; it is asked for anew only if there is not enough.
  float* reserve(std::size_t n) {
    if (n > size_) {
      floats_.reset(), size_ = 0;  // before the new one, so that both never count
      floats_ = uninitialised_floats(n), size_ = n;
    }
    return floats_.get();
  }
  float* get() const { return floats_.get(); }
  void reset() { floats_.reset(), size_ = 0; }

 private:
  Floats floats_;
  std::size_t size_ = 0;
};

// Floats that a loop processes at once: its independent partial results. SimdFloats may be at any address of an array.
inline constexpr std::size_t kSimdWidth = 8;
using SimdFloats = float __attribute__((vector_size(kSimdWidth * sizeof(float)), aligned(sizeof(float)), may_alias));

}  // namespace kvcast
