"""Data work: the code of a chart of the numbers in a question, and the report that shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from services.simulator.requests.model_request import ModelRequest

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
