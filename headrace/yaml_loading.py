"""Loads YAML written by users: every problem is a single ValueError, and tags are not executed."""

from __future__ import annotations

import yaml


def load_yaml(text: bytes | str) -> object:
    """Return the value of a YAML text; None for an empty one.

    Raises:
        ValueError: The text is invalid. The one-line message names problem and place, without quoting the text, which
            may contain secrets.
    """
    try:
        return yaml.safe_load(text)
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
