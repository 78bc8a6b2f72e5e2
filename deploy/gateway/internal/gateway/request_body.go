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
	"google.golang.org/protobuf/reflect/protoreflect"

	"headrace/gateway/internal/jsonform"
)

const (
	// bodyBytesMax is the largest request from outside the suite.
	bodyBytesMax = 4 << 20
	// bodyTimeout limits reading a whole body: 4 MiB at 70 kB/s.
	bodyTimeout = 60 * time.Second
	lastEventID = "Last-Event-ID"
)

// readRequest fills the RPC's request from the path and from the JSON body or the query parameters; it returns the
// body.
func readRequest(
	w http.ResponseWriter, request *http.Request, r route, inPath map[string]string, message proto.Message,
) (body []byte, err error) {
	parameters, err := jsonform.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	fields := message.ProtoReflect().Descriptor().Fields()
	var pathParameters []jsonform.Parameter
	for _, name := range slices.Sorted(maps.Keys(inPath)) {
		pathParameters = append(pathParameters, jsonform.Parameter{Name: fields.ByTextName(name).JSONName(), Value: inPath[name]})
	}
	if !r.hasBody {
		for _, name := range []protoreflect.Name{"last_seq", "cursor"} {
			if field := fields.ByName(name); field != nil {
				if parameters, err = applyLastEventID(request, parameters, field.JSONName()); err != nil {
					return nil, err
				}
			}
		}
		return nil, jsonform.DecodeQuery(append(pathParameters, parameters...), message)
	}
	if len(parameters) > 0 {
		return nil, &jsonform.Invalid{Field: parameters[0].Name, Rule: "belongs into the JSON body"}
	}
	if body, err = readBody(w, request, bodyBytesMax, bodyTimeout); err != nil {
		return nil, err
	}
	if err := jsonform.Decode(body, message); err != nil {
		return nil, err
	}
	return body, jsonform.DecodeQuery(pathParameters, message)
}

// applyLastEventID sets a parameter from the header Last-Event-ID, which wins because a reconnecting browser sends the
// old URL.
func applyLastEventID(request *http.Request, parameters []jsonform.Parameter, name string) ([]jsonform.Parameter, error) {
	if err := requireSingleHeader(request, lastEventID); err != nil {
		return nil, err
	}
	last := request.Header.Get(lastEventID)
	if last == "" {
		return parameters, nil
	}
	kept := slices.DeleteFunc(parameters, func(parameter jsonform.Parameter) bool { return parameter.Name == name })
	return append(kept, jsonform.Parameter{Name: name, Value: last}), nil
}

// readBody returns the JSON body, of at most bytesMax. It must be said to be JSON, because a page of another origin may send text, a form, or a
// body of no type without asking first.
func readBody(w http.ResponseWriter, request *http.Request, bytesMax int64, timeout time.Duration) ([]byte, error) {
	if err := requireSingleHeader(request, "Content-Type"); err != nil {
		return nil, err
	}
	kind, _, _ := strings.Cut(request.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return nil, &jsonform.Invalid{Field: "Content-Type", Rule: "must be application/json"}
	}
	if err := checkCoding(request); err != nil {
		return nil, err
	}
	// A body that is announced as too large is refused unread.
	if request.ContentLength > bytesMax {
		return nil, bodyTooLarge(bytesMax)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(timeout))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, bytesMax))
	return body, bodyError(err)
}

// checkCoding refuses compressed bodies: a small one may hide gigabytes.
func checkCoding(request *http.Request) error {
	if err := requireSingleHeader(request, "Content-Encoding"); err != nil {
		return err
	}
	if coding := request.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &jsonform.Invalid{Field: "Content-Encoding", Rule: "must be absent; send the body uncompressed"}
	}
	return nil
}

// bodyError translates an error of reading a body.
func bodyError(err error) error {
	if tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
		return bodyTooLarge(tooLarge.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return httpError(http.StatusRequestTimeout)
	}
	if err != nil {
		return &jsonform.Invalid{Field: jsonform.Body, Rule: "must be a whole body as HTTP frames it"}
	}
	return nil
}
