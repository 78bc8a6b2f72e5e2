package jsonform

import (
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// Event is one AgentDelta, ready to be sent.
type Event struct {
	Seq        uint64
	JSON       []byte
	IsTerminal bool
}

type payloadForm struct {
	// `"type":"content.delta",`
	head       string
	inSubagent bool
	inTask     bool
	isTerminal bool
}

var payloads = sync.OnceValue(func() map[protoreflect.FieldNumber]payloadForm {
	oneof := (&headracev1.AgentDelta{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")
	found := map[protoreflect.FieldNumber]payloadForm{}
	for i := range oneof.Fields().Len() {
		field := oneof.Fields().Get(i)
		kind := field.Message().Fields()
		name := strings.Replace(string(field.Name()), "_", ".", 1)
		found[field.Number()] = payloadForm{
			head: `,"type":"` + name + `",`,
			// The envelope's ids are not written where the payload says them itself.
			inSubagent: kind.ByName("subagent_id") == nil,
			inTask:     kind.ByName("task_id") == nil,
			isTerminal: name == "run.complete" || name == "run.cancel" || name == "run.error",
		}
	}
	return found
})

var payloadOneof = (&headracev1.AgentDelta{}).ProtoReflect().Descriptor().Oneofs().ByName("payload")

// EncodeEvent gives the flat object of `delta`; false when its payload is newer than this gateway, which cannot name it.
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
		out = out[:start-1] // no member: the comma of the head goes too
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
