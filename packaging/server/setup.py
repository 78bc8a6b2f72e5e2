"""The distribution headrace: the command line and the services. What they share with clients is headrace-client's."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]

setup(
    name="headrace",
    version=PROJECT["version"],
    description=PROJECT["description"],
    python_requires=PROJECT["requires-python"],
    install_requires=[f"headrace-client=={PROJECT['version']}", *PROJECT["dependencies"]],
    extras_require={extra: PROJECT["optional-dependencies"][extra] for extra in ("cloud", "data", "documents")},
    entry_points={"console_scripts": [f"{name} = {target}" for name, target in PROJECT["scripts"].items()]},
    package_dir={"": "../.."},
    packages=find_packages("../..", include=["headrace.cli*", "headrace.a2a*", "services*"]),
    package_data={
        package: files
        for package, files in PYPROJECT["tool"]["setuptools"]["package-data"].items()
        if package.startswith(("services.", "headrace.cli"))
    },
    options={"egg_info": {"egg_base": "."}},
)
