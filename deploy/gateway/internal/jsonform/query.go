package jsonform

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ParametersMax is more than any request has fields; a list of 512 names fits.
const ParametersMax = 600

// Parameter is one parameter of a URL.
type Parameter struct{ Name, Value string }

// ParseQuery returns the parameters of a URL in their order.
func ParseQuery(raw string) ([]Parameter, error) {
	if raw == "" {
		return nil, nil
	}
	parts := strings.Split(raw, "&")
	if len(parts) > ParametersMax {
		return nil, &Invalid{"query", fmt.Sprintf("must not have more than %d parameters", ParametersMax)}
	}
	var result []Parameter
	for _, part := range parts {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = unescape(name), unescape(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, &Invalid{"query", "parameters must be UTF-8"}
		}
		result = append(result, Parameter{name, value})
	}
	return result, nil
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescape leaves invalid escapes unchanged, as browsers' own parsers do; net/url would refuse them.
func unescape(text string) string {
	text = strings.ReplaceAll(text, "+", " ")
	return escape.ReplaceAllStringFunc(text, func(result string) string {
		char, _ := strconv.ParseUint(result[1:], 16, 8)
		return string([]byte{byte(char)})
	})
}

// DecodeQuery fills `message` with parameters; a list is given by repeating its parameter.
func DecodeQuery(parameters []Parameter, message proto.Message) error {
	reflected := message.ProtoReflect()
	known := fieldsByName(reflected.Descriptor())
	seen := map[protoreflect.FieldNumber]bool{}
	for _, parameter := range parameters {
		field := known[parameter.Name]
		if field == nil || field.Message() != nil {
			return unknownField(parameter.Name, "", known)
		}
		value, err := decodeScalar(field, toJSON(field, parameter.Value), parameter.Name)
		if err != nil {
			return err
		}
		if field.IsList() {
			reflected.Mutable(field).List().Append(value)
			continue
		}
		if seen[field.Number()] {
			return &Invalid{parameter.Name, "must be given once"}
		}
		seen[field.Number()] = true
		reflected.Set(field, value)
	}
	return nil
}

var number = regexp.MustCompile(`^-?[0-9]{1,20}$`)

// toJSON returns the JSON value that a parameter stands for, or a JSON string, which the field may refuse.
func toJSON(field protoreflect.FieldDescriptor, text string) []byte {
	isText := field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind
	if !isText && (number.MatchString(text) || text == "true" || text == "false") {
		return []byte(text)
	}
	return AppendString(nil, text)
}
