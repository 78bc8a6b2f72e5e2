package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/grpc/credentials/tls/certprovider/pemfile"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"headrace/gateway/internal/gateway"
)

// openPeers returns the connections to the services, for the life of the process.
func openPeers(settings settings) (peers gateway.Peers, err error) {
	options, err := peerOptions(settings)
	if err != nil {
		return peers, err
	}
	for service, conn := range map[string]**grpc.ClientConn{
		"ORCHESTRATOR": &peers.Orchestrator, "MEMORY": &peers.Memory, "TOOLS": &peers.Tools,
	} {
		if *conn, err = openPeer(settings["GATEWAY_"+service+"_ADDRESS"], options); err != nil {
			return peers, err
		}
	}
	return peers, nil
}

// openPeer returns a connection to an address in the forms of services/runtime/calls/addresses.py: host:port,
// unix:/path, dns:///host:port for all replicas of a name, or a comma-separated list of the first two.
func openPeer(address string, options []grpc.DialOption) (*grpc.ClientConn, error) {
	if !strings.Contains(address, ",") {
		return grpc.NewClient(address, options...)
	}
	var state resolver.State
	for part := range strings.SplitSeq(address, ",") {
		name := part // the name that the server's certificate must have
		if strings.HasPrefix(part, "unix:") {
			name = "localhost"
		}
		state.Addresses = append(state.Addresses, resolver.Address{Addr: part, ServerName: name})
	}
	list := manual.NewBuilderWithScheme("list")
	list.InitialState(state)
	return grpc.NewClient("list:///"+state.Addresses[0].ServerName, append(options, grpc.WithResolvers(list))...)
}

// peerOptions returns the options that services/runtime/rpc/channels.py uses too.
func peerOptions(settings settings) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if settings["TLS_CERT"] != "" {
		files, err := watchCertificates(settings["TLS_CERT"], settings["TLS_KEY"], settings["TLS_CA"])
		if err != nil {
			return nil, err
		}
		transport = watchedCredentials{credentials.NewTLS(nil), files}
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// A restarting peer is back within about a second; gRPC's backoff of 120 s would look like an outage.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)), // as between services
		// How far a service may run ahead of a slow client; gRPC's own estimate reaches 16 MiB.
		grpc.WithStaticStreamWindowSize(256 << 10), grpc.WithStaticConnWindowSize(4 << 20),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`), // every replica answers for every run
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(), // traffic within the suite never uses the proxy of http_proxy
	}, nil
}

// certificates are a PEM certificate, its key, and perhaps the CA of the peers, as the files now are.
type certificates struct{ certprovider.Provider }

// watchCertificates reads the files again every second, so that a renewal needs no restart; the former ones stay while the
// new ones cannot be read.
func watchCertificates(cert, key, ca string) (certificates, error) {
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return certificates{}, fmt.Errorf("cannot use the certificates %s, %s: %w", cert, key, err)
	}
	provider, err := pemfile.NewProvider(pemfile.Options{CertFile: cert, KeyFile: key, RootFile: ca, RefreshDuration: time.Second})
	files := certificates{provider}
	_ = prometheus.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{ // the same file may have been registered
		Name:        "headrace_certificate_expires_timestamp_seconds",
		Help:        "When a file's first certificate expires, in Unix seconds.",
		ConstLabels: prometheus.Labels{"file": cert},
	}, func() float64 {
		current, _ := files.readConfig(context.Background())
		return float64(current.Certificates[0].Leaf.NotAfter.Unix())
	}))
	return files, err
}

func (c certificates) readConfig(ctx context.Context) (*tls.Config, error) {
	material, err := c.KeyMaterial(ctx)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: material.Certs, RootCAs: material.Roots, MinVersion: tls.VersionTLS12}, nil
}

// serverConfig returns a configuration that shows each client the current certificate.
func (c certificates) serverConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		current, err := c.readConfig(hello.Context())
		if err != nil {
			return nil, err
		}
		return &current.Certificates[0], nil
	}}
}

// watchedCredentials use the current certificates for each new connection.
type watchedCredentials struct {
	credentials.TransportCredentials
	files certificates
}

func (w watchedCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := w.files.readConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

func (w watchedCredentials) Clone() credentials.TransportCredentials { return w }
