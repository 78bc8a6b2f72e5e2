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

// events answers a route with Server-Sent Events, or with one JSON answer when the request says `"stream": false`.
func (g *gateway) events(r route) runtime.HandlerFunc {
	conn, method := g.connOf(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message := r.newRequest()
		if _, err := readRequest(w, request, r, inPath, message); err != nil {
			fail(w, err)
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // however this is left, the call is cancelled
		call, err := open(ctx, conn, method, message)
		if err != nil {
			fail(w, err)
			return
		}
		if query, ok := message.(*headracev1.QueryRequest); ok && query.Stream != nil && !query.GetStream() {
			fold(w, call)
			return
		}
		openStreams.Inc()
		defer openStreams.Dec()
		sent := newSSE(w, message, g.settings)
		defer sent.stop()
		sent.copy(ctx, call)
	}
}

// open starts a call that streams its answer.
func open(ctx context.Context, conn *grpc.ClientConn, method string, message proto.Message) (grpc.ClientStream, error) {
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := call.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // io.EOF: the status comes with the first read
	}
	return call, call.CloseSend()
}
