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

// Whoever wrote a file may have wanted a browser to run it in our origin. So only types that no browser runs are shown;
// all others are handed over as attachments, and nosniff keeps every type what we say it is.
var (
	texts = []string{"text/plain", "text/csv", "text/markdown", "text/tab-separated-values", "application/json"}
	shown = append([]string{"image/png", "image/jpeg", "image/gif", "image/webp", pdf}, texts...)
)

const (
	pdf = "application/pdf"
	// noPowers is the Content-Security-Policy of all but PDF, whose viewer it would stop.
	noPowers = "default-src 'none'; sandbox"
)

// setFileHeaders says what is said of a file, whichever part of it is sent.
func setFileHeaders(header http.Header, info *headracev1.FileInfo) {
	kind, disposition := info.GetMimeType(), "attachment"
	if slices.Contains(shown, kind) {
		disposition = "inline"
	}
	if slices.Contains(texts, kind) {
		kind += "; charset=utf-8"
	}
	header.Set("Content-Type", kind)
	header.Set("Content-Disposition", disposition+"; filename*=UTF-8''"+quoted(path.Base(info.GetPath())))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Accept-Ranges", "bytes")
	header.Set("Cache-Control", "private, no-cache") // kept, and asked for again each time with its ETag
	header.Set("ETag", etag(info))
	header.Set("Last-Modified", time.UnixMilli(info.GetModifiedAt()).UTC().Format(http.TimeFormat))
	if info.GetMimeType() != pdf {
		header.Set("Content-Security-Policy", noPowers)
	}
}

// setLength says how many bytes come, and which; it gives the status.
func setLength(header http.Header, size int64, wanted *byteRange) int {
	status, start, end := http.StatusOK, int64(0), size
	if wanted != nil && size > 0 {
		start, end = wanted.within(size)
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, end-1, size))
		status = http.StatusPartialContent
	}
	header.Set("Content-Length", strconv.FormatInt(end-start, 10))
	return status
}

func etag(info *headracev1.FileInfo) string { return `"` + info.GetVersion() + `"` }

var tag = regexp.MustCompile(`\*|"([^"]*)"`)

// unchanged tells whether If-None-Match names the file's version, weakly or not.
func unchanged(values []string, info *headracev1.FileInfo) bool {
	for _, found := range tag.FindAllStringSubmatch(strings.Join(values, ","), -1) {
		if found[0] == "*" || found[1] == info.GetVersion() {
			return true
		}
	}
	return false
}

// quoted escapes all that is not unreserved (RFC 3986), so that a name cannot write headers.
func quoted(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }
