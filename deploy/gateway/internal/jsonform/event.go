package jsonform

import (
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// Event is an encoded AgentDelta.
type Event struct {
	Seq        uint64
	JSON       []byte
	IsTerminal bool
}

type payloadForm struct {
	// head is the beginning of the object, such as `"type":"content.delta",`.
	head       string
	inSubagent bool
	inTask     bool
	isTerminal bool
}

var payloads = sync.OnceValue(func() map[protoreflect.FieldNumber]payloadForm {
	oneof := (&headracev1.AgentDelta{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")
	result := map[protoreflect.FieldNumber]payloadForm{}
	for i := range oneof.Fields().Len() {
		field := oneof.Fields().Get(i)
		kind := field.Message().Fields()
		name := strings.Replace(string(field.Name()), "_", ".", 1)
		result[field.Number()] = payloadForm{
			head: `,"type":"` + name + `",`,
			// The ids of the event are left out where the payload has the same fields.
			inSubagent: kind.ByName("subagent_id") == nil,
			inTask:     kind.ByName("task_id") == nil,
			isTerminal: name == "run.complete" || name == "run.cancel" || name == "run.error",
		}
	}
	return result
})

var payloadOneof = (&headracev1.AgentDelta{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")

// EncodeEvent returns the flat object of an event; it returns false when its payload is newer than this gateway, which
// cannot name it.
func EncodeEvent(delta *headracev1.AgentDelta) (Event, bool) {
	reflected := delta.ProtoReflect()
	field := reflected.WhichOneof(payloadOneof)
	if field == nil {
		return Event{}, false
	}
	form := payloads()[field.Number()]
	out := make([]byte, 0, 256)
	out = append(out, `{"seq":`...)
	out = strconv.AppendUint(out, delta.GetSeq(), 10)
	out = append(out, form.head...)
	start := len(out)
	out = appendMembers(out, reflected.Get(field).Message())
	if len(out) == start {
		out = out[:start-1] // without members, the comma of the head is removed
	}
	if form.inSubagent && delta.SubagentId != nil {
		out = AppendString(append(out, `,"subagentId":`...), delta.GetSubagentId())
	}
	if form.inTask && delta.TaskId != nil {
		out = AppendString(append(out, `,"taskId":`...), delta.GetTaskId())
	}
	out = append(out, `,"timestamp":`...)
	out = strconv.AppendInt(out, delta.GetTimestamp(), 10)
	return Event{delta.GetSeq(), append(out, '}'), form.isTerminal}, true
}
