"""The web tool or the chart for a question, and answers to the research tools' prompts.

Prompts are recognized by words such as JSON array, report or Question.
"""

from __future__ import annotations

import re

import orjson

from services.simulator.model_request import ModelRequest

ARRAY, OBJECT, REPORT = "a JSON array", "a JSON object", "You write a report"

SUBJECT = re.compile(r"^(?:Question|Task): (.+)$", re.MULTILINE)
DOCUMENT = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)

PLACEABLE = re.compile(r"^- (outputs/\S+)$", re.MULTILINE)
"""A file that may be placed, according to the report tool."""

URL = re.compile(r"https?://[^\s)>\]]+")
WISHES = {
    "deep_search": re.compile(r"\bresearch\b|\binvestigate\b|\bcompare\b|研究|调研", re.IGNORECASE),
    "report": re.compile(r"\breport\b|\bslides\b|\bpdf\b|报告|幻灯片", re.IGNORECASE),
    "web_search": re.compile(r"\bsearch\b|\blook up\b|\bread up\b|\bnews\b|\blatest\b|搜索|新闻", re.IGNORECASE),
}
"""Tools by words that ask for them, in the order to try."""

VERB = re.compile(r"^(?:please\s+)?(?:search|look up|read up|research|investigate)(?:\s+(?:for|on))?\s+", re.IGNORECASE)

READ = re.compile(r"\bread up\b", re.IGNORECASE)
"""Words that request reading the best hit of a search."""

FILE_TYPES = {"ppt": ("slides", "ppt", "幻灯片"), "pdf": ("pdf",), "markdown": ("markdown",)}
"""Types of reports; any other is a web page."""

SUBJECT_CHARS_MAX = 100
DOCUMENTS_MAX = 6

COMMAND = re.compile(r"`([^`]+)`")
WISH = re.compile(r"\bcharts?\b|\bplots?\b|图表", re.IGNORECASE)
VALUE = re.compile(r"([^\W\d_][\w ]*?)\s*[:=]?\s+(-?\d+(?:\.\d+)?)")
"""A name and its number: "Paris 53, Rome 87"."""

FALLBACK = (("Paris", "53"), ("Rome", "87"), ("Oslo", "60"))
VALUES_MAX = 12

CODE = """import pandas
import matplotlib.pyplot as plt

frame = pandas.DataFrame({values}, columns=["name", "value"])
frame.to_csv("outputs/values.csv", index=False)
frame.plot.bar(x="name", y="value", legend=False, rot=0, color="#1f5f8b")
plt.tight_layout()
plt.savefig("outputs/chart.png", dpi=150)
plt.close()
frame.describe()
"""


def answer_tool_question(request: ModelRequest) -> str | None:
    """Answer a tool's question; None for any other request."""
    if request.tools:
        return None
    if ARRAY in request.system:
        subject = _find_subject(request.text)
        return orjson.dumps([subject, f"history of {subject}"]).decode()
    if OBJECT in request.system:
        return '{"enough": true}'
    return _write_report(request.text) if REPORT in request.system else None


def choose_web_call(request: ModelRequest) -> tuple[str, dict[str, str]] | None:
    """Choose the call for the question."""
    if (url := URL.search(request.text)) and "fetch_web" in request.tools:
        return "fetch_web", {"url": url[0].rstrip(".,;?!")}
    for name, pattern in WISHES.items():
        if name not in request.tools or not pattern.search(request.text):
            continue
        if name == "report":
            text = request.text.lower()
            types = (kind for kind, names in FILE_TYPES.items() if any(name in text for name in names))
            return name, {"task": request.text, "fileType": next(types, "html")}
        return name, {"query": VERB.sub("", request.text)}
    return None


def choose_page(request: ModelRequest) -> tuple[str, dict[str, str]] | None:
    """Choose to read the best hit of a search, if the question asks for it."""
    found = next((result.content for result in request.results if result.name == "web_search"), "")
    if "fetch_web" not in request.tools or not READ.search(request.text) or not (url := URL.search(found)):
        return None
    return "fetch_web", {"url": url[0]}


def choose_report(request: ModelRequest) -> tuple[str, dict[str, str]] | None:
    """Choose to create the report that the question asks for, after its code has run."""
    has_run = any(result.name == "python" for result in request.results)
    wish = WISHES["report"]
    if not has_run or "report" not in request.tools or not wish.search(request.text):
        return None
    text = request.text.lower()
    types = (kind for kind, names in FILE_TYPES.items() if any(name in text for name in names))
    return "report", {"task": request.text, "fileType": next(types, "html")}


def _write_report(text: str) -> str:
    subject = _find_subject(text)
    points = [f"- {title} [{number}]" for number, title in DOCUMENT.findall(text)[:DOCUMENTS_MAX]]
    files = [f"![{path.rpartition('/')[2]}]({path})" for path in PLACEABLE.findall(text)[:DOCUMENTS_MAX]]
    placed = "\n\n".join(["## Figures", *files, ""]) if files else ""
    points = points or ["- the task gives the facts", "- the simulated model adds none"]
    return "\n".join(
        [
            f"# {subject}",
            "",
            "This report was written by the simulated model.",
            "",
            "## Findings",
            "",
            *points,
            "",
            placed,
        ]
    )


def _find_subject(text: str) -> str:
    match = SUBJECT.search(text)
    return (match[1] if match else text)[:SUBJECT_CHARS_MAX].strip(" ?!.")


def choose_python_call(request: ModelRequest) -> tuple[str, dict[str, str]] | None:
    """Choose to run the question's own code, or to draw a chart of its numbers."""
    if "python" not in request.tools:
        return None
    if command := COMMAND.search(request.text):
        return "python", {"code": command[1]}
    if not WISH.search(request.text):
        return None
    _, _, listed = request.text.rpartition(" of ")
    values = [[name.removeprefix("and ").strip(), float(number)] for name, number in VALUE.findall(listed) or FALLBACK]
    return "python", {"code": CODE.format(values=orjson.dumps(values[:VALUES_MAX]).decode())}
