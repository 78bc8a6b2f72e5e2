package example;

import headrace.v1.AgentDelta;
import headrace.v1.AgentServiceGrpc;
import headrace.v1.AgentServiceGrpc.AgentServiceBlockingStub;
import headrace.v1.AttachRequest;
import headrace.v1.CancelRequest;
import headrace.v1.QueryRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;

/**
 * Asks an agent over gRPC, reads its events as they come, attaches again when the stream is cut; or cancels at the first
 * word.
 *
 * <pre>
 * mvn -q compile exec:java -Dexec.args='127.0.0.1:7001 assistant "What is the weather in Paris?"'
 * mvn -q compile exec:java -Dexec.args='127.0.0.1:7001 writer "A long story" cancel'
 * </pre>
 */
public final class Main {
  public static void main(String[] args) throws InterruptedException {
    ManagedChannel channel = Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
    try {
      boolean isCancelled = args.length > 3 && args[3].equals("cancel");
      Fold state = ask(AgentServiceGrpc.newBlockingStub(channel), args[1], args[2], isCancelled);
      System.out.println("answer: " + state.answer());
      switch (state.end.getPayloadCase()) {
        case RUN_COMPLETE -> System.out.println("end: complete, " + state.end.getRunComplete().getFinishReason());
        case RUN_CANCEL -> System.out.println("end: cancelled");
        default -> System.out.println("end: failed, " + state.end.getRunError().getError().getMessage());
      }
    } finally {
      channel.shutdownNow();
    }
  }

  /** Reads a run to its end. */
  private static Fold ask(AgentServiceBlockingStub agents, String agentKey, String message, boolean isCancelled)
      throws InterruptedException {
    Fold state = new Fold();
    Iterator<AgentDelta> stream =
        agents.query(QueryRequest.newBuilder().setAgentKey(agentKey).setMessage(message).build());
    while (true) {
      try {
        while (stream.hasNext()) {
          AgentDelta event = stream.next();
          state.apply(event);
          if (isCancelled && event.hasContentDelta()) {
            isCancelled = false;
            agents.cancel(CancelRequest.newBuilder().setRunId(state.runId).build());
          }
        }
      } catch (StatusRuntimeException error) {
        if (error.getStatus().getCode() != Status.Code.UNAVAILABLE || state.runId.isEmpty()) {
          throw error;
        }
      }
      if (state.end != null) {
        return state;
      }
      // The stream was cut or the server restarts, and the run goes on: read on behind what was read.
      Thread.sleep(1000);
      stream =
          agents.attach(AttachRequest.newBuilder().setRunId(state.runId).setLastSeq(state.lastSeq).build());
    }
  }
}
