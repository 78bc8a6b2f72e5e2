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

// serveFile answers GET and HEAD with a workspace file and forwards its bytes as they arrive.
func (g *gateway) serveFile(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message, err := readFileRequest(w, request, r, inPath)
		if err != nil {
			writeError(w, err)
			return
		}
		response := fileResponse{w, request, g.settings.SlowReader}
		read := func(ctx context.Context, offset, length int64) (*file, error) {
			message.Offset, message.Length = offset, length
			call, err := openStream(ctx, conn, method, message)
			if err != nil {
				return nil, err
			}
			first := new(headracev1.ReadFileResponse)
			return &file{first, call}, call.RecvMsg(first)
		}
		requested, ok := parseRange(request.Header.Get("Range"))
		if ok && request.Method == http.MethodGet && response.sendRange(read, requested) {
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // leaving in any way cancels the call
		whole, err := read(ctx, 0, 0)
		if err != nil {
			writeError(w, err)
			return
		}
		response.sendFile(whole, nil)
	}
}

// file is a file being read: its first piece, and the call that returns the others.
type file struct {
	first *headracev1.ReadFileResponse
	rest  grpc.ClientStream
}

func readFileRequest(
	w http.ResponseWriter, request *http.Request, r route, inPath map[string]string,
) (*headracev1.ReadFileRequest, error) {
	for _, name := range []string{"Range", "If-Range"} {
		if err := requireSingleHeader(request, name); err != nil {
			return nil, err
		}
	}
	message := new(headracev1.ReadFileRequest)
	if _, err := readRequest(w, request, r, inPath, message); err != nil {
		return nil, err
	}
	if message.GetOffset() != 0 || message.GetLength() != 0 {
		return nil, &jsonform.Invalid{Field: "offset", Rule: "is said by the header Range"}
	}
	return message, nil
}

// fileResponse answers one request for a file.
type fileResponse struct {
	writer       http.ResponseWriter
	request      *http.Request
	writeTimeout time.Duration
}

// sendRange answers with a range; it returns false when the file has changed since the caller's other parts and must be
// sent whole.
func (a fileResponse) sendRange(
	read func(ctx context.Context, offset, length int64) (*file, error), requested byteRange,
) bool {
	ctx, cancel := context.WithCancel(a.request.Context())
	defer cancel()
	ifRange := a.request.Header.Get("If-Range")
	content, err := read(ctx, requested.offset, requested.length)
	switch {
	case err == nil && (ifRange == "" || ifRange == formatETag(content.first.GetInfo())):
		a.sendFile(content, &requested)
	case status.Code(err) == codes.OutOfRange && ifRange == "":
		failure := envelope.FromError(err)
		failure.Status = http.StatusRequestedRangeNotSatisfiable
		size := failure.Details["sizeBytes"]
		if size == "" {
			size = "*"
		}
		a.writer.Header().Set("Content-Range", "bytes */"+size)
		failure.Write(a.writer)
	case err != nil && status.Code(err) != codes.OutOfRange:
		writeError(a.writer, err)
	default:
		return false
	}
	return true
}

// sendFile answers with the pieces of a file, which are those of the range if one was requested.
func (a fileResponse) sendFile(content *file, requested *byteRange) {
	info := content.first.GetInfo()
	setFileHeaders(a.writer.Header(), info)
	if isUnchanged(a.request.Header.Values("If-None-Match"), info) {
		a.writer.WriteHeader(http.StatusNotModified)
		return
	}
	a.writer.WriteHeader(setLength(a.writer.Header(), info.GetSizeBytes(), requested))
	if a.request.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(a.writer)
	for piece := content.first; ; {
		_ = control.SetWriteDeadline(time.Now().Add(a.writeTimeout))
		if _, err := a.writer.Write(piece.GetData()); err != nil {
			return
		}
		piece = new(headracev1.ReadFileResponse)
		if err := content.rest.RecvMsg(piece); err != nil {
			return // net/http closes the connection if bytes are missing
		}
	}
}
