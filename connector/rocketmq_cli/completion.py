"""`rmq completion`: the verbs and options of the command line, as a shell completes them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

_BASH = """\
# rmq completion bash > ~/.local/share/bash-completion/completions/rmq
_rmq() {{
  local path="" word words="" current=${{COMP_WORDS[COMP_CWORD]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $word" in {paths}) path="$path $word" ;; esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ ${{#COMPREPLY[@]}} -eq 0 ]; then COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -o filenames -F _rmq rmq
"""
_ZSH = """\
# rmq completion zsh > ~/.zfunc/_rmq, with ~/.zfunc in fpath; or: source <(rmq completion zsh)
autoload -U +X bashcompinit && bashcompinit
"""
_FISH = "# rmq completion fish > ~/.config/fish/completions/rmq.fish\ncomplete -c rmq -f\n"


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `completion`."""
    parser = verbs.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Prints a script that completes verbs and options.",
        epilog="example: source <(rmq completion bash)",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=_complete)


def _complete(args: argparse.Namespace) -> int:
    from rocketmq_cli.command_line import make_parser

    words = dict(walk(make_parser()))
    if args.shell == "fish":
        print(_FISH + "\n".join(_fish(words)))
        return 0
    paths = "|".join(f'"{path}"' for path in words if path)
    cases = "\n".join(
        f'    "{path}") words="{" ".join(known)}" ;;' for path, known in words.items()
    )
    print((_ZSH if args.shell == "zsh" else "") + _BASH.format(paths=paths, cases=cases), end="")
    return 0


def walk(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """What may follow each path of verbs; a path is ` topic create`, the first one empty."""
    known: list[str] = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below.update(action.choices)
            known += action.choices
        else:
            known += [option for option in action.option_strings if option.startswith("--")]
            known += [str(choice) for choice in action.choices or () if not action.option_strings]
    yield path, known
    for verb, leaf in below.items():
        yield from walk(leaf, f"{path} {verb}")


def _fish(words: dict[str, list[str]]) -> Iterator[str]:
    for path, known in words.items():
        seen = path.split()
        when = " ".join(f"__fish_seen_subcommand_from {verb};" for verb in seen)
        others = " ".join(word for word in known if not word.startswith("-"))
        condition = " and ".join(part for part in when.split("; ") if part).rstrip(";")
        if not seen:
            condition = "__fish_use_subcommand"
        elif others:
            condition += f"; and not __fish_seen_subcommand_from {others}"
        condition = condition.replace(" and ", "; and ") if "; and" not in condition else condition
        if others:
            yield f"complete -c rmq -n '{condition}' -a '{others}'"
        for option in known:
            if option.startswith("--"):
                yield f"complete -c rmq -n '{condition}' -l {option[2:]}"
