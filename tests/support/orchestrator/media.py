"""Pictures in results of tools."""

from headrace.v1 import llm_pb2, tools_pb2
from tests.support.orchestrator.suite import Suite

GIF = b"GIF89a\x02\x00\x03\x00" + bytes(20)


def give_pictures(suite: Suite, *capabilities: str, **files: bytes) -> None:
    """Let the tool return these files as pictures, and set the model's capabilities."""
    suite.llm.models = [llm_pb2.ModelInfo(model="m", capabilities=capabilities)]
    suite.tools.files = {f"outputs/{name}.gif": data for name, data in files.items()}
    result = tools_pb2.ToolOutcome(ok=True, result="[image/gif]", shown_paths=sorted(suite.tools.files))
    suite.tools.plays["look"] = [[tools_pb2.ToolDelta(result=result)]]
