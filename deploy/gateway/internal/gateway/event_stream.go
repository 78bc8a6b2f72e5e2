package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

// streamEvents answers a route with Server-Sent Events, or with one JSON answer when the request has `"stream": false`.
func (g *gateway) streamEvents(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message := r.newRequest()
		if _, err := readRequest(w, request, r, inPath, message); err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // leaving in any way cancels the call
		call, err := openStream(ctx, conn, method, message)
		if err != nil {
			writeError(w, err)
			return
		}
		if query, ok := message.(*headracev1.QueryRequest); ok && query.Stream != nil && !query.GetStream() {
			answerRun(w, call)
			return
		}
		openStreams.Inc()
		defer openStreams.Dec()
		stream := newSSE(w, message, g.settings)
		defer stream.stop()
		stream.copyEvents(ctx, call)
	}
}

// openStream starts a call with a streamed answer.
func openStream(ctx context.Context, conn *grpc.ClientConn, method string, message proto.Message) (grpc.ClientStream, error) {
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := call.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // after io.EOF the first read returns the status
	}
	return call, call.CloseSend()
}
