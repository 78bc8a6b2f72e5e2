"""The tools that a definition names, each with its field."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from services.orchestrator.agents.definition.agent import Definition


def list_tool_names(agent: Definition) -> Iterator[tuple[str, str]]:
    """Yield field and name of each tool in any list of the definition."""
    plan = agent.plan_execute
    sections = {
        "": agent,
        "plain.": agent.plain,
        "react.": agent.react,
        "planExecute.plan.": plan and plan.plan,
        "planExecute.execute.": plan and plan.execute,
        "planExecute.summary.": plan and plan.summary,
        "custom.": agent.custom,
        **{f"custom.stages.{name}.": own for name, own in (agent.custom.stages if agent.custom else {}).items()},
    }
    for path, section in sections.items():
        config = section.tool_config if section is not None else None
        lists: dict[str, Collection[str]] = (
            {"backends": config.backends, "frontends": config.frontends, "actions": config.actions} if config else {}
        )
        for kind, names in lists.items():
            yield from number_names(f"{path}toolConfig.{kind}", names)


def number_names(field: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((f"{field}.{at}", name) for at, name in enumerate(names))
