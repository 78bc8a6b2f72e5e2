package jsonform

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// decodeScalar reads a JSON value as a value of field.
func decodeScalar(field protoreflect.FieldDescriptor, raw []byte, name string) (protoreflect.Value, error) {
	none := protoreflect.Value{}
	switch field.Kind() {
	case protoreflect.StringKind:
		var text string
		if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
			return none, &Invalid{name, "must be a string"}
		}
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		switch string(raw) {
		case "true", "false":
			return protoreflect.ValueOfBool(raw[0] == 't'), nil
		}
		return none, &Invalid{name, "must be true or false"}
	case protoreflect.DoubleKind:
		number, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || raw[0] == '"' {
			return none, &Invalid{name, "must be a number"}
		}
		return protoreflect.ValueOfFloat64(number), nil
	case protoreflect.BytesKind:
		var text string
		if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
			if data, err := base64.StdEncoding.DecodeString(text); err == nil {
				return protoreflect.ValueOfBytes(data), nil
			}
		}
		return none, &Invalid{name, "must be base64 text"}
	default:
		return decodeInteger(field.Kind(), string(raw), name)
	}
}

func decodeInteger(kind protoreflect.Kind, text, name string) (protoreflect.Value, error) {
	switch kind {
	case protoreflect.Int32Kind:
		if number, err := strconv.ParseInt(text, 10, 32); err == nil {
			return protoreflect.ValueOfInt32(int32(number)), nil
		}
		return outOfRange(name, math.MinInt32, math.MaxInt32)
	case protoreflect.Int64Kind:
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(number), nil
		}
		return outOfRange(name, math.MinInt64, math.MaxInt64)
	case protoreflect.Uint32Kind:
		if number, err := strconv.ParseUint(text, 10, 32); err == nil {
			return protoreflect.ValueOfUint32(uint32(number)), nil
		}
		return outOfRange(name, 0, math.MaxUint32)
	default:
		if number, err := strconv.ParseUint(text, 10, 64); err == nil {
			return protoreflect.ValueOfUint64(number), nil
		}
		return outOfRange(name, 0, math.MaxUint64)
	}
}

func outOfRange(name string, low int64, high uint64) (protoreflect.Value, error) {
	return protoreflect.Value{}, &Invalid{name, fmt.Sprintf("must be a whole number from %d to %d", low, high)}
}
