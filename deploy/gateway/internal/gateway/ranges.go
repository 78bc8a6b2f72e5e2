package gateway

import (
	"regexp"
	"strconv"
	"strings"
)

var oneRange = regexp.MustCompile(`^bytes=([0-9]{0,18})-([0-9]{0,18})$`)

// byteRange is a range as ReadFile takes it: a negative offset counts from the end, the length 0 means to the end.
type byteRange struct{ offset, length int64 }

// parseRange gives the one range of bytes that a Range header asks for. Several ranges, other units and ranges that make
// no sense are left unheeded, as RFC 9110 (section 14) allows: the answer is then the whole file.
func parseRange(header string) (byteRange, bool) {
	found := oneRange.FindStringSubmatch(strings.TrimSpace(header))
	if found == nil || found[1] == "" && found[2] == "" {
		return byteRange{}, false
	}
	first, _ := strconv.ParseInt(found[1], 10, 64)
	last, _ := strconv.ParseInt(found[2], 10, 64)
	switch {
	case found[1] == "":
		return byteRange{-last, 0}, last > 0
	case found[2] == "":
		return byteRange{first, 0}, true
	default:
		return byteRange{first, last - first + 1}, first <= last
	}
}

// within gives the first byte and the one behind the last, in a file of that size, which the range begins in.
func (r byteRange) within(size int64) (start, end int64) {
	start = r.offset
	if start < 0 {
		start = max(0, size+start)
	}
	if r.length == 0 {
		return start, size
	}
	return start, min(size, start+r.length)
}
