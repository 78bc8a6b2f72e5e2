// Package jsonform reads and writes the JSON form of the contract's messages, as the embedded facade and
// services/runtime/formats/json_form.py do: 64-bit integers are numbers, JSON fields keep their own text, and AgentDelta
// is the flat object of the event contract.
package jsonform

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// Done is the last frame of a stream of events, sent with the event that ends the run.
const Done = "data: [DONE]\n\n"

// oneLine removes line ends from JSON text. They are only blanks between tokens, and would end a line of an event.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

type fieldForm struct {
	field  protoreflect.FieldDescriptor
	prefix string
	rules  *headracev1.FieldRules
}

var forms sync.Map // protoreflect.FullName → []fieldForm

func findForms(descriptor protoreflect.MessageDescriptor) []fieldForm {
	if known, ok := forms.Load(descriptor.FullName()); ok {
		return known.([]fieldForm)
	}
	var result []fieldForm
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		rules, _ := proto.GetExtension(field.Options(), headracev1.E_Rules).(*headracev1.FieldRules)
		result = append(result, fieldForm{field, `"` + field.JSONName() + `":`, rules})
	}
	forms.Store(descriptor.FullName(), result)
	return result
}

// Split returns the JSON of the field with this name, and the other `"name":value,` pairs; without a name, the JSON of
// the message.
func Split(message proto.Message, name string) (data, others []byte) {
	if name == "" {
		return appendObject(nil, message.ProtoReflect()), nil
	}
	return splitMembers(nil, message.ProtoReflect(), name)
}

// splitMembers appends `"name":value,` for each field that is shown, other than the named one, whose value is `data`.
func splitMembers(out []byte, message protoreflect.Message, name string) (data, members []byte) {
	for _, form := range findForms(message.Descriptor()) {
		value := message.Get(form.field)
		switch isList := form.field.IsList(); {
		case name != "" && string(form.field.Name()) == name:
			data = appendValue(nil, form, value)
		case isList && form.rules.GetOmitEmpty() && value.List().Len() == 0, form.rules.GetJson() && value.String() == "":
		case isList, form.rules.GetJson(), !form.field.HasPresence(), message.Has(form.field):
			out = append(appendValue(append(out, form.prefix...), form, value), ',')
		}
	}
	return data, out
}

func appendObject(out []byte, message protoreflect.Message) []byte {
	if delta, isEvent := message.Interface().(*headracev1.AgentDelta); isEvent && delta.GetPayload() != nil {
		return appendEvent(out, delta)
	}
	out = append(out, '{')
	if message.Descriptor() != eventDescriptor { // else its payload is newer than this gateway
		_, out = splitMembers(out, message, "")
	}
	if out[len(out)-1] == ',' {
		out = out[:len(out)-1]
	}
	return append(out, '}')
}

func appendValue(out []byte, form fieldForm, value protoreflect.Value) []byte {
	switch {
	case form.rules.GetJson():
		return append(out, oneLine.Replace(value.String())...)
	case !form.field.IsList():
		return appendScalar(out, form.field.Kind(), value)
	}
	out = append(out, '[')
	for i := range value.List().Len() {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendScalar(out, form.field.Kind(), value.List().Get(i))
	}
	return append(out, ']')
}

func appendScalar(out []byte, kind protoreflect.Kind, value protoreflect.Value) []byte {
	switch kind {
	case protoreflect.StringKind:
		return appendString(out, value.String())
	case protoreflect.BoolKind:
		return strconv.AppendBool(out, value.Bool())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.AppendUint(out, value.Uint(), 10)
	case protoreflect.DoubleKind:
		return appendDouble(out, value.Float())
	case protoreflect.BytesKind:
		return append(base64.StdEncoding.AppendEncode(append(out, '"'), value.Bytes()), '"')
	case protoreflect.MessageKind:
		return appendObject(out, value.Message())
	default:
		return strconv.AppendInt(out, value.Int(), 10)
	}
}

// appendDouble writes a number as orjson does: 1.0, 0.00001, 1e-6, 1e+16.
func appendDouble(out []byte, value float64) []byte {
	switch size := math.Abs(value); {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return append(out, "null"...)
	case size != 0 && (size < 1e-5 || size >= 1e16):
		return append(out, strings.Replace(strconv.FormatFloat(value, 'e', -1, 64), "e-0", "e-", 1)...)
	case value == math.Trunc(value):
		return strconv.AppendFloat(out, value, 'f', 1, 64)
	default:
		return strconv.AppendFloat(out, value, 'f', -1, 64)
	}
}

var escapes = map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

// appendString writes text as orjson does: UTF-8 unchanged, control characters with their short escape if there is one.
func appendString(out []byte, text string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	start := 0
	for i := range len(text) {
		char := text[i]
		if char >= 0x20 && char != '"' && char != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		if start = i + 1; escapes[char] != "" {
			out = append(out, escapes[char]...)
		} else {
			out = append(out, '\\', 'u', '0', '0', hex[char>>4], hex[char&0xf])
		}
	}
	return append(append(out, text[start:]...), '"')
}

var (
	eventDescriptor = (&headracev1.AgentDelta{}).ProtoReflect().Descriptor()
	payloadOneof    = eventDescriptor.Oneofs().ByName("payload")
)

// Frame returns an event as a frame of Server-Sent Events; it is empty if the payload is newer than this gateway.
func Frame(delta *headracev1.AgentDelta) []byte {
	if delta.GetPayload() == nil {
		return nil
	}
	out := strconv.AppendUint(append(make([]byte, 0, 320), "id: "...), delta.GetSeq(), 10)
	out = append(appendEvent(append(out, "\nevent: message\ndata: "...), delta), "\n\n"...)
	switch delta.GetPayload().(type) {
	case *headracev1.AgentDelta_RunComplete, *headracev1.AgentDelta_RunCancel, *headracev1.AgentDelta_RunError:
		out = append(out, Done...)
	}
	return out
}

// appendEvent writes the flat object of an event. Its own ids are left out where the payload has the same fields.
func appendEvent(out []byte, delta *headracev1.AgentDelta) []byte {
	reflected := delta.ProtoReflect()
	field := reflected.WhichOneof(payloadOneof)
	out = strconv.AppendUint(append(out, `{"seq":`...), delta.GetSeq(), 10)
	out = append(out, `,"type":"`...)
	start := len(out)
	out = append(append(out, field.Name()...), `",`...)
	if dot := strings.IndexByte(string(field.Name()), '_'); dot >= 0 {
		out[start+dot] = '.'
	}
	_, out = splitMembers(out, reflected.Get(field).Message(), "")
	fields := field.Message().Fields()
	if delta.SubagentId != nil && fields.ByName("subagent_id") == nil {
		out = append(appendString(append(out, `"subagentId":`...), delta.GetSubagentId()), ',')
	}
	if delta.TaskId != nil && fields.ByName("task_id") == nil {
		out = append(appendString(append(out, `"taskId":`...), delta.GetTaskId()), ',')
	}
	return append(strconv.AppendInt(append(out, `"timestamp":`...), delta.GetTimestamp(), 10), '}')
}

// Decode fills message from a JSON body.
func Decode(body []byte, message proto.Message) error {
	if !utf8.Valid(body) {
		return errors.New("must be valid JSON in UTF-8")
	}
	return protojson.Unmarshal(quoteFields(body, message.ProtoReflect().Descriptor()), message)
}

// quoteFields makes a string of each JSON field's value, and gives an alias the field's own name; protojson does the rest.
func quoteFields(raw json.RawMessage, descriptor protoreflect.MessageDescriptor) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return raw
	}
	for _, form := range findForms(descriptor) {
		field, rules, name := form.field, form.rules, form.field.JSONName()
		if alias := members[rules.GetAlias()]; alias != nil && members[name] == nil && rules.GetAlias() != "" {
			members[name] = alias
			delete(members, rules.GetAlias())
		}
		var items []json.RawMessage
		switch value := members[name]; {
		case value == nil || string(value) == "null":
		case rules.GetJson():
			members[name], _ = json.Marshal(string(value)) // a string can always be encoded
		case field.Message() == nil:
		case !field.IsList():
			members[name] = quoteFields(value, field.Message())
		case json.Unmarshal(value, &items) == nil:
			for j, item := range items {
				items[j] = quoteFields(item, field.Message())
			}
			members[name], _ = json.Marshal(items)
		}
	}
	quoted, _ := json.Marshal(members) // each has been read as JSON
	return quoted
}

// QueryParser is grpc-gateway's own, except that it refuses unknown parameters: a filter with a typo must not count as
// none.
type QueryParser struct{ runtime.DefaultQueryParser }

func (p QueryParser) Parse(message proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	fields := message.ProtoReflect().Descriptor().Fields()
	for name, given := range values {
		field := fields.ByJSONName(name)
		if field == nil || field.Message() != nil || !utf8.ValidString(strings.Join(given, "")) {
			return fmt.Errorf("%q is not a parameter of this request, or its value is not UTF-8", name)
		}
	}
	return p.DefaultQueryParser.Parse(message, values, filter)
}
