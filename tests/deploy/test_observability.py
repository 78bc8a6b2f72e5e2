"""Alerts and dashboard are valid for Prometheus, and use only metrics and labels that the code defines."""

import importlib
import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from headrace import errors
from tests.deploy.manifests import CHART, needs_go, of_kind, pods

ROOT = Path(__file__).parents[2]
ALERTS = CHART / "files" / "alerts.yaml"
PROMQL = Path(__file__).parent / "promql"
"""A Go program of its own: Prometheus' parsers."""

COMPILE_TIMEOUT_S = 1200.0
"""The first use compiles the program."""

SCRAPED = {"namespace", "pod"}
"""Labels that Prometheus adds to the metrics of a pod."""

FROM_ELSEWHERE = {
    "up",
    "process_open_fds",
    "process_max_fds",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}
"""Metrics of Prometheus itself, and those of a process that its client exports."""

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "deploy" / "observability" / "dashboard.json").read_text())


@cache
def list_defined_metrics() -> dict[str, set[str]]:
    """Return the labels of each metric that a service declares, by each of its names in Prometheus."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "services").rglob("*.py")):
        if "prometheus_client" in path.read_text():
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for metric in vars(module).values():
                if isinstance(metric, MetricWrapperBase):
                    found |= names_and_labels(metric)
    return found


def names_and_labels(metric: MetricWrapperBase) -> dict[str, set[str]]:
    (family,) = metric.describe()
    labels = set(metric._labelnames)  # pyright: ignore[reportPrivateUsage] - nothing public tells them
    ends = SUFFIXES[family.type]
    return {family.name + end: labels | ({"le"} if end == "_bucket" else set()) for end in ends}


def list_used_metrics() -> dict[str, set[str]]:
    """Return the metrics that alerts and dashboard use, with their labels."""
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    command = ["go", "run", ".", str(ALERTS)]
    lines = "\n".join(expressions).replace("$namespace", "headrace")
    done = subprocess.run(
        command, cwd=PROMQL, input=lines, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: set(labels) for name, labels in json.loads(done.stdout).items()}


@pytest.mark.nightly
@needs_go
def test_used_metrics_and_labels_are_defined_by_the_code() -> None:
    for name, labels in list_used_metrics().items():
        assert name in FROM_ELSEWHERE | list_defined_metrics().keys(), name
        assert labels <= list_defined_metrics().get(name, set()) | SCRAPED, name


@pytest.mark.nightly
@needs_go
def test_alerts_fire_as_their_rule_tests_expect() -> None:
    done = subprocess.run(
        ["go", "test", "-count=1", "."],
        cwd=PROMQL,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_go
def test_autoscalers_use_metrics_of_the_code_that_the_documented_adapter_exports() -> None:
    metrics = [
        metric["pods"]["metric"]
        for scaler in of_kind("default", "HorizontalPodAutoscaler").values()
        for metric in scaler["spec"]["metrics"]
        if metric["type"] == "Pods"
    ]
    for metric in metrics:
        assert (
            metric.get("selector", {"matchLabels": {}})["matchLabels"].keys() <= list_defined_metrics()[metric["name"]]
        )
    (names,) = re.findall(r'seriesQuery: .*__name__=~"(.*?)"', (ROOT / "docs" / "operating" / "install.md").read_text())
    assert [metric["name"] for metric in metrics if re.fullmatch(names, metric["name"]) is None] == []


@needs_go
def test_the_prometheus_operator_gets_the_alerts_and_scrapes_every_pod_once() -> None:
    (rule,) = of_kind("observed", "PrometheusRule").values()
    assert [item["alert"] for item in rule["spec"]["groups"][0]["rules"]] == [item["alert"] for item in RULES]
    # Pods of others in the namespace, which the operator scrapes too, must not be matched.
    wide = [item["expr"] for item in rule["spec"]["groups"][0]["rules"] if 'namespace="headrace"' in item["expr"]]
    assert wide
    for expression in wide:
        assert expression.count('namespace="headrace"') == expression.count('namespace="headrace", pod=~"headrace-.*"')
    (monitor,) = of_kind("observed", "ServiceMonitor").values()
    assert rule["metadata"]["labels"]["release"] == monitor["metadata"]["labels"]["release"] == "prometheus"
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (port,) = (endpoint["port"] for endpoint in monitor["spec"]["endpoints"])
    read = [
        name
        for service in of_kind("observed", "Service").values()
        if wanted <= service["metadata"]["labels"].items()
        and port in {item["name"] for item in service["spec"]["ports"]}
        for name, pod in pods("observed").items()
        if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    ]
    assert sorted(read) == sorted(pods("observed"))
    for pod in pods("observed").values():
        assert port in {item["name"] for item in pod["spec"]["containers"][0]["ports"]}
        assert "annotations" not in pod["metadata"], "the pod would be scraped twice"


def test_every_alert_links_to_a_section_of_the_runbook() -> None:
    text = (ROOT / "docs" / "operating" / "when-it-breaks.md").read_text()
    headings = {
        re.sub(r"[^a-z -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", text, re.M)
    }
    for rule in RULES:
        page, _, heading = rule["annotations"]["runbook"].partition("#")
        assert (page, heading in headings) == ("docs/operating/when-it-breaks.md", True), rule["alert"]


def test_alerts_about_outcomes_name_existing_error_reasons() -> None:
    reasons = {value.reason for value in vars(errors).values() if is_error(value)}
    named = [
        name for rule in RULES for text in re.findall(r'outcome=~"([^"]*)"', rule["expr"]) for name in text.split("|")
    ]
    assert named
    assert set(named) <= reasons


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, errors.HeadraceError) and value is not errors.HeadraceError


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
