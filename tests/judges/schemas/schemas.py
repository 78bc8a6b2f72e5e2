"""JSON Schemas of other programs: zod's, pydantic's, and those of the official test suite."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.judges.environments import NODE, find_npm_environment, find_source
from tests.judges.schemas.pydantic_types import make_schemas

HERE = Path(__file__).parent

SUITES = ("draft7", "draft2020-12")
FILES = (
    "pattern.json",
    "patternProperties.json",
    "items.json",
    "prefixItems.json",
    "additionalItems.json",
    "format.json",
    "optional/ecmascript-regex.json",
    "optional/non-bmp-regex.json",
)
"""Files of the official suite whose schemas have patterns, formats, and tuples of both drafts."""


@cache
def load_schemas() -> dict[str, Any]:
    """Return all schemas by name."""
    return _load_zod() | make_schemas() | _load_suite()


def make_parameters(schema: Any) -> dict[str, Any]:
    """Return the schema of a tool with one argument; definitions stay where references find them."""
    definitions = {}
    if isinstance(schema, dict):
        definitions = {name: schema[name] for name in ("$schema", "$defs", "definitions") if name in schema}
        schema = {name: value for name, value in schema.items() if name not in definitions}
    return definitions | {"type": "object", "properties": {"value": schema}, "required": ["value"]}


def _load_zod() -> dict[str, Any]:
    environment = find_npm_environment("schemas", HERE / "package.json")
    program = [str(NODE), str(HERE / "zod_types.mjs"), str(environment)]
    return json.loads(subprocess.run(program, check=True, capture_output=True).stdout)


def _load_suite() -> dict[str, Any]:
    tests = find_source("json-schema-suite", HERE / "suite.txt") / "json" / "tests"
    schemas: dict[str, Any] = {}
    for suite in SUITES:
        for file in FILES:
            path = tests / suite / file
            for case in json.loads(path.read_text()) if path.exists() else ():
                schemas[f"{suite}/{file}: {case['description']}"] = case["schema"]
    return schemas
