package example;

import headrace.v1.AgentDelta;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The state of a run after the events so far. A start or a snapshot replaces a block, a delta appends to it, and an
 * attempt.reset drops the blocks of its scope that began after its fromSeq: the same object reads on after attaching again.
 */
final class Fold {
  private record Scope(String subagent, String task) {}

  private record Block(long seq, Scope scope, StringBuilder text, boolean isAnswer, boolean isCall) {}

  private static final Scope RUN = new Scope("", "");

  private final Map<String, Block> blocks = new LinkedHashMap<>();
  String runId = "";
  long lastSeq;

  /** The terminal event; null while the run goes on. */
  AgentDelta end;

  /** The run's answer so far: the text behind its last call. */
  String answer() {
    StringBuilder answer = new StringBuilder();
    for (Block block : blocks.values()) {
      if (block.isCall && block.scope.equals(RUN)) {
        answer.setLength(0);
      } else if (block.isAnswer) {
        answer.append(block.text);
      }
    }
    return answer.toString();
  }

  /** Takes the next event; unknown ones change nothing. */
  void apply(AgentDelta event) {
    lastSeq = Math.max(lastSeq, event.getSeq());
    Scope scope = new Scope(event.getSubagentId(), event.getTaskId());
    switch (event.getPayloadCase()) {
      case RUN_START -> {
        if (!event.getRunStart().getRunId().equals(runId)) { // the next run of a chat's history
          runId = event.getRunStart().getRunId();
          lastSeq = event.getSeq();
          end = null;
          blocks.clear();
        }
      }
      case CONTENT_START -> {
        var start = event.getContentStart();
        boolean isAnswer = start.hasIsAnswer() ? start.getIsAnswer() : scope.equals(RUN);
        open(event, start.getContentId(), "", isAnswer, false);
      }
      case CONTENT_SNAPSHOT -> {
        var snapshot = event.getContentSnapshot();
        boolean isAnswer = snapshot.hasIsAnswer() ? snapshot.getIsAnswer() : scope.equals(RUN);
        open(event, snapshot.getContentId(), snapshot.getText(), isAnswer, false);
      }
      case CONTENT_DELTA -> {
        Block block = blocks.get(event.getContentDelta().getContentId());
        if (block != null) {
          block.text.append(event.getContentDelta().getDelta());
        }
      }
      case TOOL_START -> open(event, event.getToolStart().getToolId(), "", false, true);
      case TOOL_SNAPSHOT -> open(event, event.getToolSnapshot().getToolId(), "", false, true);
      case ATTEMPT_RESET -> {
        long fromSeq = event.getAttemptReset().getFromSeq();
        blocks.values().removeIf(block -> block.scope.equals(scope) && block.seq > fromSeq);
      }
      case RUN_COMPLETE, RUN_CANCEL, RUN_ERROR -> end = event;
      default -> {}
    }
  }

  private void open(AgentDelta event, String id, String text, boolean isAnswer, boolean isCall) {
    Scope scope = new Scope(event.getSubagentId(), event.getTaskId());
    blocks.put(id, new Block(event.getSeq(), scope, new StringBuilder(text), isAnswer, isCall));
  }
}
