package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

// interruptedFailure is the error of a stream that ended before its run did.
var interruptedFailure = envelope.Failure{
	Status: http.StatusConflict, Reason: "INTERRUPTED", Retriable: true,
	Message: "the run's stream ended before the run did; attach to it, or ask again",
}

// answerRun answers with a run as one JSON object, for "stream": false. `content` is the final text: that of the run
// itself (no sub-agent, no plan task) after its last tool call.
func answerRun(w http.ResponseWriter, call grpc.ClientStream) {
	text, chatID := &finalText{blocks: map[string][]piece{}}, ""
	for {
		delta := new(headracev1.AgentDelta)
		if err := call.RecvMsg(delta); err != nil {
			if errors.Is(err, io.EOF) {
				failure := interruptedFailure
				failure.Details = map[string]string{"chatId": chatID}
				failure.Write(w)
				return
			}
			envelope.FromError(err).Write(w)
			return
		}
		text.add(delta)
		switch payload := delta.GetPayload().(type) {
		case *headracev1.AgentDelta_RunStart:
			chatID = payload.RunStart.GetChatId()
		case *headracev1.AgentDelta_RunComplete:
			envelope.WriteJSON(w, http.StatusOK, envelope.WrapData(encodeAnswer(payload.RunComplete, chatID, text.String())))
			return
		case *headracev1.AgentDelta_RunError:
			runFailure(payload.RunError).Write(w)
			return
		case *headracev1.AgentDelta_RunCancel:
			details := map[string]string{"runId": payload.RunCancel.GetRunId()}
			envelope.Failure{Status: 499, Reason: "CANCELLED", Message: "the run was cancelled", Details: details}.Write(w)
			return
		}
	}
}

func encodeAnswer(end *headracev1.RunComplete, chatID, text string) []byte {
	out := jsonform.AppendString([]byte(`{"runId":`), end.GetRunId())
	out = jsonform.AppendString(append(out, `,"chatId":`...), chatID)
	out = jsonform.AppendString(append(out, `,"content":`...), text)
	out = jsonform.AppendString(append(out, `,"finishReason":`...), end.GetFinishReason())
	out = append(append(out, `,"usage":`...), jsonform.Encode(end.GetUsage())...)
	return append(out, '}')
}

func runFailure(end *headracev1.RunError) envelope.Failure {
	failure := end.GetError()
	details := map[string]string{}
	_ = json.Unmarshal([]byte(failure.GetDetails()), &details) // details are an object of strings, or empty
	details["runId"] = end.GetRunId()
	return envelope.Failure{
		Status: envelope.StatusForReason(failure.GetCode()), Reason: failure.GetCode(), Message: failure.GetMessage(),
		Retriable: failure.GetRetriable(), Details: details,
	}
}

type piece struct {
	seq  uint64
	text string
}

// finalText holds the text blocks of a run since its last tool call.
type finalText struct {
	order  []string
	blocks map[string][]piece
}

func (t *finalText) add(delta *headracev1.AgentDelta) {
	if delta.SubagentId != nil || delta.TaskId != nil {
		return
	}
	switch payload := delta.GetPayload().(type) {
	case *headracev1.AgentDelta_ContentDelta:
		id := payload.ContentDelta.GetContentId()
		t.set(id, append(t.blocks[id], piece{delta.GetSeq(), payload.ContentDelta.GetDelta()}))
	case *headracev1.AgentDelta_ContentStart:
		t.set(payload.ContentStart.GetContentId(), nil)
	case *headracev1.AgentDelta_ContentSnapshot:
		t.set(payload.ContentSnapshot.GetContentId(), []piece{{delta.GetSeq(), payload.ContentSnapshot.GetText()}})
	case *headracev1.AgentDelta_AttemptReset:
		t.dropAfter(payload.AttemptReset.GetFromSeq())
	case *headracev1.AgentDelta_ToolStart, *headracev1.AgentDelta_ToolSnapshot,
		*headracev1.AgentDelta_ActionStart, *headracev1.AgentDelta_ActionSnapshot:
		t.order, t.blocks = nil, map[string][]piece{}
	}
}

func (t *finalText) set(id string, pieces []piece) {
	if _, known := t.blocks[id]; !known {
		t.order = append(t.order, id)
	}
	t.blocks[id] = pieces
}

func (t *finalText) dropAfter(seq uint64) {
	for id, pieces := range t.blocks {
		var kept []piece
		for _, one := range pieces {
			if one.seq <= seq {
				kept = append(kept, one)
			}
		}
		t.blocks[id] = kept
	}
}

func (t *finalText) String() string {
	var out []byte
	for _, id := range t.order {
		for _, one := range t.blocks[id] {
			out = append(out, one.text...)
		}
	}
	return string(out)
}
