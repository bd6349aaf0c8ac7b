// The content of a request's tokens, as prefix caches compare it.
#pragma once

#include <cstdint>
#include <vector>

#include "traffic/request.hpp"

namespace kvcast::serving {

// Tokens offset … offset + tokens − 1 of the content that the key names. Equal pieces are equal tokens.
struct Piece {
  std::uint64_t key = 0;
  std::int64_t offset = 0, tokens = 0;
  bool operator==(const Piece&) const = default;
  // The tokens after the first n.
  Piece after(std::int64_t n) const { return {key, offset + n, tokens - n}; }
};

// A mixing function of 64 bits: equal results for different arguments do not occur in practice.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b);

// The first `tokens` tokens of the prompt and the outputs, in order; no piece is empty.
std::vector<Piece> pieces(const traffic::Request& request, std::int64_t tokens);

// Leading tokens of a request's prompt and outputs that other requests may have too.
std::int64_t shareable(const traffic::Request& request);

// Hashes of a request's full blocks, each over its block and all before it. Grows as it is asked for.
class Chain {
 public:
  // Returns the hash of block i.
  std::uint64_t at(std::int64_t i, const traffic::Request& request, std::int64_t block) {
    if (i >= static_cast<std::int64_t>(hashes_.size())) extend(i + 1, request, block);
    return hashes_[static_cast<std::size_t>(i)];
  }

 private:
  void extend(std::int64_t blocks, const traffic::Request& request, std::int64_t block);
  std::vector<std::uint64_t> hashes_;
};

}  // namespace kvcast::serving
