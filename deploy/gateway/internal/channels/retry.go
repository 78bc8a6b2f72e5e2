// Package channels opens connections to services with several replicas: calls go to the replicas in turn, and a call
// that a stopping replica refuses is made once more at another one.
package channels

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

// pushbackKey with the value 0, beside UNAVAILABLE, says that a replica has not begun the call and that another one
// takes it now (services/runtime/rpc/interceptors.py). gRPC's own retryPolicy would also repeat calls that were cut off
// after they had begun.
const pushbackKey = "grpc-retry-pushback-ms"

// RetryOptions returns interceptors that repeat a refused call once. Uploads are not repeated, because the data sent is
// gone.
func RetryOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(retryUnary), grpc.WithChainStreamInterceptor(retryStream)}
}

func retryUnary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	ctx = withLastReplica(ctx)
	var trailer metadata.MD
	err := invoke(ctx, method, request, reply, conn, append(slices.Clip(options), grpc.Trailer(&trailer))...)
	if isRefused(err, trailer) {
		return invoke(ctx, method, request, reply, conn, options...)
	}
	return err
}

func retryStream(
	ctx context.Context, kind *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if kind.ClientStreams {
		return open(ctx, kind, conn, method, options...)
	}
	ctx = withLastReplica(ctx)
	reopen := func() (grpc.ClientStream, error) { return open(ctx, kind, conn, method, options...) }
	call, err := reopen()
	if err != nil {
		return nil, err
	}
	return &retryableStream{ClientStream: call, reopen: reopen}, nil
}

// retryableStream is a call with one request, which it keeps until the first answer.
type retryableStream struct {
	grpc.ClientStream
	// reopen is nil once the call may not be repeated.
	reopen  func() (grpc.ClientStream, error)
	request any
}

func (r *retryableStream) SendMsg(request any) error {
	r.request = request
	return r.ClientStream.SendMsg(request)
}

func (r *retryableStream) RecvMsg(reply any) error {
	err := r.ClientStream.RecvMsg(reply)
	if r.reopen == nil {
		return err
	}
	reopen, request := r.reopen, r.request
	r.reopen, r.request = nil, nil
	if err == nil || !isRefused(err, r.Trailer()) {
		return err
	}
	if r.ClientStream, err = reopen(); err != nil {
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
	return status.Code(err) == codes.Unavailable && slices.Equal(trailer.Get(pushbackKey), []string{"0"})
}
