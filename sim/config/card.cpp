#include "config/card.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "config/card_numbers.hpp"
#include "config/card_quantization.hpp"
#include "config/card_recurrence.hpp"
#include "config/card_table.hpp"
#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

namespace fs = std::filesystem;

// Keys under which multimodal models have the configuration of their language model.
constexpr const char* kInner[] = {"text_config", "llm_config", "language_config"};

// Values that change nothing whatever their key means.
bool is_nothing(const Node& node) {
  if (node.kind() == Node::Kind::kNull) return true;
  if (node.kind() == Node::Kind::kScalar) return node.text().empty() || node.text() == "false" || node.text() == "0";
  return node.kind() == Node::Kind::kList ? node.items().empty() : node.entries().empty();
}

class CardReader final : public CardNumbers {
 public:
  explicit CardReader(std::string path)
      : path_(std::move(path)), table_(read_card_table(find_config("cards", "architectures", {}))) {
    const Node file = load_yaml(path_);  // JSON is YAML, and has locations this way
    if (file.kind() != Node::Kind::kMap) throw UserError(file.where(), "config.json: expected a map");
    const Node* inner = nullptr;
    for (const char* const key : kInner) {
      const Node* const found = file.find(key);
      if (inner == nullptr && found != nullptr && found->kind() == Node::Kind::kMap) inner = found;
    }
    outer_ = file;
    text_ = inner == nullptr ? file : *inner;
    choose_architecture(inner != nullptr);
    if (inner != nullptr)
      card_.notes.emplace_back("the language model alone is read, without encoders of images and sound");
  }

