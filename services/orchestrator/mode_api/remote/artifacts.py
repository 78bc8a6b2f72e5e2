"""A remote task's artifacts as one text, whose end is known without reading the whole again."""

from __future__ import annotations

import orjson
from google.protobuf import json_format

from headrace.a2a import a2a_pb2

BETWEEN = "\n\n"
"""What stands between two artifacts."""


class Artifacts:
    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._data: dict[str, list[str]] = {}
        self.left_out = 0
        """Parts that are bytes, which an answer has no place for."""

    def replace_all(self, artifacts: list[a2a_pb2.Artifact]) -> None:
        self._texts.clear()
        self._data.clear()
        for artifact in artifacts:
            self._put(artifact, append=False)

    def take(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> str | None:
        """Return what the text has more behind its end; None where it is to be compared as a whole."""
        artifact_id, artifact = update.artifact.artifact_id, update.artifact
        is_more = update.append and artifact_id in self._texts and artifact_id == next(reversed(self._texts))
        is_text = bool(self._texts.get(artifact_id)) and all(part.HasField("text") for part in artifact.parts)
        self._put(artifact, append=update.append)
        return "".join(part.text for part in artifact.parts) if is_more and is_text else None

    def join(self) -> str:
        """Return the whole text; of an artifact that has none, its data as JSON."""
        found = ("".join(texts) or "\n".join(self._data[artifact_id]) for artifact_id, texts in self._texts.items())
        return BETWEEN.join(text for text in found if text)

    def _put(self, artifact: a2a_pb2.Artifact, *, append: bool) -> None:
        if not append or artifact.artifact_id not in self._texts:
            self._texts[artifact.artifact_id], self._data[artifact.artifact_id] = [], []
        texts, data = self._texts[artifact.artifact_id], self._data[artifact.artifact_id]
        for part in artifact.parts:
            match part.WhichOneof("content"):
                case "data":
                    data.append(dump_data(part))
                case "raw":
                    self.left_out += 1
                case _:
                    texts.append(read_text(part))


def read_text(part: a2a_pb2.Part) -> str:
    """Return a part's text, or a link to its file."""
    return f"[{part.filename or part.url}]({part.url})" if part.HasField("url") else part.text


def dump_data(part: a2a_pb2.Part) -> str:
    """Return a part's data as JSON text, whole numbers as such."""
    value = json_format.MessageToDict(part.data)
    return orjson.dumps(_restore(value), option=orjson.OPT_SORT_KEYS).decode()


def _restore(value: object) -> object:
    """Return data with whole numbers for what protobuf has made floating-point ones of."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _restore(one) for key, one in value.items()}
    return [_restore(one) for one in value] if isinstance(value, list) else value


def join_message(message: a2a_pb2.Message) -> str:
    """Return a message's text; of one that has none, its data as JSON."""
    texts = [read_text(part) for part in message.parts if part.HasField("text") or part.HasField("url")]
    data = [dump_data(part) for part in message.parts if part.HasField("data")]
    return "".join(texts) or "\n".join(data)
