package gateway

import (
	"encoding/json"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
)

// buildRunError returns the only event of a stream that fails after its headers and before its first event. A query
// that fails then has no run that the caller could find, so every failure is sent. A stream of a known run sends only
// failures that attaching again cannot help; otherwise the event has no payload, and the stream ends so that the caller
// attaches again.
func buildRunError(request proto.Message, failure envelope.Failure) *headracev1.AgentDelta {
	event := &headracev1.AgentDelta{Seq: 1, Timestamp: time.Now().UnixMilli()}
	end := &headracev1.RunError{Error: encodeFailure(failure), Usage: &headracev1.Usage{}}
	if attach, ok := request.(*headracev1.AttachRequest); ok {
		if failure.Retriable || !envelope.IsKnownReason(failure.Reason) {
			return event
		}
		end.RunId = attach.GetRunId()
		event.Seq = min(attach.GetLastSeq(), math.MaxUint64-1) + 1
	}
	event.Payload = &headracev1.AgentDelta_RunError{RunError: end}
	return event
}

func encodeFailure(failure envelope.Failure) *headracev1.Failure {
	result := &headracev1.Failure{Code: failure.Reason, Message: failure.Message, Retriable: failure.Retriable}
	if len(failure.Details) > 0 {
		details, _ := json.Marshal(failure.Details) // a map of strings can always be encoded
		result.Details = proto.String(string(details))
	}
	return result
}
