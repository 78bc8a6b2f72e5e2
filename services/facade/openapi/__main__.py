"""Prints the contract's own document, which deploy/gateway serves: `make gateway-openapi`."""

import sys

import orjson

from services.facade.openapi.document import contract_alone

sys.stdout.buffer.write(orjson.dumps(contract_alone(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
