// Package jsonform is the JSON form of the contract's messages, the same as services/runtime/json_form.py writes and the
// embedded facade reads: lowerCamelCase names, 64-bit integers as numbers, fields that are JSON by nature as their own
// text, and AgentDelta as the flat object of the event contract. A compiled form is kept for each message type.
package jsonform

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// DepthMax is the greatest nesting of a JSON value, as services/runtime/rpc/field_rules.py has it.
const DepthMax = 64

// rulesOf gives the rules of a field; without any, an empty message.
func rulesOf(field protoreflect.FieldDescriptor) *headracev1.FieldRules {
	rules, _ := proto.GetExtension(field.Options(), headracev1.E_Rules).(*headracev1.FieldRules)
	return rules
}
