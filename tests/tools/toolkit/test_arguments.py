"""Arguments as models write them."""

from __future__ import annotations

import json
import time

import pytest

from services.tools.errors import ToolFailed
from services.tools.toolkit.arguments import compile_schema, parse_arguments

SCHEMA = compile_schema(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "list": {"type": "array", "items": {"enum": ["a", "b"]}},
                "text": {"type": "string", "pattern": "^(a+)+$"},
            },
            "required": ["n"],
            "additionalProperties": False,
        }
    )
)


def test_integers_of_any_size_survive() -> None:
    assert parse_arguments('{"n": 123456789012345678901234567890}', [SCHEMA]) == {"n": 123456789012345678901234567890}


@pytest.mark.parametrize(
    ("text", "path", "rule"),
    [
        ('{"n": "1"}', "$.n", "type"),
        ('{"n": 1.5}', "$.n", "type"),
        ("", "$", "required"),
        ('{"n": 1, "z": 2}', "$", "additionalProperties"),
        ('{"n": 1, "list": ["a", "c"]}', "$.list[1]", "enum"),
        ('{"n": 1, "text": "' + "a" * 100 + 'b"}', "$.text", "pattern"),
    ],
)
def test_a_violation_names_path_and_rule(text: str, path: str, rule: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_arguments(text, [SCHEMA])
    assert f" {path}: " in str(caught.value)
    assert f"(rule: {rule})" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "7",
        "[" * 100_000,
        '{"a":' * 64 + "{}" + "}" * 64,
        '{"n": NaN}',
        '{"n": 1, "text": "\\ud800"}',
        '{"n": ' + "9" * 5000 + "}",
        " " * 5_000_000,
        "\x00",
    ],
)
def test_what_is_no_json_object_is_a_failure_for_the_model(text: str) -> None:
    with pytest.raises(ToolFailed, match="invalid arguments"):
        parse_arguments(text, [SCHEMA])


@pytest.mark.parametrize("schema", ['{"type": "nonsense"}', '{"$ref": "http://127.0.0.1:9/x"}', '{"pattern": "("}'])
def test_a_schema_that_cannot_be_used_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_schema(schema)


def test_a_large_value_that_is_all_wrong_is_refused_at_once() -> None:
    text = json.dumps({"n": 1, "list": [1] * 300_000})
    began_s = time.process_time()
    with pytest.raises(ToolFailed, match=r"invalid arguments: \$\.list\[0\]: .* \(rule: enum\)$"):
        parse_arguments(text, [SCHEMA])
    assert time.process_time() - began_s < 1.5, "it took 4 s, and a gigabyte, to make a message of each item"


def test_all_that_is_wrong_with_a_small_value_is_told() -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_arguments('{"n": "1", "list": ["a", "c"], "z": 1}', [SCHEMA])
    assert [rule in str(caught.value) for rule in ("type", "enum", "additionalProperties")] == [True] * 3
