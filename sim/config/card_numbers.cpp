#include "config/card_numbers.hpp"

#include <algorithm>
#include <vector>

#include "config/section.hpp"

namespace kvcast::config {

Node number_node(std::int64_t number, const SourceLocation& where) {
  return Node::scalar(std::to_string(number), where);
}

void CardNumbers::refuse(const SourceLocation& where, const std::string& why) const {
  throw UserError(where, fmt::format("{}: {}", architecture(), why));
}

std::int64_t CardNumbers::integer(std::string_view number, std::int64_t low, std::int64_t high, std::int64_t fallback) {
  const Node* node = find(number);
  if (node == nullptr) return fallback;
  if (node->kind() != Node::Kind::kList || node->items().empty()) return read_integer(*node, number, low, high);
  const std::int64_t first = read_integer(node->items().front(), number, low, high);
  for (const Node& item : node->items()) {
    if (read_integer(item, number, low, high) != first)
      refuse(item.where(), "not modelled: layers of different shapes");
  }
  return first;
}

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t shared_experts(CardNumbers& card, std::int64_t width) {
  const std::int64_t whole = card.integer("experts.shared_width", 0, kLargest),
                     count = card.integer("experts.shared", 0, 1000);
  if (whole == 0) return count;
  if (whole % width == 0) return whole / width;
  card.refuse(card.find("experts.shared_width")->where(),
              fmt::format("not modelled: a shared expert of width {}, no multiple of the others' {}", whole, width));
}

// A number says that each n-th layer has experts; a list says for each layer: 0 or 1, "dense" or "sparse".
bool has_experts(const CardNumbers& card, const Node& pattern, std::int64_t layer) {
  if (pattern.kind() != Node::Kind::kList) return layer % read_integer(pattern, "moe_layer_freq", 1, kLargest) == 0;
  if (layer >= static_cast<std::int64_t>(pattern.items().size()))
    card.refuse(pattern.where(), "an entry a layer is expected");
  const Node& item = pattern.items()[at(layer)];
  return is_scalar(&item) && item.text() != "0" && item.text() != "dense";
}

// First layers without experts, after which all have them, or the last of each group of `every` layers has.
struct ExpertLayers {
  std::int64_t dense = 0, every = 1;
};

ExpertLayers expert_layers(CardNumbers& card, std::int64_t layers) {
  std::vector<bool> dense(at(layers));
  const std::int64_t first = card.integer("experts.first", 0, layers),
                     every = card.integer("experts.every", 1, layers, 1);
  const std::int64_t offset = card.integer("experts.offset", 0, layers, every - 1);
  for (std::int64_t i = 0; i < layers; ++i) dense[at(i)] = i < first || i % every != offset;
  if (const Node* list = card.find("experts.dense_list"); list != nullptr && list->kind() == Node::Kind::kList) {
    for (const Node& item : list->items()) dense[at(read_integer(item, "mlp_only_layers", 0, layers - 1))] = true;
  }
  if (const Node* pattern = card.find("experts.pattern")) {
    for (std::int64_t i = 0; i < layers; ++i) dense[at(i)] = dense[at(i)] || !has_experts(card, *pattern, i);
  }
  const std::int64_t start = std::ranges::find(dense, false) - dense.begin();
  const auto fits = [&](const ExpertLayers& guess) {
    for (std::int64_t i = 0; i < layers; ++i) {
      if (dense[at(i)] != (i < guess.dense || (i + 1) % guess.every != 0)) return false;
    }
    return true;
  };
  for (const ExpertLayers guess : {ExpertLayers{start, 1}, ExpertLayers{0, start + 1}}) {
    if (start < layers && fits(guess)) return guess;
  }
  card.refuse(card.find("experts.count")->where(), "not modelled: this order of layers with and without experts");
}

}  // namespace

Node with_networks(Node model, CardNumbers& card, std::int64_t layers) {
  const auto set = [&](const char* key, const Node& value) { model = model.with(key, value); };
  const std::int64_t count = card.integer("experts.count", 0, 100'000);
  if (count < 2) {
    const Node* const ffn = card.find("ffn");
    if (ffn == nullptr) card.refuse(model.find("title")->where(), "the file lacks intermediate_size");
    set("ffn", number_node(card.integer("ffn", 1, kLargest), ffn->where()));
    return model;
  }
  const Node& where = *card.find("experts.count");
  if (card.find("experts.active") == nullptr) card.refuse(where.where(), "the file lacks num_experts_per_tok");
  const std::int64_t own = card.integer("experts.ffn", 1, kLargest),
                     width = own > 0 ? own : card.integer("ffn", 1, kLargest);
  const ExpertLayers kinds = expert_layers(card, layers);
  if (kinds.dense > 0 || kinds.every > 1)
    set("ffn", number_node(card.integer("ffn", 1, kLargest, width), where.where()));
  set("experts.count", number_node(count, where.where()));
  set("experts.active", number_node(card.integer("experts.active", 1, count), card.find("experts.active")->where()));
  if (const std::int64_t shared = shared_experts(card, width); shared > 0) {
    set("experts.shared", number_node(shared, where.where()));
    if (const Node* gate = card.find("experts.shared_gate")) set("experts.shared_gate", *gate);
  }
  set("experts.ffn", number_node(width, where.where()));
  if (card.integer("experts.hidden", 0, kLargest) > 0) {
    set("experts.hidden", *card.find("experts.hidden"));
    if (const Node* norm = card.find("experts.hidden_norm")) set("experts.hidden_norm", *norm);
  }
  if (kinds.dense > 0) set("experts.dense_layers", number_node(kinds.dense, where.where()));
  if (kinds.every > 1) set("experts.every", number_node(kinds.every, where.where()));
  return model;
}

// A ratio a layer, and further ones of layers that predict more tokens: 0 for the window alone; of the others the
// smaller is that of layers with an indexer.
Node with_compressed(Node model, CardNumbers& card, std::int64_t layers) {
  const Node& list = *card.find("compressed.ratios");
  if (list.kind() != Node::Kind::kList || list.items().size() < at(layers))
    card.refuse(list.where(), "compress_ratios: an entry a layer is expected");
  std::vector<std::int64_t> ratios, known;
  for (const Node& item : list.items()) {
    const std::int64_t ratio = read_integer(item, "compress_ratios", 0, 65536);
    if (ratio > 0 && std::ranges::find(known, ratio) == known.end()) known.push_back(ratio);
    if (ratios.size() < at(layers)) ratios.push_back(ratio);
  }
  std::ranges::sort(known);
  if (known.size() != 2) card.refuse(list.where(), "not modelled: compress_ratios other than 0 and two more");
  std::string kinds;
  for (const std::int64_t ratio : ratios) kinds += ratio == 0 ? 'W' : ratio == known[0] ? 'C' : 'H';
  const auto set = [&](const std::string& key, const Node& value) { model = model.with("compressed." + key, value); };
  set("layers", Node::scalar(kinds, list.where()));
  set("csa_tokens", number_node(known[0], list.where())), set("hca_tokens", number_node(known[1], list.where()));
  for (const char* key :
       {"window", "index_heads", "index_dim", "index_best", "query_rank", "rope_dim", "output_groups", "output_rank"}) {
    const Node* value = card.find(std::string("compressed.") + key);
    if (value == nullptr) card.refuse(list.where(), fmt::format("the file lacks the number of compressed.{}", key));
    set(key, *value);
  }
  return model;
}

}  // namespace kvcast::config
