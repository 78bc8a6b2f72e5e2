"""The distribution headrace-client: what a program needs that calls a server, and nothing of the server itself."""

import tomllib
from pathlib import Path

from setuptools import setup

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
NEEDED = ("googleapis-common-protos", "grpcio>", "protobuf")

setup(
    name="headrace-client",
    version=PROJECT["version"],
    description="Client of Headrace: gRPC services that run LLM agents and stream what they do",
    python_requires=PROJECT["requires-python"],
    install_requires=[requirement for requirement in PROJECT["dependencies"] if requirement.startswith(NEEDED)],
    package_dir={"": "../.."},
    packages=["headrace", "headrace.cassette", "headrace.runs", "headrace.sync", "headrace.v1"],
    package_data={"": ["*.pyi"], "headrace": ["py.typed"], "headrace.v1": ["comments.json"]},
    options={"egg_info": {"egg_base": "."}},
)