  Card read() {
    card_.model = Node::map({}, {path_});
    set("title", Node::scalar(card_name(path_), {path_}, true));
    require_numbers();
    for (const char* key : {"layers", "hidden", "n_q_heads"}) set(key, *find(key));
    layers_ = integer("layers", 1, 10'000);
    find("rope.map");
    read_attention();
    card_.model = with_networks(card_.model, *this, layers_);
    for (const char* key :
         {"vocab", "tie_embeddings", "qkv_bias", "qk_norm", "output_gate", "gated_ffn", "values_from_keys"}) {
      if (const Node* value = find(key)) set(key, *value);
    }
    read_rope();
    if (kind_->recurrence.empty()) {
      if (card_.model.find("compressed") == nullptr) read_sliding();
    } else {
      card_.model = with_recurrence(card_.model, kind_->recurrence, layers_, [&](auto number) { return find(number); });
    }
    set("max_context", number_node(max_context_, find("max_context")->where()));
    read_precision();
    const std::string left_out = kind_->left_out.empty() ? "" : fmt::format(". Left out: {}", kind_->left_out);
    set("source", Node::scalar(fmt::format("config.json ({}){}", kind_name_, left_out), {path_}, true));
    report_unknown();
    return std::move(card_);
  }

  const std::string& architecture() const override { return kind_name_; }

  // The value of a number of the model: the first of its names that the file has, then a default.
  const Node* find(std::string_view number) override {
    std::vector<std::string> names = table_.keys.find(number)->second;
    if (const auto more = kind_->also.find(number); more != kind_->also.end()) {
      names.insert(names.begin(), more->second.begin(), more->second.end());
    }
    for (const std::string& name : names) read_.insert(name.substr(0, name.find('.')));
    const bool shared = number == "tie_embeddings" || number == "quantization";  // the outer map may have it
    const Node* const maps[] = {&text_, shared ? &outer_ : &text_, &kind_->defaults};
    for (const Node* map : maps) {
      for (const std::string& name : names) {
        const Node* const value = find_below(*map, name);
        if (value != nullptr && value->kind() != Node::Kind::kNull) return value;
      }
    }
    return nullptr;
  }

 private:
  void set(std::string_view key, const Node& value) { card_.model = card_.model.with(key, value); }

  void choose_architecture(bool multimodal) {
    std::vector<std::string> names;
    const auto add = [&](const Node& map) {
      if (const Node* list = map.find("architectures"); list != nullptr && list->kind() == Node::Kind::kList) {
        for (const Node& item : list->items()) {
          if (is_scalar(&item)) names.push_back(item.text());
        }
      }
      if (const Node* type = map.find("model_type"); is_scalar(type)) names.push_back(type->text());
    };
    add(text_);
    if (multimodal) add(outer_);
    for (const std::string& name : names) {
      const auto known = table_.architectures.find(name);
      if (known == table_.architectures.end()) continue;
      kind_ = &known->second, kind_name_ = name;
      if (!kind_->missing.empty()) refuse({path_}, fmt::format("not modelled: {}", kind_->missing));
      return;
    }
    if (names.empty()) throw UserError({path_}, "neither `architectures` nor `model_type`: no model's config.json");
    const std::string& name = names.front();
    throw UserError({path_},
                    fmt::format("unknown architecture \"{}\"{}. If its layers are those of a known one, add it "
                                "to the `names` of that one in configs/cards/architectures.yaml; otherwise "
                                "write the model by hand (configs/README.md#add-a-model)",
                                shorten(name), did_you_mean(name, table_.modelled())));
  }

  void require_numbers() {
    std::vector<std::string> missing;
    for (const char* const number : {"layers", "hidden", "n_q_heads", "vocab", "max_context"}) {
      if (find(number) == nullptr) missing.push_back(table_.keys.find(number)->second.front());
    }
    if (find("ffn") == nullptr && find("experts.ffn") == nullptr) missing.emplace_back("intermediate_size");
    if (!missing.empty()) refuse({path_}, fmt::format("the file lacks {}", fmt::join(missing, ", ")));
  }

  void read_attention() {
    const std::int64_t heads = integer("n_q_heads", 1, 10'000), hidden = integer("hidden", 1, kLargest);
    for (const char* key : {"streams", "residual_block"}) {
      if (const Node* value = find(key)) set(key, *value);
    }
    if (const Node* rank = find("latent.rank")) {
      set("attention", Node::scalar("mla", rank->where()));
      for (const char* key :
           {"latent.query_rank", "latent.rank", "latent.rope_dim", "latent.key_dim", "latent.value_dim"}) {
        if (const Node* value = find(key)) set(key, *value);
      }
      find("n_kv_heads"), find("head_dim");
      return;
    }
    if (find("compressed.ratios") != nullptr) card_.model = with_compressed(card_.model, *this, layers_);
    const Node *kv_heads = find("n_kv_heads"), *dim = find("head_dim");
    for (const char* key : {"n_kv_heads", "head_dim"}) {  // layers that attend to everything may have their own
      const Node*& here = std::string_view(key) == "head_dim" ? dim : kv_heads;
      const Node* full = find(std::string("global.") + key);
      if (full != nullptr && here != nullptr) set(std::string("sliding.") + key, *here), here = full;
    }
    set("n_kv_heads", kv_heads != nullptr ? *kv_heads : *find("n_q_heads"));
    if (dim != nullptr) return set("head_dim", *dim);
    if (hidden % heads != 0) refuse(find("hidden")->where(), fmt::format("{} heads do not divide {}", heads, hidden));
    set("head_dim", number_node(hidden / heads, find("hidden")->where()));
  }

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  // The map of positions: newer files have one for each kind of layer.
  const Node* rope_map() {
    const Node* map = find("rope.map");
    if (map == nullptr || map->kind() != Node::Kind::kMap) return nullptr;
    const Node* full = map->find("full_attention");
    return full != nullptr && full->kind() == Node::Kind::kMap ? full : map;
  }

  void read_rope() {
    const Node* map = rope_map();
    const auto of_map = [&](const char* key) {
      const Node* const value = map == nullptr ? nullptr : map->find(key);
      return value != nullptr && value->kind() != Node::Kind::kNull ? value : nullptr;
    };
    const Node* beside = find("rope.theta");
    const Node* theta = of_map("rope_theta") != nullptr ? of_map("rope_theta") : beside;
    set("rope.theta", theta != nullptr ? *theta : Node::scalar("10000", {path_}));
    max_context_ = integer("max_context", 1, kLargest);
    const Node* type = of_map("rope_type") != nullptr ? of_map("rope_type") : of_map("type");
    const std::string name = is_scalar(type) ? type->text() : "default";
    if (name == "default" || name == "mrope") return;
    const bool known = name == "yarn" || name == "linear" || name == "llama3";
    if (known || name == "dynamic") scale_positions(name, of_map);
    if (known) return;
    card_.notes.push_back(
        fmt::format("positions scaled by \"{}\" are read as unscaled: no cost depends on it", shorten(name)));
  }

  // Factors of every kind but llama3's multiply the positions that the file states, unless it states those before.
  template <class OfMap>
  void scale_positions(const std::string& name, const OfMap& of_map) {
    const Node* factor = of_map("factor");
    if (factor == nullptr) return;
    const SourceLocation& where = factor->where();
    const double times = read_number(*factor, "factor", 1, 1e6);
    const Node* before = of_map("original_max_position_embeddings");
    const auto stated = static_cast<double>(max_context_);
    const double original = before != nullptr ? read_number(*before, "original_max_position_embeddings", 1, kLargest)
                            : kind_->scaled_context ? std::max(1.0, std::floor(stated / times))
                                                    : stated;
    if (name != "llama3")
      max_context_ = static_cast<std::int64_t>(std::clamp<double>(original * times, stated, kLargest));
    if (name == "dynamic") return;
    set("rope.scaling", Node::scalar(name, where));
    set("rope.factor", *factor);
    for (const char* const key : {"low_freq_factor", "high_freq_factor"}) {
      if (const Node* value = name == "llama3" ? of_map(key) : nullptr) set(fmt::format("rope.{}", key), *value);
    }
    set("rope.original_context", number_node(static_cast<std::int64_t>(original), where));
  }

  void read_sliding() {
    const Node* used = find("sliding.used");
    const std::int64_t chunk = integer("sliding.chunk", 0, kLargest);
    const std::int64_t window = chunk > 0 ? chunk : integer("sliding.window", 0, kLargest);
    const Node* pattern = find("sliding.every");  // EXAONE's is a text: "LLLG", local and global layers
    const std::string letters = is_scalar(pattern) ? pattern->text() : "";
    const bool spelled = !letters.empty() && letters.find_first_not_of("LG") == std::string::npos;
    const std::int64_t every = spelled ? 0 : integer("sliding.every", 1, kLargest, kLargest),
                       first = integer("sliding.full_first", 0, kLargest);
    const Node* types = find("sliding.types");
    if (types != nullptr) check_types(*types);
    if (window == 0 || window >= max_context_ || (used != nullptr && !read_flag(*used, "use_sliding_window"))) return;
    std::vector<bool> full;
    for (std::int64_t i = 0; i < layers_; ++i) {
      const bool listed = types != nullptr && types->items()[at(i)].text() == "full_attention";
      const bool global = spelled ? letters[at(i) % letters.size()] == 'G' : (i + 1) % every == 0;
      full.push_back(types != nullptr ? listed : global || (used != nullptr && i < first));
    }
    const auto count = std::ranges::count(full, true);
    const SourceLocation& where = find(chunk > 0 ? "sliding.chunk" : "sliding.window")->where();
    if (count == layers_) return;
    if (count == 0) {
      card_.notes.push_back(
          fmt::format("all layers attend to a window of {} tokens: read as a model of contexts up to these", window));
      max_context_ = window;
      return;
    }
    const std::int64_t group = std::ranges::find(full, true) - full.begin() + 1;
    for (std::int64_t i = 0; i < layers_; ++i) {
      if (full[at(i)] != ((i + 1) % group == 0)) refuse(where, "not modelled: this order of sliding and full layers");
    }
    set("sliding.window", number_node(window, where));
    set("sliding.full_every", number_node(group, where));
    if (chunk > 0) set("sliding.chunks", Node::scalar("true", where));
  }

  void check_types(const Node& types) const {
    if (types.kind() != Node::Kind::kList || types.items().size() < at(layers_)) {
      refuse(types.where(), "layer_types: an entry a layer is expected");
    }
    for (const Node& item : types.items()) {
      const std::string type = is_scalar(&item) ? item.text() : describe(item);
      constexpr const char* kKnown[] = {"full_attention", "sliding_attention", "chunked_attention",
                                        "deepseek_sparse_attention"};
      if (std::ranges::find(kKnown, type) != std::end(kKnown)) continue;
      refuse(item.where(), fmt::format("not modelled: layers of the type \"{}\"", shorten(type)));
    }
  }

  std::string precision_of(const Node& asked, const std::string& name) const {
    for (const auto& [precision, names] : table_.precisions) {
      if (std::ranges::find(names, name) != names.end()) return precision;
    }
    refuse(asked.where(), fmt::format("not modelled: weights quantized by \"{}\"", shorten(name)));
  }

  void read_precision() {
    const Node* map = find("quantization");
    Node beside;
    const fs::path file = fs::path(path_).parent_path() / "hf_quant_config.json";
    if (std::error_code failure; map == nullptr && fs::is_regular_file(file, failure)) {
      beside = load_yaml(file.string());
      if (beside.kind() == Node::Kind::kMap) map = beside.find("quantization");
    }
    if (map == nullptr || map->kind() != Node::Kind::kMap) return;
    const std::string precision = precision_of(*map, quantization_of(*map));
    const bool experts = card_.model.find("experts") != nullptr;
    const bool attention = !leaves(*map, "attn");
    set(experts && !attention ? "expert_weights" : "weights", Node::scalar(precision, map->where()));
    if (experts && leaves(*map, "shared_expert")) set("shared_weights", Node::scalar("bf16", map->where()));
    if (const Node* own = find("experts.precision"); own != nullptr && experts && attention) {
      set("expert_weights", Node::scalar(precision_of(*own, read_text(*own, "expert_dtype")), own->where()));
      set("shared_weights", Node::scalar(precision, own->where()));  // it is that of routed experts
    }
    if (!experts && !attention) {
      card_.notes.push_back(
          fmt::format("attention's matrices, which the file leaves at 16 bits, are read as {} as well", precision));
    }
    for (const char* const key : {"kv_cache_quant_algo", "kv_cache_scheme"}) {
      const Node* cache = map->find(key);
      if (cache == nullptr || is_nothing(*cache)) continue;
      card_.notes.emplace_back("the file asks for a quantized KV cache: `deployment: {kv_cache: fp8}` has it");
      break;
    }
  }

  void report_unknown() {
    for (const auto& [key, value] : text_.entries()) {
      if (const auto not_modelled = kind_->missing_with.find(key); not_modelled != kind_->missing_with.end()) {
        if (!is_nothing(value)) refuse(text_.key_where(key), fmt::format("not modelled: {}", not_modelled->second));
        continue;
      }
      if (is_nothing(value) || read_.contains(key) || covers(table_.ignored, key) || covers(kind_->ignored, key))
        continue;
      const std::string text = value.kind() == Node::Kind::kScalar ? shorten(value.text()) : describe(value);
      card_.notes.push_back(fmt::format("{}:{}: unknown key \"{}\" ({}) is not read", path_, text_.key_where(key).line,
                                        shorten(key), text));
    }
  }

  std::string path_;
  CardTable table_;
  Node outer_, text_;
  const Architecture* kind_ = nullptr;
  std::string kind_name_;
  std::int64_t layers_ = 0, max_context_ = 0;
  std::set<std::string, std::less<>> read_;
  Card card_;
};

}  // namespace

std::optional<std::string> card_at(const std::string& name, const SourceLocation& asked_at) {
  if (asked_at.from_request) return {};
  std::error_code failure;
  if (name.ends_with(".json")) return name;
  const fs::path inside = fs::path(name) / "config.json";
  return fs::is_regular_file(inside, failure) ? std::optional(inside.string()) : std::nullopt;
}

std::string card_name(const std::string& path) {
  const fs::path file = fs::absolute(path).lexically_normal();
  if (file.stem() != "config") return file.stem().string();
  for (const fs::path& part : file.parent_path()) {
    const std::string name = part.string();
    if (name.starts_with("models--")) return name.substr(name.rfind("--") + 2);  // a folder of Hugging Face's cache
  }
  return file.parent_path().filename().string();
}

Card read_card(const std::string& path) { return CardReader(path).read(); }

}  // namespace kvcast::config
