// Package calling makes calls to services of which there are several: to all of them in turn, and once more elsewhere
// where one that is being stopped refuses.
package calling

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// pushback with the value 0, beside UNAVAILABLE, is how a replica says that it has not begun the call and that another
// one takes it now (services/runtime/rpc/interceptors.py, ELSEWHERE). gRPC's own retryPolicy would make calls again that
// were cut off after they had begun, too.
const pushback = "grpc-retry-pushback-ms"

// Again has a connection make refused calls again, once, before anybody notices. An upload is not: what was sent of it
// is gone.
func Again() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

func unary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	ctx = elsewhere(ctx)
	var trailer metadata.MD
	err := invoke(ctx, method, request, reply, conn, append(slices.Clip(options), grpc.Trailer(&trailer))...)
	if isRefused(err, trailer) {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	return err
}

func stream(
	ctx context.Context, kind *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if kind.ClientStreams {
		return open(ctx, kind, conn, method, options...)
	}
	ctx = elsewhere(ctx)
	begin := func() (grpc.ClientStream, error) { return open(ctx, kind, conn, method, options...) }
	call, err := begin()
	if err != nil {
		return nil, err
	}
	return &repeatable{ClientStream: call, begin: begin}, nil
}

// repeatable is a call with one request, which it keeps until there is an answer.
type repeatable struct {
	grpc.ClientStream
	// nil once the call may not be made again
	begin   func() (grpc.ClientStream, error)
	request any
}

func (r *repeatable) SendMsg(request any) error {
	r.request = request
	return r.ClientStream.SendMsg(request)
}

func (r *repeatable) RecvMsg(reply any) error {
	err := r.ClientStream.RecvMsg(reply)
	if r.begin == nil {
		return err
	}
	begin, request := r.begin, r.request
	r.begin, r.request = nil, nil
	if err == nil || !isRefused(err, r.Trailer()) {
		return err
	}
	if r.ClientStream, err = begin(); err != nil {
		return err
	}
	if err := r.ClientStream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err // io.EOF: the status comes with the read
	}
	if err := r.ClientStream.CloseSend(); err != nil {
		return err
	}
	return r.ClientStream.RecvMsg(reply)
}

func isRefused(err error, trailer metadata.MD) bool {
	return status.Code(err) == codes.Unavailable && slices.Equal(trailer.Get(pushback), []string{"0"})
}
