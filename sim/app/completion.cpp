// kvcast completion SHELL: a script that completes commands, options and their values; kvcast schema KIND: a JSON
// schema with which editors check YAML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/algorithm/string/replace.hpp>
#include <memory>
#include <string>
#include <vector>

#include "api/schema.hpp"
#include "app/commands.hpp"

namespace kvcast::app {
namespace {

using Commands = std::vector<const CLI::App*>;

struct OptionText {
  std::vector<std::string> names;  // "-j", "--jobs"
  std::string description;
  bool takes_value = false;
};

std::vector<OptionText> options_of(const CLI::App& command) {
  std::vector<OptionText> list;
  for (const CLI::Option* o : command.get_options()) {
    if (o->get_positional() && o->get_snames().empty() && o->get_lnames().empty()) continue;
    OptionText& text = list.emplace_back();
    for (const std::string& name : o->get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : o->get_lnames()) text.names.push_back("--" + name);
    text.description = o->get_description();
    text.takes_value = o->get_items_expected_max() > 0;
  }
  return list;
}

Commands commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> words_of(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* inner : commands_of(command)) words.push_back(inner->get_name());
  for (const OptionText& option : options_of(command))
    words.insert(words.end(), option.names.begin(), option.names.end());
  return words;
}

// Values of an argument with a fixed list: CLI11 shows them in the type, as "TEXT:{a,b}". Empty for other arguments.
std::vector<std::string> fixed_values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// Values of the positional arguments that have a fixed list. A command with such an argument takes no files.
std::vector<std::string> fixed_values_of(const CLI::App& command) {
  std::vector<std::string> all;
  for (const CLI::Option* o : command.get_options()) {
    if (!o->get_positional()) continue;
    const std::vector<std::string> choices = fixed_values_of(*o);
    all.insert(all.end(), choices.begin(), choices.end());
  }
  return all;
}

// Quotes a text in single quotes of a shell.
std::string quoted(const std::string& text) { return fmt::format("'{}'", boost::replace_all_copy(text, "'", "'\\''")); }

// Completes words of the command and its subcommand, and values of its argument; other words are files.
std::string bash(const CLI::App& app) {
  std::string cases;
  const auto add_case = [&cases](const std::string& name, const CLI::App& command) {
    const std::vector<std::string> choices = fixed_values_of(command);
    std::vector<std::string> words = words_of(command);
    words.insert(words.begin(), choices.begin(), choices.end());
    cases += fmt::format("    {}) words={} files={} ;;\n", name, quoted(fmt::format("{}", fmt::join(words, " "))),
                         choices.empty() ? "yes" : "no");
  };
  for (const CLI::App* command : commands_of(app)) {
    add_case(command->get_name(), *command);
    for (const CLI::App* inner : commands_of(*command))
      add_case(quoted(command->get_name() + " " + inner->get_name()), *inner);
  }
  return fmt::format(R"(# bash completion for kvcast: source this file, or `source <(kvcast completion bash)`.
_kvcast() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words={} files=no command="" word
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ $word == -* ]] && continue
    _kvcast_words "${{command:+$command }}$word" || continue
    command="${{command:+$command }}$word"
  done
  [[ -n $command ]] && _kvcast_words "$command"
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  [[ $current != -* && $files == yes ]] && mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
  return 0
}}
_kvcast_words() {{
  case $1 in
{}    *) return 1 ;;
  esac
}}
complete -o filenames -F _kvcast kvcast
)",
                     quoted(fmt::format("{}", fmt::join(words_of(app), " "))), cases);
}

std::string zsh(const CLI::App& app) {
  // [ and : separate parts of a specification.
  const auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '[' || c == ']' || c == ':') out += '\\';
      out += c;
    }
    return out;
  };
  std::string list, cases;
  for (const CLI::App* command : commands_of(app)) {
    list += fmt::format("    {}\n", quoted(command->get_name() + ":" + escaped(command->get_description())));
    std::string arguments;
    for (const OptionText& option : options_of(*command)) {
      for (const std::string& name : option.names)
        arguments += " \\\n        " + quoted(fmt::format("{}[{}]{}", name, escaped(option.description),
                                                          option.takes_value ? ":value:_files" : ""));
    }
    std::vector<std::string> inner;
    for (const CLI::App* one : commands_of(*command)) inner.push_back(one->get_name());
    const std::vector<std::string> choices = fixed_values_of(*command);
    const std::string rest = !inner.empty()     ? fmt::format("*:command:({})", fmt::join(inner, " "))
                             : !choices.empty() ? fmt::format("*:value:({})", fmt::join(choices, " "))
                                                : "*:file:_files";
    cases += fmt::format("      {}) _arguments {}{} ;;\n", command->get_name(), quoted(rest), arguments);
  }
  return fmt::format(R"(#compdef kvcast
# zsh completion for kvcast: `kvcast completion zsh > _kvcast` in a folder of $fpath.
_kvcast() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
  else
    local command=$words[2]
    shift words; (( CURRENT-- ))
    case $command in
{}    esac
  fi
}}
compdef _kvcast kvcast
)",
                     list, cases);
}

std::string fish(const CLI::App& app) {
  std::string out = "# fish completion for kvcast: `kvcast completion fish | source`.\n";
  const auto add_options = [&out](const CLI::App& command, const std::string& condition) {
    for (const OptionText& option : options_of(command)) {
      out += "complete -c kvcast -n " + quoted(condition);
      for (const std::string& name : option.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      out += fmt::format("{} -d {}\n", option.takes_value ? " -r" : "", quoted(option.description));
    }
  };
  add_options(app, "__fish_use_subcommand");
  for (const CLI::App* command : commands_of(app)) {
    out += fmt::format("complete -c kvcast -f -n __fish_use_subcommand -a {} -d {}\n", command->get_name(),
                       quoted(command->get_description()));
    const std::string condition = "__fish_seen_subcommand_from " + command->get_name();
    add_options(*command, condition);
    if (const auto choices = fixed_values_of(*command); !choices.empty())
      out += fmt::format("complete -c kvcast -f -n {} -a {}\n", quoted(condition),
                         quoted(fmt::format("{}", fmt::join(choices, " "))));
    for (const CLI::App* inner : commands_of(*command)) {
      out += fmt::format("complete -c kvcast -f -n {} -a {} -d {}\n", quoted(condition), inner->get_name(),
                         quoted(inner->get_description()));
      add_options(*inner, condition + "; and __fish_seen_subcommand_from " + inner->get_name());
    }
  }
  return out;
}

}  // namespace

void add_completion(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("completion", "print a script that completes commands and options in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell, &result] {
    fmt::print("{}", *shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app));
    result = 0;
  });
}

void add_schema(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("schema", "print a JSON schema with which editors complete and check YAML");
  auto kind = std::make_shared<std::string>();
  command->add_option("KIND", *kind, "run, sweep or plan")->required()->check(CLI::IsMember(api::schema_kinds()));
  command->callback([kind, &result] {
    fmt::print("{}\n", api::schema(*kind).dump(1));
    result = 0;
  });
}

}  // namespace kvcast::app
