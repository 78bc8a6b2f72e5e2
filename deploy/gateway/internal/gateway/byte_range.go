package gateway

import (
	"regexp"
	"strconv"
	"strings"
)

var oneRange = regexp.MustCompile(`^bytes=([0-9]{0,18})-([0-9]{0,18})$`)

// byteRange is a range for ReadFile: a negative offset counts from the end, and the length 0 means to the end.
type byteRange struct{ offset, length int64 }

// parseRange returns the one range of bytes that a Range header requests. Several ranges, other units and impossible
// ranges are ignored, as RFC 9110 (section 14) allows: the answer is then the whole file.
func parseRange(header string) (byteRange, bool) {
	match := oneRange.FindStringSubmatch(strings.TrimSpace(header))
	if match == nil || match[1] == "" && match[2] == "" {
		return byteRange{}, false
	}
	first, _ := strconv.ParseInt(match[1], 10, 64)
	last, _ := strconv.ParseInt(match[2], 10, 64)
	switch {
	case match[1] == "":
		return byteRange{-last, 0}, last > 0
	case match[2] == "":
		return byteRange{first, 0}, true
	default:
		return byteRange{first, last - first + 1}, first <= last
	}
}

// resolve returns the first byte and the one after the last, for a file of a size in which the range begins.
func (r byteRange) resolve(size int64) (start, end int64) {
	start = r.offset
	if start < 0 {
		start = max(0, size+start)
	}
	if r.length == 0 {
		return start, size
	}
	return start, min(size, start+r.length)
}
