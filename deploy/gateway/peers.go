package main

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"headrace/gateway/internal/gateway"
)

const (
	messageBytesMax = 64 << 20 // between services (architecture.md)
	// streamWindowBytes is how far a service may run ahead of a client that reads slowly; gRPC's own guess goes to 16 MiB.
	streamWindowBytes = 256 << 10
	// connWindowBytes is for all streams of a connection together; what has arrived does not count.
	connWindowBytes = 4 << 20
)

// connect gives a connection to a peer (host:port or unix:/path), with the same options as services/runtime/channels.py.
func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, append(gateway.Forwarding(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// A peer that restarts comes back within a second or so; 120 s would look like an outage.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
		grpc.WithStaticStreamWindowSize(streamWindowBytes),
		grpc.WithStaticConnWindowSize(connWindowBytes),
		// Any replica answers for any run.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // the suite's own traffic never takes the detour that http_proxy names
	)...)
}
