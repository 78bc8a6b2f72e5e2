package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

// resource answers GET and HEAD with a file of a workspace, its bytes passed on as they come.
func (g *gateway) resource(r route) runtime.HandlerFunc {
	conn, method := g.connOf(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		asked, err := askedFile(w, request, r, inPath)
		if err != nil {
			fail(w, err)
			return
		}
		answer := fileAnswer{w, request, g.settings.SlowReader}
		read := func(ctx context.Context, offset, length int64) (*file, error) {
			asked.Offset, asked.Length = offset, length
			call, err := open(ctx, conn, method, asked)
			if err != nil {
				return nil, err
			}
			first := new(headracev1.ReadFileResponse)
			return &file{first, call}, call.RecvMsg(first)
		}
		wanted, ok := parseRange(request.Header.Get("Range"))
		if ok && request.Method == http.MethodGet && answer.part(read, wanted) {
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // however this is left, the call is cancelled
		whole, err := read(ctx, 0, 0)
		if err != nil {
			fail(w, err)
			return
		}
		answer.send(whole, nil)
	}
}

// file is what is read: its first piece, and the call that gives the others.
type file struct {
	first *headracev1.ReadFileResponse
	rest  grpc.ClientStream
}

func askedFile(
	w http.ResponseWriter, request *http.Request, r route, inPath map[string]string,
) (*headracev1.ReadFileRequest, error) {
	for _, name := range []string{"Range", "If-Range"} {
		if err := once(request, name); err != nil {
			return nil, err
		}
	}
	asked := new(headracev1.ReadFileRequest)
	if _, err := readRequest(w, request, r, inPath, asked); err != nil {
		return nil, err
	}
	if asked.GetOffset() != 0 || asked.GetLength() != 0 {
		return nil, &jsonform.Invalid{Field: "offset", Rule: "is said by the header Range"}
	}
	return asked, nil
}

// fileAnswer answers one request for a file.
type fileAnswer struct {
	writer  http.ResponseWriter
	request *http.Request
	slow    time.Duration
}

// part answers with a range; false when the file has changed since the caller took its other parts, and is wanted whole.
func (a fileAnswer) part(
	read func(ctx context.Context, offset, length int64) (*file, error), wanted byteRange,
) bool {
	ctx, cancel := context.WithCancel(a.request.Context())
	defer cancel()
	unlessChanged := a.request.Header.Get("If-Range")
	found, err := read(ctx, wanted.offset, wanted.length)
	switch {
	case err == nil && (unlessChanged == "" || unlessChanged == etag(found.first.GetInfo())):
		a.send(found, &wanted)
	case status.Code(err) == codes.OutOfRange && unlessChanged == "":
		failure := envelope.Of(err)
		failure.Status = http.StatusRequestedRangeNotSatisfiable
		size := failure.Details["sizeBytes"]
		if size == "" {
			size = "*"
		}
		a.writer.Header().Set("Content-Range", "bytes */"+size)
		failure.Write(a.writer)
	case err != nil && status.Code(err) != codes.OutOfRange:
		fail(a.writer, err)
	default:
		return false
	}
	return true
}

// send answers with the pieces, which are those of the range when one is `wanted`.
func (a fileAnswer) send(found *file, wanted *byteRange) {
	info := found.first.GetInfo()
	setFileHeaders(a.writer.Header(), info)
	if unchanged(a.request.Header.Values("If-None-Match"), info) {
		a.writer.WriteHeader(http.StatusNotModified)
		return
	}
	a.writer.WriteHeader(setLength(a.writer.Header(), info.GetSizeBytes(), wanted))
	if a.request.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(a.writer)
	for piece := found.first; ; {
		_ = control.SetWriteDeadline(time.Now().Add(a.slow))
		if _, err := a.writer.Write(piece.GetData()); err != nil {
			return
		}
		piece = new(headracev1.ReadFileResponse)
		if err := found.rest.RecvMsg(piece); err != nil {
			return // net/http breaks the connection when these were fewer bytes than announced
		}
	}
}
