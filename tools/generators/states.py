"""The table and the diagram of the life cycle, for ``docs/explain/lifecycle.md``."""

from __future__ import annotations

from tenure.core.states import TRANSITIONS, State, diagram


def states() -> str:
    """Diagram first, then one line for each transition of ``core/states.py``."""
    lines = ["```mermaid", diagram().rstrip("\n"), "```", ""]
    lines += ["| from | event | to | when |", "| --- | --- | --- | --- |"]
    for row in TRANSITIONS:
        final = row.sources == {state for state in State if state.final}
        source = "any final state" if final else _names(row.sources)
        lines.append(f"| {source} | {row.event} | {_names(row.targets)} | {row.meaning} |")
    return "\n".join(lines)


def _names(states: frozenset[State]) -> str:
    return ", ".join(state for state in State if state in states) or "(removed)"


OUTPUTS = {"docs/explain/lifecycle.md#states": states}
