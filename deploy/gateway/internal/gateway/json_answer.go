package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

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

// answerRun answers with a run as one JSON object, for "stream": false. `content` is its answer: the text of the run
// itself (no planner, no sub-agent, no plan task) after its last tool call.
func answerRun(w http.ResponseWriter, call grpc.ClientStream) {
	text, chatID := new(runText), ""
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
		text.apply(delta)
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
	if end.Output != nil {
		out = append(append(out, `,"output":`...), end.GetOutput()...)
	}
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

// block is a text block or a call of the run itself.
type block struct {
	id      string
	seq     uint64 // sequence number of the event that opened it
	isCall  bool
	isAside bool // a planner's text
	text    []byte
}

// runText folds a run's events into its final text, with the rules of headrace/runs/fold.py.
type runText struct{ blocks []block }

// apply takes the next event; a delta of a block that is not open changes nothing.
func (t *runText) apply(delta *headracev1.AgentDelta) {
	isOwn := delta.GetSubagentId() == "" && delta.GetTaskId() == ""
	switch payload := delta.GetPayload().(type) {
	case *headracev1.AgentDelta_ContentDelta:
		if i := t.index(payload.ContentDelta.GetContentId()); i >= 0 {
			t.blocks[i].text = append(t.blocks[i].text, payload.ContentDelta.GetDelta()...)
		}
	case *headracev1.AgentDelta_AttemptReset:
		if isOwn {
			fromSeq := payload.AttemptReset.GetFromSeq()
			t.blocks = slices.DeleteFunc(t.blocks, func(b block) bool { return b.seq > fromSeq })
		}
	default:
		if opened, ok := openedBlock(delta); ok && isOwn {
			t.open(opened)
		}
	}
}

// openedBlock returns the block that an event opens; ok is false for other events.
func openedBlock(delta *headracev1.AgentDelta) (opened block, ok bool) {
	seq := delta.GetSeq()
	switch payload := delta.GetPayload().(type) {
	case *headracev1.AgentDelta_ContentStart:
		start := payload.ContentStart
		return block{id: start.GetContentId(), seq: seq, isAside: isAside(start.IsAnswer)}, true
	case *headracev1.AgentDelta_ContentSnapshot:
		snapshot := payload.ContentSnapshot
		text := []byte(snapshot.GetText())
		return block{id: snapshot.GetContentId(), seq: seq, isAside: isAside(snapshot.IsAnswer), text: text}, true
	case *headracev1.AgentDelta_ToolStart:
		return block{id: payload.ToolStart.GetToolId(), seq: seq, isCall: true}, true
	case *headracev1.AgentDelta_ToolSnapshot:
		return block{id: payload.ToolSnapshot.GetToolId(), seq: seq, isCall: true}, true
	case *headracev1.AgentDelta_ActionStart:
		return block{id: payload.ActionStart.GetActionId(), seq: seq, isCall: true}, true
	case *headracev1.AgentDelta_ActionSnapshot:
		return block{id: payload.ActionSnapshot.GetActionId(), seq: seq, isCall: true}, true
	default:
		return block{}, false
	}
}

// isAside tells of a run's own text whether it is none of its answer; runs of earlier versions do not say.
func isAside(isAnswer *bool) bool { return isAnswer != nil && !*isAnswer }

// open adds a block, or replaces the one with its id.
func (t *runText) open(opened block) {
	if i := t.index(opened.id); i >= 0 {
		t.blocks[i] = opened
		return
	}
	t.blocks = append(t.blocks, opened)
}

// index returns the position of a block, or -1. It begins at the latest block, to which most deltas belong.
func (t *runText) index(id string) int {
	for i := len(t.blocks) - 1; i >= 0; i-- {
		if t.blocks[i].id == id {
			return i
		}
	}
	return -1
}

// String returns the answer: the text after the last call.
func (t *runText) String() string {
	var out []byte
	for _, b := range t.blocks {
		switch {
		case b.isCall:
			out = nil
		case !b.isAside:
			out = append(out, b.text...)
		}
	}
	return string(out)
}
