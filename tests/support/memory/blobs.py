"""Blobs, and images among messages."""

import hashlib

from headrace.v1 import llm_pb2, memory_pb2
from tests.support.memory.messages import user
from tests.support.memory.writing import Memory, new_id, run_line, step_line

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
BLOB_ID = hashlib.sha256(PNG).hexdigest()


def make_image_step(*images: llm_pb2.ImagePart) -> memory_pb2.LogLine:
    return step_line(user("look", *(llm_pb2.ContentPart(image=image) for image in images)))


async def make_chat_with_blob(memory: Memory) -> str:
    """Make a chat with a blob and an ended run."""
    chat_id = new_id()
    await memory.put_blob(chat_id, PNG)
    _, run_id = await memory.begin(chat_id=chat_id)
    await memory.append(chat_id, run_id, run_line())
    return chat_id
