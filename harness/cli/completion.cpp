// Completion scripts and the manual page, from the options of the commands themselves.
#include <sstream>

#include "harness/base/errors.h"
#include "harness/base/version.h"
#include "harness/checker/checker.h"
#include "harness/cli/commands.h"
#include "harness/generate/outside.h"
#include "harness/run/planted.h"
#include "oracle/oracle.h"

namespace lockstep {
namespace {

// Each byte of `special` behind a backslash.
std::string escaped(const std::string& text, const std::string& special) {
  std::string out;
  for (const char byte : text) {
    if (special.find(byte) != std::string::npos) out += '\\';
    out += byte;
  }
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : " ") + word;
  return list;
}

// Every list that --with takes.
std::vector<std::string> outside_lists() {
  std::vector<std::string> lists;
  for (const OutsideName& one : outside_names()) {
    const std::vector<std::string> before = lists;
    lists.push_back(one.name);
    for (const std::string& shorter : before) lists.push_back(shorter + "," + one.name);
  }
  return lists;
}

// The words that an option may take, where they can be listed.
std::vector<std::string> words_for(const OptionHelp& option) {
  if (option.name == "with") return outside_lists();
  if (option.name == "plant") return known_faults();
  if (option.name == "mutate-oracle") return oracle::Oracle::mutations();
  if (option.name == "mutate-checker") return Checker::mutations();
  return option.choices;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.push_back(command.name);
  names.insert(names.end(), {"help", "completion", "man"});
  return names;
}

std::string bash_script() {
  std::ostringstream out;
  out << "# lockstep completion bash >~/.local/share/bash-completion/completions/lockstep\n"
         "_lockstep() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local options= values=\n"
         "  if ((COMP_CWORD == 1)); then\n"
         "    COMPREPLY=($(compgen -W '"
      << joined(command_names())
      << "' -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n"
         "    help) values='"
      << joined(command_names())
      << "' ;;\n"
         "    completion) values='bash zsh' ;;\n";
  for (const Command& command : commands()) {
    std::string options, values;
    for (const OptionHelp& one : command.options().all()) {
      options += (options.empty() ? "--" : " --") + one.name;
      const std::string words = joined(words_for(one));
      if (!words.empty()) values += "        --" + one.name + ") values='" + words + "' ;;\n";
    }
    out << "    " << command.name << ")\n      options='" << options << "'\n"
        << (values.empty() ? "" : "      case $before in\n" + values + "      esac\n")
        << "      ;;\n";
  }
  out << "  esac\n"
         "  if [[ -n $values ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
         "  elif [[ $current == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "  else\n"
         "    COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F _lockstep lockstep\n";
  return out.str();
}

// In a string between single quotes: the brackets and colons of _arguments, and the quote itself.
std::string for_zsh(const std::string& text) {
  std::string out;
  for (const char byte : escaped(text, "[]:\\"))
    out += byte == '\'' ? "'\\''" : std::string(1, byte);
  return out;
}

std::string zsh_script() {
  std::ostringstream out;
  out << "#compdef lockstep\n"
         "# lockstep completion zsh >_lockstep, in a folder of $fpath\n"
         "_lockstep() {\n"
         "  local -a commands=(\n";
  for (const Command& command : commands())
    out << "    '" << for_zsh(command.name) << ":" << for_zsh(command.does) << "'\n";
  out << "    'help:what a command does'\n    'completion:a completion script'\n"
         "    'man:the manual page'\n"
         "  )\n"
         "  if ((CURRENT == 2)); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  ((CURRENT--))\n"
         "  case $command in\n"
         "    help) _describe command commands ;;\n"
         "    completion) _values shell bash zsh ;;\n";
  for (const Command& command : commands()) {
    out << "    " << command.name << ")\n      _arguments";
    for (const OptionHelp& one : command.options().all()) {
      out << " \\\n        '--" << one.name << (one.takes_value ? "=" : "") << "["
          << for_zsh(one.help) << "]";
      const std::string words = joined(words_for(one));
      if (!words.empty()) {
        out << ":" << one.name << ":(" << words << ")";
      } else if (one.takes_value) {
        out << ":" << one.name << ":_files";
      }
      out << "'";
    }
    out << " \\\n        '*:file:_files' ;;\n";
  }
  out << "  esac\n}\n_lockstep \"$@\"\n";
  return out.str();
}

// A line of text in troff: a hyphen that is typed, and no line that begins like a request.
std::string for_man(const std::string& text) {
  std::string out;
  std::istringstream lines(escaped(text, "\\"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && (line[0] == '.' || line[0] == '\'')) out += "\\&";
    for (const char byte : line) out += byte == '-' ? "\\-" : std::string(1, byte);
    out += "\n";
  }
  return out;
}

void write_command(std::ostringstream& out, const Options& options) {
  out << ".SS lockstep " << for_man(options.command() + " " + options.synopsis())
      << for_man(options.summary());
  for (const OptionHelp& one : options.all()) {
    out << ".TP\n.B ";
    if (one.letter != 0) out << "\\-" << one.letter << ", ";
    out << "\\-\\-" << for_man(one.name + (one.takes_value ? " VALUE" : "")) << for_man(one.help);
    if (!one.default_value.empty()) out << for_man("Default: " + one.default_value + ".");
  }
  if (options.examples().empty()) return;
  out << ".PP\nExamples:\n";
  for (const Options::Example& one : options.examples())
    out << ".TP\n.B " << for_man(one.line) << for_man(one.does);
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  throw RequestError("completion knows no " + shell + "; it takes bash or zsh");
}

std::string manual_page() {
  std::ostringstream out;
  out << ".TH LOCKSTEP 1 \"\" \"lockstep " << version() << "\" \"User Commands\"\n"
      << ".SH NAME\nlockstep \\- a training engine with CUDA graphs, and an oracle that it must "
         "equal bit for bit\n"
      << ".SH SYNOPSIS\n.B lockstep\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fIFILE\\fR...]\n"
      << ".SH DESCRIPTION\n"
      << for_man(
             "Scenario files (YAML) say what is trained and with which machinery. The engine and "
             "an independent oracle run them side by side, and every loss, gradient and weight is "
             "compared bit for bit. Files, exit statuses and fields of reports are those of "
             "docs/cli.md, keys those of docs/scenario-reference.md.")
      << ".SH COMMANDS\n";
  for (const Command& command : commands()) write_command(out, command.options());
  out << ".SH EXIT STATUS\n" << for_man(kExitStatuses);
  return out.str();
}

}  // namespace lockstep
