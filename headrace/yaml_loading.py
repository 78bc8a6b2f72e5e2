"""Reads YAML that people write: whatever is wrong with it is one error, and no instruction in it is followed."""

from __future__ import annotations

import yaml


def load_yaml(text: bytes | str) -> object:
    """Return the value of a text, None of an empty one.

    Raises ValueError, in one line: what is wrong and where, without the lines around it, which may be secret.
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
        # PyYAML makes dates, numbers and tagged values without a look: `2020-13-45` is a ValueError there, `!!bool x` a
        # KeyError, `!!timestamp x` an AttributeError.
        place, problem = "", f"a value is not of its type: {error}"
    raise ValueError(f"not valid YAML: {place}{problem}")
