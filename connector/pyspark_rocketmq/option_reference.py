"""The option table -> the reference page, in Markdown."""

from __future__ import annotations

from pyspark_rocketmq.option_table import DEFINITIONS, OptionDefinition


def reference_markdown() -> str:
    """Every option by group: name, value, default, who may use it, what it is for."""
    groups: dict[str, list[OptionDefinition]] = {}
    for definition in DEFINITIONS:
        groups.setdefault(definition.group, []).append(definition)
    parts = []
    for group, definitions in groups.items():
        rows = "\n".join(map(_row, definitions))
        parts.append(
            f"## {group[0].upper()}{group[1:]}\n\n"
            f"| option | takes | default | for | what it is for |\n|---|---|---|---|---|\n{rows}\n"
        )
    return "\n".join(parts)


def _row(definition: OptionDefinition) -> str:
    names = f"`{definition.name}`"
    if definition.aliases:
        names += " (" + ", ".join(f"`{alias}`" for alias in definition.aliases) + ")"
    uses = ", ".join(sorted(use.value for use in definition.uses))
    text = definition.help
    if definition.supported == ():
        text += " Not supported yet."
    elif definition.supported is not None:
        text += f" Only {', '.join(map(_shown, definition.supported))} so far."
    cells = (names, definition.kind.takes, _default(definition), uses, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(definition: OptionDefinition) -> str:
    return "" if definition.default in (None, ()) else _shown(definition.default)


def _shown(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
