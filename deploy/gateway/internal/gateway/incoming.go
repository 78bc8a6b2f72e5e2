package gateway

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"headrace/gateway/internal/jsonform"
)

const (
	// bodyBytesMax is what callers outside the suite may send (architecture.md).
	bodyBytesMax = 4 << 20
	// bodyTimeout is for the whole body, 4 MiB at 70 kB/s.
	bodyTimeout = 60 * time.Second
	lastEventID = "Last-Event-ID"
)

// readRequest fills the RPC's request from the path, and from the JSON body or the parameters; it also gives the body.
func readRequest(
	w http.ResponseWriter, request *http.Request, r route, inPath map[string]string, message proto.Message,
) (body []byte, err error) {
	found, err := jsonform.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	fields := message.ProtoReflect().Descriptor().Fields()
	var named []jsonform.Parameter
	for _, name := range slices.Sorted(maps.Keys(inPath)) {
		named = append(named, jsonform.Parameter{Name: fields.ByTextName(name).JSONName(), Value: inPath[name]})
	}
	if !r.hasBody {
		if fields.ByName("last_seq") != nil {
			if found, err = resumed(request, found); err != nil {
				return nil, err
			}
		}
		return nil, jsonform.DecodeQuery(append(named, found...), message)
	}
	if len(found) > 0 {
		return nil, &jsonform.Invalid{Field: found[0].Name, Rule: "belongs into the JSON body"}
	}
	if body, err = readBody(w, request); err != nil {
		return nil, err
	}
	if err := jsonform.Decode(body, message); err != nil {
		return nil, err
	}
	return body, jsonform.DecodeQuery(named, message)
}

// resumed gives the parameters with Last-Event-ID as lastSeq: it wins, because a browser that comes back sends the old
// URL.
func resumed(request *http.Request, found []jsonform.Parameter) ([]jsonform.Parameter, error) {
	if err := once(request, lastEventID); err != nil {
		return nil, err
	}
	last := request.Header.Get(lastEventID)
	if last == "" {
		return found, nil
	}
	kept := slices.DeleteFunc(found, func(one jsonform.Parameter) bool { return one.Name == "lastSeq" })
	return append(kept, jsonform.Parameter{Name: "lastSeq", Value: last}), nil
}

// readBody gives the JSON body; a missing Content-Type counts as JSON, so that the shortest curl works.
func readBody(w http.ResponseWriter, request *http.Request) ([]byte, error) {
	if err := once(request, "Content-Type"); err != nil {
		return nil, err
	}
	if kinds := request.Header["Content-Type"]; len(kinds) > 0 && !strings.Contains(strings.ToLower(kinds[0]), "json") {
		return nil, &jsonform.Invalid{Field: "Content-Type", Rule: "must be application/json"}
	}
	if err := checkCoding(request); err != nil {
		return nil, err
	}
	// A body that says it is too large is refused unread.
	if request.ContentLength > bodyBytesMax {
		return nil, tooLarge(bodyBytesMax)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, bodyBytesMax))
	return body, unread(err)
}

// checkCoding refuses compressed bodies: a small one may hide gigabytes.
func checkCoding(request *http.Request) error {
	if err := once(request, "Content-Encoding"); err != nil {
		return err
	}
	if coding := request.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &jsonform.Invalid{Field: "Content-Encoding", Rule: "must be absent; send the body uncompressed"}
	}
	return nil
}

// unread says why a body could not be read.
func unread(err error) error {
	if broken, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
		return tooLarge(broken.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refused(http.StatusRequestTimeout)
	}
	return err
}
