#include "serving/radix_tree.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::serving {
namespace {

std::int64_t length(std::span<const Piece> content) {
  std::int64_t tokens = 0;
  for (const Piece& piece : content) tokens += piece.tokens;
  return tokens;
}

// Drops the first tokens: whole pieces from the span, the rest is returned as used of its first.
std::int64_t skip(std::span<const Piece>& content, std::int64_t tokens) {
  while (!content.empty() && tokens >= content.front().tokens) {
    tokens -= content.front().tokens;
    content = content.subspan(1);
  }
  return tokens;
}

// Leading tokens that two contents have in common, the first of them without its first `used` tokens.
std::int64_t common(std::span<const Piece> a, std::int64_t used, std::span<const Piece> b) {
  std::int64_t tokens = 0, used_b = 0;
  while (!a.empty() && !b.empty()) {
    const Piece x = a.front().after(used), y = b.front().after(used_b);
    if (x.key != y.key || x.offset != y.offset) break;
    const std::int64_t same = std::min(x.tokens, y.tokens);
    tokens += same;
    used += same, used_b += same;
    if (same == x.tokens) a = a.subspan(1), used = 0;
    if (same == y.tokens) b = b.subspan(1), used_b = 0;
  }
  return tokens;
}

}  // namespace

RadixTree::RadixTree(std::int64_t page) : page_(page) { nodes_.emplace_back(); }

// Names the child of a node that begins with the next page of the content.
std::uint64_t RadixTree::key(Node parent, std::span<const Piece> content, std::int64_t used) const {
  std::uint64_t hash = static_cast<std::uint64_t>(parent) + 1;
  for (std::int64_t left = page_; left > 0; content = content.subspan(1), used = 0) {
    const Piece piece = content.front().after(used);
    const std::int64_t tokens = std::min(left, piece.tokens);
    hash = mixed(mixed(hash, piece.key),
                 mixed(static_cast<std::uint64_t>(piece.offset), static_cast<std::uint64_t>(tokens)));
    left -= tokens;
  }
  return hash;
}

RadixTree::Match RadixTree::match(std::span<const Piece> content) {
  Match found;
  std::int64_t left = length(content), used = 0;
  ++clock_;
  while (left >= page_) {
    const auto child = children_.find(key(found.node, content, used));
    if (child == children_.end()) break;
    Node node = child->second;
    const std::int64_t whole = at(node).tokens;
    const std::int64_t same = common(content, used, at(node).content) / page_ * page_;
    if (same < whole) node = split(node, same);
    touch(node);
    found.node = node;
    found.tokens += same;
    left -= same;
    used = skip(content, used + same);
    if (same < whole) break;
  }
  return found;
}

RadixTree::Match RadixTree::insert(std::span<const Piece> content) {
  Match found = match(content);
  const std::int64_t used = skip(content, found.tokens);
  std::vector<Piece> rest(content.begin(), content.end());
  if (rest.empty()) return found;
  rest.front() = rest.front().after(used);
  found.node = add(found.node, std::move(rest));
  return found;
}

RadixTree::Node RadixTree::add(Node parent, std::vector<Piece> content) {
  if (parent != kRoot) unfile(parent);
  Node node = static_cast<Node>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  Record& record = at(node);
  record = {};
  record.parent = parent;
  record.tokens = length(content);
  record.key = key(parent, content, 0);
  record.stamp = clock_;
  record.content = std::move(content);
  evictable_ += record.tokens;
  ++at(parent).children;
  KVCAST_CHECK(children_.emplace(record.key, node).second);
  file(node);
  return node;
}

// Divides a node after its first tokens; returns the upper one, which is new.
RadixTree::Node RadixTree::split(Node node, std::int64_t tokens) {
  std::vector<Piece> upper, lower;
  std::int64_t left = tokens;
  for (const Piece& piece : at(node).content) {
    const std::int64_t above = std::min(left, piece.tokens);
    if (above > 0) upper.push_back({piece.key, piece.offset, above});
    if (above < piece.tokens) lower.push_back(piece.after(above));
    left -= above;
  }
  unfile(node);
  children_.erase(at(node).key);
  const Node parent = at(node).parent;
  --at(parent).children;
  evictable_ -= at(node).locks == 0 ? tokens : 0;
  const Node above = add(parent, std::move(upper));
  unfile(above);
  if (at(node).locks > 0) evictable_ -= tokens;
  at(above).locks = at(node).locks;
  at(above).children = 1;
  at(node).parent = above;
  at(node).tokens -= tokens;
  at(node).key = key(above, lower, 0);
  at(node).content = std::move(lower);
  children_.emplace(at(node).key, node);
  file(node);
  return above;
}

void RadixTree::touch(Node node) {
  unfile(node);
  at(node).stamp = clock_;
  file(node);
}

// Enters a node into the order of eviction if it is an unused leaf.
void RadixTree::file(Node node) {
  const Record& record = at(node);
  if (node != kRoot && record.locks == 0 && record.children == 0) idle_.emplace(record.stamp, node);
}

void RadixTree::lock(Node node) {
  for (; node != kRoot; node = at(node).parent) {
    if (at(node).locks++ > 0) continue;
    evictable_ -= at(node).tokens;
    unfile(node);
  }
}

void RadixTree::unlock(Node node) {
  for (; node != kRoot; node = at(node).parent) {
    KVCAST_CHECK(at(node).locks > 0);
    if (--at(node).locks > 0) continue;
    evictable_ += at(node).tokens;
    file(node);
  }
}

std::int64_t RadixTree::evict(std::int64_t tokens) {
  std::int64_t gone = 0;
  while (gone < tokens && !idle_.empty()) {
    const Node node = idle_.begin()->second;
    idle_.erase(idle_.begin());
    gone += at(node).tokens;
    evictable_ -= at(node).tokens;
    children_.erase(at(node).key);
    const Node parent = at(node).parent;
    --at(parent).children;
    file(parent);
    at(node) = {};
    unused_.push_back(node);
  }
  return gone;
}

}  // namespace kvcast::serving
