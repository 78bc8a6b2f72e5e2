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

	"headrace/gateway/internal/channels"
	"headrace/gateway/internal/gateway"
)

const (
	messageBytesMax = 64 << 20 // the limit between services
	// streamWindowBytes is how far a service may run ahead of a slow client; gRPC's own estimate reaches 16 MiB.
	streamWindowBytes = 256 << 10
	// connWindowBytes limits all streams of a connection together; messages that have arrived do not count.
	connWindowBytes = 4 << 20
)

// openPeers returns the connections to the services; closePeers closes them.
func openPeers(settings settings) (peers gateway.Peers, closePeers func(), err error) {
	options, err := peerOptions(settings)
	if err != nil {
		return peers, nil, err
	}
	closePeers = func() {
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
		if *peer.conn, err = channels.Open(peer.address, options...); err != nil {
			closePeers()
			return peers, nil, fmt.Errorf("%s: %w", peer.address, err)
		}
	}
	return peers, closePeers, nil
}

// callerMetadata names the calling service where no certificate does (services/runtime/auth/authenticator.py).
func callerMetadata(token string) metadata.MD {
	if token == "" {
		return nil
	}
	return metadata.Pairs("x-headrace-caller", "facade", "x-headrace-token", token)
}

func transportCredentials(settings settings) (credentials.TransportCredentials, error) {
	if settings.suiteCert == "" {
		return insecure.NewCredentials(), nil
	}
	files, err := readCertificates(settings.suiteCert, settings.suiteKey, settings.suiteCA)
	if err != nil {
		return nil, err
	}
	return files.clientCredentials(), nil
}

// peerOptions returns the options that services/runtime/rpc/channels.py uses too.
func peerOptions(settings settings) ([]grpc.DialOption, error) {
	transport, err := transportCredentials(settings)
	if err != nil {
		return nil, err
	}
	return slices.Concat(gateway.MetadataOptions(callerMetadata(settings.token)), channels.RetryOptions(), []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// A restarting peer is back within about a second; gRPC's backoff of 120 s would look like an outage.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax), grpc.MaxCallSendMsgSize(messageBytesMax)),
		grpc.WithStaticStreamWindowSize(streamWindowBytes),
		grpc.WithStaticConnWindowSize(connWindowBytes),
		// Every replica answers for every run.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + channels.RoundRobin + `":{}}]}`),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // traffic within the suite never uses the proxy of http_proxy
	}), nil
}
