package jsonform

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

var eventName = (&headracev1.AgentDelta{}).ProtoReflect().Descriptor().FullName()

// oneLine removes line ends from JSON text: there they are only blanks between tokens, and they would end a line of an
// event.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

type fieldForm struct {
	field  protoreflect.FieldDescriptor
	prefix string
	isJSON bool
	// omitEmpty leaves out an empty list.
	omitEmpty bool
}

type messageForm struct {
	fields []fieldForm
}

var forms sync.Map // protoreflect.FullName → *messageForm

func findForm(descriptor protoreflect.MessageDescriptor) *messageForm {
	if known, ok := forms.Load(descriptor.FullName()); ok {
		return known.(*messageForm)
	}
	form := &messageForm{}
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		rules := findRules(field)
		form.fields = append(form.fields, fieldForm{
			field:     field,
			prefix:    `"` + field.JSONName() + `":`,
			isJSON:    rules.GetJson(),
			omitEmpty: rules.GetOmitEmpty(),
		})
	}
	known, _ := forms.LoadOrStore(descriptor.FullName(), form)
	return known.(*messageForm)
}

// Encode returns a message as a JSON object.
func Encode(message proto.Message) []byte {
	return appendObject(nil, message.ProtoReflect())
}

// Split returns the JSON of the field with this name, and the other `"name":value` pairs.
func Split(message proto.Message, name string) (data, beside []byte) {
	reflected := message.ProtoReflect()
	form := findForm(reflected.Descriptor())
	for i := range form.fields {
		field := &form.fields[i]
		if string(field.field.Name()) == name {
			data = appendValue(nil, field, reflected.Get(field.field))
			continue
		}
		beside = appendField(beside, field, reflected, len(beside) > 0)
	}
	return data, beside
}

func appendObject(out []byte, message protoreflect.Message) []byte {
	if message.Descriptor().FullName() == eventName {
		event, ok := EncodeEvent(message.Interface().(*headracev1.AgentDelta))
		if !ok {
			return append(out, "{}"...)
		}
		return append(out, event.JSON...)
	}
	out = append(out, '{')
	out = appendMembers(out, message)
	return append(out, '}')
}

func appendMembers(out []byte, message protoreflect.Message) []byte {
	form := findForm(message.Descriptor())
	start := len(out)
	for i := range form.fields {
		out = appendField(out, &form.fields[i], message, len(out) > start)
	}
	return out
}

// appendField writes `"name":value`, or nothing when the field is left out.
func appendField(out []byte, form *fieldForm, message protoreflect.Message, comma bool) []byte {
	field := form.field
	value := message.Get(field)
	switch {
	case field.IsList():
		if value.List().Len() == 0 && form.omitEmpty {
			return out
		}
	case form.isJSON:
		if value.String() == "" {
			return out
		}
	case field.HasPresence() && !message.Has(field):
		return out
	}
	if comma {
		out = append(out, ',')
	}
	out = append(out, form.prefix...)
	return appendValue(out, form, value)
}

func appendValue(out []byte, form *fieldForm, value protoreflect.Value) []byte {
	field := form.field
	if !field.IsList() {
		if form.isJSON {
			return append(out, oneLine.Replace(value.String())...)
		}
		return appendScalar(out, field, value)
	}
	out = append(out, '[')
	for i := range value.List().Len() {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendScalar(out, field, value.List().Get(i))
	}
	return append(out, ']')
}

func appendScalar(out []byte, field protoreflect.FieldDescriptor, value protoreflect.Value) []byte {
	switch field.Kind() {
	case protoreflect.StringKind:
		return AppendString(out, value.String())
	case protoreflect.BoolKind:
		return strconv.AppendBool(out, value.Bool())
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return strconv.AppendInt(out, value.Int(), 10)
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return strconv.AppendUint(out, value.Uint(), 10)
	case protoreflect.DoubleKind:
		return appendDouble(out, value.Float())
	case protoreflect.BytesKind:
		out = append(out, '"')
		out = base64.StdEncoding.AppendEncode(out, value.Bytes())
		return append(out, '"')
	case protoreflect.MessageKind:
		return appendObject(out, value.Message())
	default:
		panic("the contract has no field of kind " + field.Kind().String())
	}
}

// appendDouble writes a number as orjson does: 1.0, 0.00001, 1e-6, 1e+16.
func appendDouble(out []byte, value float64) []byte {
	size := math.Abs(value)
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return append(out, "null"...)
	case size != 0 && (size < 1e-5 || size >= 1e16):
		text := strconv.FormatFloat(value, 'e', -1, 64)
		return append(out, strings.Replace(text, "e-0", "e-", 1)...)
	case value == math.Trunc(value):
		return strconv.AppendFloat(out, value, 'f', 1, 64)
	default:
		return strconv.AppendFloat(out, value, 'f', -1, 64)
	}
}

const hex = "0123456789abcdef"

// AppendString writes text as orjson does: UTF-8 unchanged, control characters with their short escape if there is one.
func AppendString(out []byte, text string) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(text); i++ {
		char := text[i]
		if char >= 0x20 && char != '"' && char != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		start = i + 1
		switch char {
		case '"', '\\':
			out = append(out, '\\', char)
		case '\b':
			out = append(out, '\\', 'b')
		case '\f':
			out = append(out, '\\', 'f')
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hex[char>>4], hex[char&0xf])
		}
	}
	out = append(out, text[start:]...)
	return append(out, '"')
}
