// A prefix cache as a radix tree, as SGLang has it (mem_cache/radix_cache.py).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serving/content.hpp"

namespace kvcast::serving {

// Holds sequences of tokens by their content, in whole pages. A node is a run of tokens; what several sequences have in
// common is held once. Nodes from a locked one to the root are in use. Leaves that are not are evicted as a whole, the
// one first that was matched or entered longest ago.
class RadixTree {
 public:
  using Node = std::int32_t;
  static constexpr Node kRoot = 0;

  explicit RadixTree(std::int64_t page);

  struct Match {
    Node node = kRoot;        // where the tokens end
    std::int64_t tokens = 0;  // that were there before
  };
  // Finds the leading tokens of the content, in whole pages.
  Match match(std::span<const Piece> content);
  // Enters content, a multiple of the page long.
  Match insert(std::span<const Piece> content);

  void lock(Node node);
  void unlock(Node node);
  // Tokens that are not in use.
  std::int64_t evictable() const { return evictable_; }
  // Evicts leaves until `tokens` or more are gone, or none can be; returns how many tokens that were.
  std::int64_t evict(std::int64_t tokens);

 private:
  struct Record {
    Node parent = kRoot;
    std::vector<Piece> content;
    std::int64_t tokens = 0, locks = 0, children = 0;
    std::uint64_t stamp = 0, key = 0;  // the latter of the map of children
  };
  Record& at(Node node) { return nodes_[static_cast<std::size_t>(node)]; }
  std::uint64_t key(Node parent, std::span<const Piece> content, std::int64_t used) const;
  Node add(Node parent, std::vector<Piece> content);
  Node split(Node node, std::int64_t tokens);
  void touch(Node node);
  void file(Node node);
  void unfile(Node node) { idle_.erase({at(node).stamp, node}); }

  std::int64_t page_, evictable_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Record> nodes_;
  std::vector<Node> unused_;
  std::unordered_map<std::uint64_t, Node> children_;  // by parent and first page
  std::set<std::pair<std::uint64_t, Node>> idle_;     // leaves that are not in use, by stamp
};

}  // namespace kvcast::serving
