// Memory that a request holds, in blocks of the engine's pool.
#pragma once

#include <cstdint>
#include <memory>

namespace kvcast::serving {

// The memory that a policy needs for a request. A block is as many bytes as `block` tokens of the uncompressed cache.
class Footprint {
 public:
  virtual ~Footprint() = default;
  // Blocks while `tokens` of a sequence have been read that is not complete after them, or is in this pass: what its
  // reading needs. Does not decrease with tokens.
  virtual std::int64_t reading(std::int64_t tokens) const = 0;
  // Blocks once `known` tokens have been read and `tokens` ≥ known are cached. Does not decrease with tokens.
  virtual std::int64_t decoding(std::int64_t known, std::int64_t tokens) const = 0;
  // The same of pinned host memory, in bytes.
  virtual double host_bytes(std::int64_t /*tokens*/) const { return 0; }
  // Returns whether blocks hold the keys and values of `block` tokens of the sequence each, in order, so that they can
  // be found again by their content.
  virtual bool keeps_all() const { return false; }
  // Returns an equal one for use by another thread; null if this one is used by all.
  virtual std::shared_ptr<const Footprint> for_thread() const { return nullptr; }
};

// The uncompressed cache in blocks of `block` tokens.
class FullCache final : public Footprint {
 public:
  explicit FullCache(std::int64_t block) : block_(block) {}
  std::int64_t reading(std::int64_t tokens) const override { return (tokens + block_ - 1) / block_; }
  std::int64_t decoding(std::int64_t, std::int64_t tokens) const override { return reading(tokens); }
  bool keeps_all() const override { return true; }

 private:
  std::int64_t block_;
};

}  // namespace kvcast::serving
