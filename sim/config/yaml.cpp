// Uses yaml-cpp's event interface (HandleNextDocument) rather than its node tree: only the events still contain
// duplicate keys, aliases to open nodes, and tags.
//
// Yaml-cpp itself stops at 500 levels; this layer stops at kMaxDepth long before. Aliases share the node they name, so
// their size is counted as if written out: a chain of doubling aliases ("billion laughs") is rejected at kMaxNodes.

#include "config/yaml.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/quote.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

constexpr std::size_t kMaxNodes = 100'000;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxKeyBytes = 128;

SourceLocation place(SourceLocation source, const YAML::Mark& mark) {
  source.line = mark.line + 1, source.column = mark.column + 1;
  return source;
}

// Expands suffixes: 128K is 131072 and 1M is 1048576, as results print counts of tokens. Anything else is unchanged.
Node written_out(const Node& node) {
  if (node.kind() != Node::Kind::kScalar || node.quoted()) return node;
  const std::string& text = node.text();
  constexpr std::size_t kMostDigits = 9;
  const std::size_t digits = text.find_first_not_of("0123456789");
  const bool is_count = digits + 1 == text.size() && digits > 0 && digits <= kMostDigits && text.front() != '0' &&
                        (text.back() == 'K' || text.back() == 'M');
  if (!is_count) return node;
  const std::int64_t factor = text.back() == 'K' ? 1024 : 1024 * 1024;
  return Node::scalar(std::to_string(std::stoll(text) * factor), node.where());
}

// Builds a Node from yaml-cpp's events and rejects the constructs that kvcast's YAML excludes.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const SourceLocation& source) : text_(text), source_(source) {}

  Node take_root() && { return std::move(root_); }

  // Location at which the innermost unfinished list or map begins; null outside of all.
  const SourceLocation* innermost_open() const { return open_.empty() ? nullptr : &open_.back().where; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    const std::size_t start = std::min(static_cast<std::size_t>(std::max(0, mark.pos)), text_.size());
    const bool marker = text_.substr(start).starts_with("---");
    throw UserError(where(mark), marker ? "a second document starts here; a file holds exactly one"
                                        : "text after the end of the document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    count(1, mark);
    // yaml-cpp reports the next token's place for a key without a value.
    const SourceLocation here = where(mark);
    const bool valueless =
        !open_.empty() && open_.back().expects_value && open_.back().key_places.back().line < here.line;
    close(Node::null(valueless ? open_.back().key_places.back() : here), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) throw UserError(where(mark), "an alias to a node that contains it");
    count(named->second.size(), mark);
    if (open_.size() + named->second.depth() > kMaxDepth) throw too_deep(mark);
    attach(named->second, where(mark));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";  // how yaml-cpp marks quoted and block scalars
    if (quoted) refuse_unclosed(mark);
    if (!quoted) refuse_tag(mark, tag);
    check_text(value, where(mark));
    count(1, mark);
    close(Node::scalar(value, where(mark), quoted), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, false);
  }
  void OnSequenceEnd() override {
    Open done = pop();
    close(Node::list(std::move(done.items), done.where), done.anchor);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, true);
  }
  void OnMapEnd() override {
    Open done = pop();
    close(Node::map(std::move(done.entries), done.where, std::move(done.key_places)), done.anchor);
  }

 private:
  // A list or map whose end has not been reached.
  struct Open {
    SourceLocation where;
    YAML::anchor_t anchor;
    bool is_map;
    std::vector<Node> items;
    std::vector<std::pair<std::string, Node>> entries;
    std::vector<SourceLocation> key_places;
    std::map<std::string, int> lines = {};  // lines of the keys so far
    bool expects_value = false;             // a key has been read, its value has not
  };

  SourceLocation where(const YAML::Mark& mark) const { return place(source_, mark); }

  UserError too_deep(const YAML::Mark& mark) const {
    return UserError(where(mark), fmt::format("lists and maps nested deeper than {} levels", kMaxDepth));
  }

  void count(std::size_t nodes, const YAML::Mark& mark) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) {
      throw UserError(where(mark), fmt::format("more than {} values, aliases written out", kMaxNodes));
    }
  }

  // Rejects invalid text made by escapes in double quotes: yaml-cpp turns \N and \_ into bytes that are not UTF-8.
  static void check_text(std::string_view value, const SourceLocation& where) {
    for (std::size_t i = 0; i < value.size();) {
      const std::size_t length = utf8_length(value.substr(i));
      if (length == 0) throw UserError(where, "an escape that is no character (\\N or \\_)");
      if (value[i] == '\0') throw UserError(where, "a NUL character in a text");
      i += length;
    }
  }

  // yaml-cpp takes the rest of a file that ends with a line for a quoted text without an end.
  void refuse_unclosed(const YAML::Mark& mark) const {
    const auto begin = static_cast<std::size_t>(mark.pos);
    if (begin >= text_.size() || (text_[begin] != '"' && text_[begin] != '\'')) return;
    const char quote = text_[begin];
    std::size_t end = begin + 1;
    const auto is_escape = [&] {
      return quote == '"' ? text_[end] == '\\' : text_.substr(end).starts_with("''");  // a pair within single quotes
    };
    while (end < text_.size() && (text_[end] != quote || is_escape())) end += is_escape() ? 2 : 1;
    if (end >= text_.size()) throw UserError(where(mark), "not valid YAML: a quote that is never closed");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?") return;
    throw UserError(where(mark), fmt::format("a tag (\"{}\"); kvcast's YAML has none", shorten(tag)));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, bool is_map) {
    refuse_tag(mark, tag);
    count(1, mark);
    if (open_.size() == kMaxDepth) throw too_deep(mark);
    open_.push_back({where(mark), anchor, is_map, {}, {}, {}});
  }

  Open pop() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return done;
  }

  void close(Node node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_.emplace(anchor, node);
    const SourceLocation where = node.where();
    attach(std::move(node), where);
  }

  // Attaches a finished node to the open list or map, as a key or as a value, or at the root.
  void attach(Node node, const SourceLocation& where) {
    if (open_.empty()) {
      root_ = written_out(node);
    } else if (Open& parent = open_.back(); !parent.is_map) {
      parent.items.push_back(written_out(node));
    } else if (parent.expects_value) {
      auto& [key, value] = parent.entries.back();
      value = key == "name" || key == "description" ? std::move(node) : written_out(node);
      parent.expects_value = false;
    } else {
      add_key(parent, node, where);
    }
  }

  static void add_key(Open& map, const Node& key, const SourceLocation& where) {
    if (key.kind() != Node::Kind::kScalar || key.text().empty()) {
      throw UserError(where, fmt::format("a key must be a text, found {}", describe(key)));
    }
    if (key.text().size() > kMaxKeyBytes) {
      throw UserError(where, fmt::format("a key longer than {} bytes: {}", kMaxKeyBytes, describe(key)));
    }
    if (key.text() == "<<") throw UserError(where, "merge keys (<<) are not supported: write the keys out");
    const auto [seen, is_new] = map.lines.emplace(key.text(), where.line);
    if (!is_new) {
      throw UserError(where,
                      fmt::format("duplicate key \"{}\", first given in line {}", shorten(key.text()), seen->second));
    }
    map.entries.emplace_back(key.text(), Node());
    map.key_places.push_back(where);
    map.expects_value = true;
  }

  std::string_view text_;
  const SourceLocation& source_;  // its file, and whether it is a request
  int documents_ = 0;
  std::size_t nodes_ = 0;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchors_;  // finished nodes only
};

