"""Prints the OpenAPI document of the contract, which the Makefile writes to build/openapi.json."""

import sys

import orjson

from services.facade.openapi.document import build_contract_document

sys.stdout.buffer.write(orjson.dumps(build_contract_document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
