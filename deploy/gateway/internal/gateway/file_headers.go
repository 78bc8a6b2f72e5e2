package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// The author of a file may want a browser to run it in our origin. So only types that no browser runs are shown inline;
// all others are sent as attachments, and nosniff keeps browsers from guessing another type.
var (
	textTypes   = []string{"text/plain", "text/csv", "text/markdown", "text/tab-separated-values", "application/json"}
	inlineTypes = append([]string{"image/png", "image/jpeg", "image/gif", "image/webp", pdf}, textTypes...)
)

const (
	pdf = "application/pdf"
	// sandboxPolicy is the Content-Security-Policy of all files but PDF, whose viewer it would stop.
	sandboxPolicy = "default-src 'none'; sandbox"
)

// setFileHeaders sets the headers of a file, which do not depend on the part that is sent.
func setFileHeaders(header http.Header, info *headracev1.FileInfo) {
	kind, disposition := info.GetMimeType(), "attachment"
	if slices.Contains(inlineTypes, kind) {
		disposition = "inline"
	}
	if slices.Contains(textTypes, kind) {
		kind += "; charset=utf-8"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", disposition+"; filename*=UTF-8''"+escapeName(path.Base(info.GetPath())))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Accept-Ranges", "bytes")
	header.Set("Cache-Control", "private, no-cache") // cached, and revalidated each time with its ETag
	header.Set("ETag", formatETag(info))
	header.Set("Last-Modified", time.UnixMilli(info.GetModifiedAt()).UTC().Format(http.TimeFormat))
	if info.GetMimeType() != pdf {
		header.Set("Content-Security-Policy", sandboxPolicy)
	}
}

// setLength sets how many bytes are sent, and which, and returns the status.
func setLength(header http.Header, size int64, requested *byteRange) int {
	status, start, end := http.StatusOK, int64(0), size
	if requested != nil && size > 0 {
		start, end = requested.resolve(size)
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, size))
		status = http.StatusPartialContent
	}
	header.Set("Content-Length", strconv.FormatInt(end-start, 10))
	return status
}

func formatETag(info *headracev1.FileInfo) string { return `"` + info.GetVersion() + `"` }

var tag = regexp.MustCompile(`\*|"([^"]*)"`)

// isUnchanged reports whether If-None-Match names the file's version, weakly or not.
func isUnchanged(values []string, info *headracev1.FileInfo) bool {
	for _, match := range tag.FindAllStringSubmatch(strings.Join(values, ","), -1) {
		if match[0] == "*" || match[1] == info.GetVersion() {
			return true
		}
	}
	return false
}

// escapeName escapes every reserved character (RFC 3986), so that a name cannot write headers.
func escapeName(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }
