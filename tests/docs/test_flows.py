"""How many files a reader opens to follow a question. The check's step `generated` holds docs/flows.md to the code."""

from docs.generate.flows import trace_flow

SPINE_FILES_MAX = 14


def test_a_question_reaches_its_provider_through_few_files_of_the_orchestrator() -> None:
    files = {file for _, spine in trace_flow("question") for file, _ in spine}
    of_orchestrator = {file for file in files if file.startswith("services/orchestrator/")}
    assert 5 <= len(of_orchestrator) <= SPINE_FILES_MAX, sorted(of_orchestrator)
