package example;

import headrace.v1.AgentDelta;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/**
 * Folds each file of events in a folder, length-delimited as protobuf writes them, and writes what it came to beside it:
 * lines of runId, lastSeq and whether the run is over, then the answer. The cases that the readers in other languages are
 * held to come in this form.
 */
public final class FoldCases {
  public static void main(String[] args) throws IOException {
    List<Path> cases;
    try (Stream<Path> files = Files.list(Path.of(args[0]))) {
      cases = files.filter(file -> file.toString().endsWith(".events")).toList();
    }
    for (Path file : cases) {
      Fold state = new Fold();
      try (InputStream events = Files.newInputStream(file)) {
        for (AgentDelta event; (event = AgentDelta.parseDelimitedFrom(events)) != null; ) {
          state.apply(event);
        }
      }
      String header = state.runId + "\n" + state.lastSeq + "\n" + (state.end != null) + "\n";
      Files.writeString(Path.of(file + ".state"), header + state.answer());
    }
  }
}
