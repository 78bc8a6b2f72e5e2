"""The schemas that Kubernetes publishes (api/openapi-spec/swagger.json of its Go module), made strict.

As published they let any further field pass, so that a misspelt one would do nothing, silently; here an object has the
fields that its schema names, and no others.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

APISERVER = Path(__file__).parents[2] / "trials" / "kube" / "apiserver"
"""A Go module of its own, which names the version of Kubernetes."""

DOWNLOAD_TIMEOUT_S = 120.0


@cache
def validator(api_version: str, kind: str) -> jsonschema_rs.Draft4Validator:
    """What checks objects of a kind. Raises KeyError for a kind that there is not."""
    definitions, names = _published()
    name = names[api_version, kind]
    return jsonschema_rs.Draft4Validator({"$ref": f"#/definitions/{name}", "definitions": definitions})


@cache
def _published() -> tuple[dict[str, Any], dict[tuple[str, str], str]]:
    """All definitions, strict, and their names by apiVersion and kind."""
    command = ["go", "mod", "download", "-json", "k8s.io/kubernetes"]
    done = subprocess.run(command, cwd=APISERVER, capture_output=True, timeout=DOWNLOAD_TIMEOUT_S, check=True)
    swagger = Path(json.loads(done.stdout)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    definitions = json.loads(swagger.read_bytes())["definitions"]
    names: dict[tuple[str, str], str] = {}
    for name, definition in definitions.items():
        for of in definition.get("x-kubernetes-group-version-kind", ()):
            names["/".join(filter(None, (of["group"], of["version"]))), of["kind"]] = name
        if "properties" in definition:
            definition["additionalProperties"] = False
        elif definition.get("format") == "int-or-string":
            definition["type"] = ["integer", "string"]
    return definitions, names
