package gateway

import (
	"encoding/json"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
)

// runError is the only event of a stream that fails behind its headers and before its first event: it was silent for
// long, and has no run. What was to begin a run has none that the caller could find, so every failure is told. A stream
// of a known run is told to have failed only when coming back would not help: else there is no event (its payload is
// nil), the stream ends, and the caller attaches again.
func runError(asked proto.Message, failure envelope.Failure) *headracev1.AgentDelta {
	event := &headracev1.AgentDelta{Seq: 1, Timestamp: time.Now().UnixMilli()}
	end := &headracev1.RunError{Error: told(failure), Usage: &headracev1.Usage{}}
	if attach, ok := asked.(*headracev1.AttachRequest); ok {
		if failure.Retriable || !envelope.IsReason(failure.Reason) {
			return event
		}
		end.RunId = attach.GetRunId()
		event.Seq = min(attach.GetLastSeq(), math.MaxUint64-1) + 1
	}
	event.Payload = &headracev1.AgentDelta_RunError{RunError: end}
	return event
}

func told(failure envelope.Failure) *headracev1.Failure {
	told := &headracev1.Failure{Code: failure.Reason, Message: failure.Message, Retriable: failure.Retriable}
	if len(failure.Details) > 0 {
		details, _ := json.Marshal(failure.Details) // of strings it never fails
		told.Details = proto.String(string(details))
	}
	return told
}
