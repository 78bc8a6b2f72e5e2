package main

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"headrace/gateway/internal/calling"
	"headrace/gateway/internal/gateway"
)

const (
	messageBytesMax = 64 << 20 // between services (architecture.md)
	// streamWindowBytes is how far a service may run ahead of a client that reads slowly; gRPC's own guess goes to 16 MiB.
	streamWindowBytes = 256 << 10
	// connWindowBytes is for all streams of a connection together; what has arrived does not count.
	connWindowBytes = 4 << 20
)

// peersOf gives the connections to the services; `hangUp` ends them.
func peersOf(settings settings) (peers gateway.Peers, hangUp func(), err error) {
	options, err := peerOptions(settings)
	if err != nil {
		return peers, nil, err
	}
	hangUp = func() {
		for _, conn := range []*grpc.ClientConn{peers.Orchestrator, peers.Memory, peers.Tools} {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	for _, peer := range []struct {
		address string
		conn    **grpc.ClientConn
	}{{settings.orchestrator, &peers.Orchestrator}, {settings.memory, &peers.Memory}, {settings.tools, &peers.Tools}} {
		if *peer.conn, err = calling.Client(peer.address, options...); err != nil {
			hangUp()
			return peers, nil, fmt.Errorf("%s: %w", peer.address, err)
		}
	}
	return peers, hangUp, nil
}

// badge is how the gateway says which service it is where its certificate does not (services/runtime/auth/authenticator.py).
func badge(token string) metadata.MD {
	if token == "" {
		return nil
	}
	return metadata.Pairs("x-headrace-caller", "facade", "x-headrace-token", token)
}

func transportOf(settings settings) (credentials.TransportCredentials, error) {
	if settings.suiteCert == "" {
		return insecure.NewCredentials(), nil
	}
	files, err := readCertificates(settings.suiteCert, settings.suiteKey, settings.suiteCA)
	if err != nil {
		return nil, err
	}
	return files.connecting(), nil
}

// peerOptions are those of services/runtime/rpc/channels.py.
func peerOptions(settings settings) ([]grpc.DialOption, error) {
	transport, err := transportOf(settings)
	if err != nil {
		return nil, err
	}
	return slices.Concat(gateway.Forwarding(badge(settings.token)), calling.Again(), []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
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
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + calling.Turns + `":{}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // the suite's own traffic never takes the detour that http_proxy names
	}), nil
}
