package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkSyntax reports whether a body is usable JSON: in UTF-8, without lone surrogates, not too deep.
func checkSyntax(body []byte) error {
	var value any // unlike json.Valid, this refuses numbers that no double can hold
	if !utf8.Valid(body) || json.Unmarshal(body, &value) != nil || hasLoneSurrogate(body) {
		return &Invalid{Body, "must be valid JSON in UTF-8"}
	}
	if measureDepth(body) > DepthMax {
		return &Invalid{Body, fmt.Sprintf("must not be nested deeper than %d levels", DepthMax)}
	}
	return nil
}

// hasLoneSurrogate finds an escaped lone surrogate, which encoding/json would replace by U+FFFD.
func hasLoneSurrogate(valid []byte) bool {
	for at := bytes.IndexByte(valid, '\\'); at >= 0; {
		char, length := readEscape(valid[at:])
		if utf16.IsSurrogate(char) {
			other, more := readEscape(valid[at+length:])
			if utf16.DecodeRune(char, other) == utf8.RuneError {
				return true
			}
			length += more
		}
		next := bytes.IndexByte(valid[at+length:], '\\')
		if next < 0 {
			return false
		}
		at += length + next
	}
	return false
}

// readEscape reads the escape at the beginning of text: its UTF-16 unit if it is a \u, and its length.
func readEscape(text []byte) (unit rune, length int) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, 2
	}
	value, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(value), 6
}

// measureDepth counts the levels of objects and lists.
func measureDepth(valid []byte) int {
	depth, result, inString := 0, 0, false
	for i := 0; i < len(valid); i++ {
		switch char := valid[i]; {
		case inString && char == '\\':
			i++
		case char == '"':
			inString = !inString
		case inString:
		case char == '{' || char == '[':
			depth++
			result = max(result, depth)
		case char == '}' || char == ']':
			depth--
		}
	}
	return result
}
