// Package jsonform reads and writes the JSON form of the contract's messages, as services/runtime/formats/json_form.py and the
// embedded facade do: lowerCamelCase names, 64-bit integers as numbers, JSON fields as their own text, and AgentDelta
// as the flat object of the event contract. A compiled form is kept for each message type.
package jsonform

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// DepthMax is the greatest nesting of a JSON value, as in services/runtime/rpc/field_rules.py.
const DepthMax = 64

// findRules returns the rules of a field, or an empty message.
func findRules(field protoreflect.FieldDescriptor) *headracev1.FieldRules {
	rules, _ := proto.GetExtension(field.Options(), headracev1.E_Rules).(*headracev1.FieldRules)
	return rules
}
