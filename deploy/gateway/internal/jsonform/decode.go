package jsonform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Invalid is a request that breaks a rule; Field has its JSON name.
type Invalid struct {
	Field string
	Rule  string
}

func (e *Invalid) Error() string { return e.Field + ": " + e.Rule }

// Body stands for the whole body in errors.
const Body = "body"

// nameCharsMax limits how much of an unknown field's name an error repeats.
const nameCharsMax = 64

var names sync.Map // protoreflect.FullName → map[string]protoreflect.FieldDescriptor

// fieldsByName returns the fields of a message by the names that JSON and query parameters may use.
func fieldsByName(descriptor protoreflect.MessageDescriptor) map[string]protoreflect.FieldDescriptor {
	if known, ok := names.Load(descriptor.FullName()); ok {
		return known.(map[string]protoreflect.FieldDescriptor)
	}
	result := map[string]protoreflect.FieldDescriptor{}
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		result[field.JSONName()] = field
		if alias := findRules(field).GetAlias(); alias != "" {
			result[alias] = field
		}
	}
	known, _ := names.LoadOrStore(descriptor.FullName(), result)
	return known.(map[string]protoreflect.FieldDescriptor)
}

// unknownField returns the error for an unknown name, with the closest known one.
func unknownField(name, path string, known map[string]protoreflect.FieldDescriptor) error {
	if chars := []rune(name); len(chars) > nameCharsMax {
		name = string(chars[:nameCharsMax])
	}
	rule := "is not a field of this request"
	if suggestion := findClosest(name, slices.Collect(maps.Keys(known))); suggestion != "" {
		rule += "; did you mean '" + suggestion + "'?"
	}
	return &Invalid{path + name, rule}
}

// Decode fills message from body, strictly; it returns *Invalid for anything outside the contract.
func Decode(body []byte, message proto.Message) error {
	if err := checkSyntax(body); err != nil {
		return err
	}
	return decodeMessage(body, message.ProtoReflect(), "")
}

func decodeMessage(raw []byte, message protoreflect.Message, path string) error {
	values, err := splitMembers(raw)
	if err != nil {
		name := Body
		if path != "" {
			name = path[:len(path)-1]
		}
		return &Invalid{name, "must be a JSON object"}
	}
	known := fieldsByName(message.Descriptor())
	seen := map[protoreflect.FieldNumber]string{}
	for _, member := range values {
		field := known[member.name]
		if field == nil {
			return unknownField(member.name, path, known)
		}
		if string(member.value) == "null" {
			continue
		}
		if other, ok := seen[field.Number()]; ok && other != member.name {
			return &Invalid{path + member.name, fmt.Sprintf("is the same field as '%s'; give one of them", other)}
		}
		seen[field.Number()] = member.name
		if err := setField(message, field, member.value, path+member.name); err != nil {
			return err
		}
	}
	return nil
}

type member struct {
	name  string
	value []byte
}

// splitMembers splits an object into its members, each value as its own text; the last of a repeated name wins.
func splitMembers(raw []byte) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("no object")
	}
	var result []member
	at := map[string]int{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		if i, ok := at[name]; ok {
			result[i].value = value
			continue
		}
		at[name] = len(result)
		result = append(result, member{name, value})
	}
	return result, nil
}

func setField(message protoreflect.Message, field protoreflect.FieldDescriptor, raw []byte, name string) error {
	if field.IsList() {
		return setList(message, field, raw, name)
	}
	if field.Message() != nil {
		return decodeMessage(raw, message.Mutable(field).Message(), name+".")
	}
	if findRules(field).GetJson() {
		message.Set(field, protoreflect.ValueOfString(string(raw)))
		return nil
	}
	value, err := decodeScalar(field, raw, name)
	if err != nil {
		return err
	}
	message.Set(field, value)
	return nil
}

func setList(message protoreflect.Message, field protoreflect.FieldDescriptor, raw []byte, name string) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return &Invalid{name, "must be a list"}
	}
	list := message.Mutable(field).List()
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", name, i)
		if field.Message() != nil {
			element := list.NewElement()
			if err := decodeMessage(item, element.Message(), at+"."); err != nil {
				return err
			}
			list.Append(element)
			continue
		}
		value, err := decodeScalar(field, item, at)
		if err != nil {
			return err
		}
		list.Append(value)
	}
	return nil
}
