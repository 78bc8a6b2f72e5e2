package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

// streamMessages answers a route with each message of its call as one frame, until the call ends, the client leaves, or
// the gateway stops.
func (g *gateway) streamMessages(r route) runtime.HandlerFunc {
	conn, method := g.connFor(r), r.grpcPath()
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		message := r.newRequest()
		if _, err := readRequest(w, request, r, inPath, message); err != nil {
			writeError(w, err)
			return
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel() // leaving in any way cancels the call
		defer context.AfterFunc(g.stopping, cancel)()
		call, err := openStream(ctx, conn, method, message)
		if err != nil {
			writeError(w, err)
			return
		}
		openStreams.Inc()
		defer openStreams.Dec()
		stream := newSSE(w, message, g.settings)
		defer stream.stop()
		stream.copyMessages(ctx, call, r.newReply)
	}
}

// copyMessages writes the messages of a call until it ends, or the client leaves, which ends ctx.
func (s *sse) copyMessages(ctx context.Context, call grpc.ClientStream, newReply func() proto.Message) {
	for {
		reply := newReply()
		if err := call.RecvMsg(reply); err != nil {
			s.finishMessages(ctx, err)
			return
		}
		s.frame = s.frame[:0]
		if told, ok := reply.(interface{ GetCursor() string }); ok && told.GetCursor() != "" {
			s.frame = append(append(append(s.frame, "id: "...), told.GetCursor()...), '\n')
		}
		s.frame = append(append(append(s.frame, "event: message\ndata: "...), jsonform.Encode(reply)...), "\n\n"...)
		if err := s.writeFrame(s.frame); err != nil {
			return
		}
	}
}

// finishMessages answers with the error of a call that has said nothing; a stream that has begun just ends, unless the
// caller's key has.
func (s *sse) finishMessages(ctx context.Context, err error) {
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.hasEnded = true; !s.hasBegun {
		writeError(s.writer, err)
		return
	}
	failure := envelope.FromError(err)
	failure.Record(s.writer)
	s.tellOfEnd(failure)
}
