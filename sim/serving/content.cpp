#include "serving/content.hpp"

#include <algorithm>

namespace kvcast::serving {
namespace {

constexpr std::int64_t kMore = 8;  // blocks

// Separate what the source names, a request's own prompt and its own outputs.
enum Domain : std::uint64_t { kNamed = 1, kOwnPrompt, kOwnOutputs };

void append(std::vector<Piece>& list, std::uint64_t key, std::int64_t tokens, std::int64_t& left) {
  tokens = std::min(tokens, left);
  if (tokens <= 0) return;
  list.push_back({key, 0, tokens});
  left -= tokens;
}

}  // namespace

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over both.
  std::uint64_t z = (a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2))) + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

std::vector<Piece> pieces(const traffic::Request& request, std::int64_t tokens) {
  std::vector<Piece> list;
  std::int64_t left = std::min(tokens, request.prompt_tokens);
  const std::int64_t outputs = tokens - left;
  for (const traffic::Segment& segment : request.content)
    append(list, mixed(kNamed, segment.key), segment.tokens, left);
  const auto id = request.id;
  append(list, mixed(kOwnPrompt, id), left, left);
  left = outputs;
  append(list, request.answer_key != 0 ? mixed(kNamed, request.answer_key) : mixed(kOwnOutputs, id), left, left);
  return list;
}

std::int64_t shareable(const traffic::Request& request) {
  std::int64_t named = 0;
  for (const traffic::Segment& segment : request.content) named += segment.tokens;
  if (named < request.prompt_tokens) return named;
  return request.answer_key != 0 ? request.prompt_tokens + request.output_tokens : request.prompt_tokens;
}

void Chain::extend(std::int64_t blocks, const traffic::Request& request, std::int64_t block) {
  const std::int64_t done = hashes_.size();
  blocks = std::max(blocks, done + done / 2 + kMore);  // they are asked for one after the other
  const std::vector<Piece> list = pieces(request, blocks * block);
  std::uint64_t hash = hashes_.empty() ? 0 : hashes_.back();
  auto at = list.begin();
  std::int64_t used = done * block;  // tokens of *at before the block
  while (used >= at->tokens) {
    used -= at->tokens;
    ++at;
  }
  for (std::int64_t i = done; i < blocks; ++i) {
    for (std::int64_t left = block; left > 0;) {
      const std::int64_t take = std::min(left, at->tokens - used);
      hash = mixed(hash, mixed(mixed(at->key, at->offset + used), take));
      left -= take;
      used += take;
      if (used == at->tokens) ++at, used = 0;
    }
    hashes_.push_back(hash);
  }
}

}  // namespace kvcast::serving