// Rejects bytes that are not text, which yaml-cpp would read as something else.
void check_encoding(std::string_view text, SourceLocation here) {
  here.line = here.column = 1;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) throw UserError(here, "bytes that are not valid UTF-8");
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F) {
      throw UserError(here, fmt::format("a control character (byte 0x{:02X})", c));
    }
    here.column = c == '\n' ? 1 : here.column + static_cast<int>(length);
    here.line += c == '\n' ? 1 : 0;
    i += length;
  }
}

// Returns a hint for errors that yaml-cpp's message seldom explains: a tab in the indentation, and a key without a
// colon, for which it reports the colon of the next line.
std::string hint(std::string_view text, const YAML::Exception& error) {
  std::istringstream lines{std::string(text)};
  std::string here, before;  // `before`: the last line above that has content
  int line_before = 0;
  for (int i = 0; i <= error.mark.line; ++i) {
    const std::size_t start = here.find_first_not_of(" \t\r");
    if (start != std::string::npos && here[start] != '#') before = here, line_before = i;
    if (!std::getline(lines, here)) break;
  }
  const std::size_t indent = std::min(here.find_first_not_of(" \t"), here.size());
  if (here.find('\t') < indent) return "; the line is indented with a tab, but YAML allows only spaces";
  const bool may_lack_colon = error.msg == YAML::ErrorMsg::MAP_VALUE || error.msg == YAML::ErrorMsg::END_OF_MAP;
  const bool is_list_item = before.find('-') == before.find_first_not_of(' ');
  if (!may_lack_colon || line_before == 0 || is_list_item || before.find(':') != std::string::npos) return "";
  return fmt::format("; line {} has no colon", line_before);
}

Node parse(std::string_view text, const SourceLocation& source) {
  if (text.size() > kMaxYamlBytes) throw UserError(source, fmt::format("larger than {} MiB", kMaxYamlBytes >> 20));
  check_encoding(text, source);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark, which yaml-cpp does not count
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(text, source);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    // yaml-cpp reads such a text up to the quote, and reports the quote, if the text ends with a line break.
    const bool open_quote = e.msg == YAML::ErrorMsg::EOF_IN_SCALAR && !text.ends_with('\n');
    if (open_quote) return parse(fmt::format("{}\n", text), source);
    // For an unclosed bracket yaml-cpp reports the end or the start of the text; report the opening bracket instead.
    const bool never_closed = e.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW || e.msg == YAML::ErrorMsg::END_OF_MAP_FLOW;
    const SourceLocation* open = never_closed ? builder.innermost_open() : nullptr;
    throw UserError(open != nullptr ? *open : place(source, e.mark),
                    fmt::format("not valid YAML: {}{}", e.msg, hint(text, e)));
  }
  Node root = std::move(builder).take_root();
  if (root.kind() == Node::Kind::kNull) {
    SourceLocation here = source;
    here.line = std::max(1, root.where().line), here.column = std::max(1, root.where().column);
    throw UserError(here, "the document is empty");
  }
  return root;
}

}  // namespace

Node parse_yaml(std::string_view text, const std::string& file_name) { return parse(text, {file_name}); }

Node parse_request(std::string_view text) {
  SourceLocation source{"request"};
  source.from_request = true;
  return parse(text, source);
}

std::pair<std::string, Node> parse_setting(const std::string& argument) {
  const std::string origin = "--set " + argument;
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) throw UserError({origin}, "expected PATH=VALUE, such as workload.batch=4");
  const std::string path = argument.substr(0, equals);
  check_dotted_path(path, {origin});
  const std::string value = argument.substr(equals + 1);
  if (value.find_first_not_of(" \t") == std::string::npos) throw UserError({origin}, "no value after \"=\"");
  return {path, parse_yaml(value, origin)};
}

}  // namespace kvcast::config
