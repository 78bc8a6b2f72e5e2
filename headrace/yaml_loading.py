"""Loads YAML written by users: every problem is a single ValueError, and tags are not executed."""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                raise yaml.constructor.ConstructorError(problem="found a key twice", problem_mark=key.start_mark)
            keys.add((key.tag, str(key.value)))
        return node


# As in YAML 1.2: JSON has no dates, so 2026-01-31 without quotes is a text where a schema or a call has it.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: bytes | str) -> object:
    """Return the value of a YAML text; None for an empty one.

    A key that is there twice is refused: PyYAML would drop the first, such as a rule that denies.

    Raises:
        ValueError: The text is invalid. The one-line message names problem and place, without quoting the text, which
            may contain secrets.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        problem = ": ".join(filter(None, (error.context, error.problem)))
    except yaml.YAMLError as error:
        place, problem = "", " ".join(str(error).split())
    except RecursionError:
        place, problem = "", "nested too deeply"
    except Exception as error:
        # PyYAML does not catch its own conversion errors of dates, numbers and tags: `2020-13-45` raises
        # ValueError, `!!bool x` KeyError, `!!timestamp x` AttributeError.
        place, problem = "", f"a value is not of its type: {error}"
    raise ValueError(f"not valid YAML: {place}{problem}")
