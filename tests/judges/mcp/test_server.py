"""Our MCP server face, judged by all server scenarios of the official conformance program."""

from __future__ import annotations

from pathlib import Path

from tests.judges.mcp.harness import judge_server
from tests.support.suite import up
from tests.support.timing import within

NO_TOOL_OF_ITS = "calls a tool of the program's example server; our tools are agents"
TAKES_MESSAGE = "calls the first tool without arguments; an agent needs a message"
NO_HEADER_PARAMETERS = "needs a tool with x-mcp-header parameters; agents have none"
NO_RESOURCE_OF_ITS = "reads a resource of the program's example server; our resources are chats"
NO_PROMPT_OF_ITS = "gets a prompt of the program's example server; our prompts are agents' questions"
NOT_OFFERED = "needs completion, logging or subscriptions, which are optional and which our face does not declare"

EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    NOT_OFFERED: {
        "completion-complete": ("completion-complete",),
        "logging-set-level": ("logging-set-level",),
        "resources-subscribe": ("resources-subscribe",),
        "resources-unsubscribe": ("resources-unsubscribe",),
        "tools-call-with-logging": ("tools-call-with-logging",),
    },
    NO_TOOL_OF_ITS: {
        "elicitation-sep1034-defaults": ("elicitation-sep1034-general",),
        "elicitation-sep1330-enums": ("elicitation-sep1330-general",),
        "input-required-result-basic-elicitation": ("sep-2322-elicitation-incomplete",),
        "input-required-result-basic-list-roots": ("sep-2322-list-roots-incomplete",),
        "input-required-result-basic-sampling": ("sep-2322-sampling-incomplete",),
        "input-required-result-capability-check": ("sep-2322-respect-client-capabilities",),
        "input-required-result-ignore-extra-params": ("sep-2322-ignore-unexpected-params",),
        "input-required-result-missing-input-response": ("sep-2322-missing-response-rerequests",),
        "input-required-result-multi-round": ("sep-2322-multi-round-r1",),
        "input-required-result-multiple-input-requests": ("sep-2322-multiple-inputs-incomplete",),
        "input-required-result-request-state": ("sep-2322-request-state-incomplete",),
        "input-required-result-result-type": ("sep-2322-result-type-included",),
        "input-required-result-tampered-state": ("sep-2322-reject-tampered-state",),
        "json-schema-2020-12": ("json-schema-2020-12-tool-found",),
        "server-stateless": (
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-missing-capability-http-400",
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-server-no-log-without-loglevel",
        ),
        "tasks-capability-negotiation": ("sep-2663-server-rejects-undeclared-client", "tasks-per-request-meta-opt-in"),
        "tasks-dispatch-and-envelope": (
            "tasks-server-directed-creation-no-hint",
            "sep-2663-legacy-task-param-ignored",
            "tasks-immediate-result-shortcut",
            "tasks-result-type-complete-on-non-task-responses",
            "sep-2663-durable-create-strong-consistency",
        ),
        "tasks-lifecycle": (
            "tasks-sync-tool-call",
            "sep-2663-result-type-task-on-create",
            "sep-2663-tasks-get-status-working",
            "sep-2663-tasks-get-status-completed",
            "sep-2663-tool-error-uses-completed-status",
            "sep-2663-tasks-get-status-failed",
            "sep-2663-cancel-ack-empty-result",
            "tasks-cancel-terminal-idempotent-ack",
        ),
        "tasks-mrtr-composition": ("sep-2663-mrtr-synchronous-before-task-creation",),
        "tasks-mrtr-input": (
            "sep-2663-tasks-get-status-input-required",
            "tasks-mrtr-tasks-update-resumes",
            "tasks-mrtr-partial-fulfillment",
        ),
        "tasks-request-headers": (
            "tasks-headers-tolerate-mcp-method-on-tools-call",
            "sep-2663-routing-headers-accepted-on-tasks-get",
            "sep-2663-server-rejects-mismatched-mcp-name-on-tasks-get",
        ),
        "tasks-request-state-removal": ("tasks-request-state-removal-setup",),
        "tasks-required-task-error": ("sep-2663-server-returns-missing-capability-when-required",),
        "tasks-wire-fields": (
            "tasks-wire-field-renames",
            "tasks-no-early-ttl-expiry",
            "tasks-no-related-task-meta-on-inlined-result",
        ),
        "tools-call-audio": ("tools-call-audio",),
        "tools-call-elicitation": ("tools-call-elicitation",),
        "tools-call-embedded-resource": ("tools-call-embedded-resource",),
        "tools-call-error": ("tools-call-error",),
        "tools-call-image": ("tools-call-image",),
        "tools-call-mixed-content": ("tools-call-mixed-content",),
        "tools-call-sampling": ("tools-call-sampling",),
        "tools-call-simple-text": ("tools-call-simple-text",),
        "tools-call-with-progress": ("tools-call-with-progress",),
    },
    NO_HEADER_PARAMETERS: {
        "http-custom-header-server-validation": (
            "sep-2243-server-no-xmcp-tool",
            "sep-2243-server-decode-base64",
            "sep-2243-server-validate-param-match",
            "sep-2243-server-reject-invalid-param-chars",
            "sep-2243-server-reject-param-mismatch",
        ),
    },
    TAKES_MESSAGE: {
        "http-header-validation": ("sep-2243-server-accepts-whitespace-header-value",),
    },
    NO_PROMPT_OF_ITS: {
        "input-required-result-non-tool-request": ("sep-2322-non-tool-incomplete",),
        "prompts-get-embedded-resource": ("prompts-get-embedded-resource",),
        "prompts-get-simple": ("prompts-get-simple",),
        "prompts-get-with-args": ("prompts-get-with-args",),
        "prompts-get-with-image": ("prompts-get-with-image",),
    },
    NO_RESOURCE_OF_ITS: {
        "resources-read-binary": ("resources-read-binary",),
        "resources-read-text": ("resources-read-text",),
        "resources-templates-read": ("resources-templates-read",),
    },
}
"""The checks that fail, by why they cannot hold for a server of agents, and by their scenarios."""

SCENARIOS = 65


async def test_the_face_holds_the_protocol_but_for_what_the_example_server_has(tmp_path: Path) -> None:
    folders = ("--config-dir", "examples", "--data-dir", str(tmp_path / "data"))
    options = ("--simulate", "--simulate-port", "0", *folders)
    async with within(300), up(*options, HEADRACE_FACADE_PUBLISH="mcp", HEADRACE_DRAIN_S="0.2") as suite:
        failures = await judge_server(f"{suite.url}/mcp", tmp_path / "results")
    expected = {(name, check) for scenarios in EXPECTED.values() for name in scenarios for check in scenarios[name]}
    told = {(name, check): text for name, checks in failures.items() for check, text in checks.items()}
    assert {at: text for at, text in told.items() if at not in expected} == {}
    assert expected - told.keys() == set(), "these hold now: take them off the list"
    assert len(failures) == SCENARIOS
