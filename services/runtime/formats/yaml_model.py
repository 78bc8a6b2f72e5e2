"""Reads a YAML file's content into a pydantic model, and says all that is wrong with it."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from headrace.yaml_loading import load_yaml

M = TypeVar("M", bound=BaseModel)


def load_yaml_model(data: bytes, model: type[M]) -> M:
    """Return the model; an empty file is one without fields. Raises ValueError with a line `field: rule` a problem."""
    try:
        content = load_yaml(data)
        return model.model_validate({} if content is None else content)
    except ValidationError as error:
        found = error.errors(include_input=False)
        lines = [f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}" for problem in found]
        raise ValueError("\n".join(lines)) from error
