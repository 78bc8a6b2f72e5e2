package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkSyntax says whether a body is JSON that can be carried on: in UTF-8, without half characters, not too deep.
func checkSyntax(body []byte) error {
	var value any // and not json.Valid: a number that no double can hold is refused too
	if !utf8.Valid(body) || json.Unmarshal(body, &value) != nil || hasLoneSurrogate(body) {
		return &Invalid{Body, "must be valid JSON in UTF-8"}
	}
	if deepest(body) > DepthMax {
		return &Invalid{Body, fmt.Sprintf("must not be nested deeper than %d levels", DepthMax)}
	}
	return nil
}

// hasLoneSurrogate finds half a character written as an escape, which encoding/json would take for U+FFFD.
func hasLoneSurrogate(valid []byte) bool {
	for at := bytes.IndexByte(valid, '\\'); at >= 0; {
		char, length := escaped(valid[at:])
		if utf16.IsSurrogate(char) {
			other, more := escaped(valid[at+length:])
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

// escaped reads the escape that `text` begins with: its UTF-16 unit when it is a \u, and its length.
func escaped(text []byte) (unit rune, length int) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, 2
	}
	value, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(value), 6
}

// deepest counts the levels of objects and lists.
func deepest(valid []byte) int {
	depth, found, inString := 0, 0, false
	for i := 0; i < len(valid); i++ {
		switch char := valid[i]; {
		case inString && char == '\\':
			i++
		case char == '"':
			inString = !inString
		case inString:
		case char == '{' || char == '[':
			depth++
			found = max(found, depth)
		case char == '}' || char == ']':
			depth--
		}
	}
	return found
}
