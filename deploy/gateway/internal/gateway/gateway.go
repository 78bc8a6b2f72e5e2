// Package gateway is the production facade: HTTP and Server-Sent Events in front of the gRPC services, on grpc-gateway.
//
// Unary routes are grpc-gateway's generated handlers with the contract's JSON form and envelope. Streams of events and
// files are written by hand, generic over the annotations, because no annotation says what they look like over HTTP.
package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/envelope"
)

// Settings of the handlers.
type Settings struct {
	// Heartbeat is how long a stream may be silent before it gets a comment, so that proxies keep it open.
	Heartbeat time.Duration
	// SlowReader is how long a client may take for one write before it is hung up on; its run goes on.
	SlowReader time.Duration
}

// unaryTimeout is for one answer, as services/facade/handlers/rpc.py has it. Streams have none: a run waits for people.
const unaryTimeout = 30 * time.Second

// Peers are the connections to the services, each shared by all requests.
type Peers struct{ Orchestrator, Memory, Tools *grpc.ClientConn }

type gateway struct {
	settings Settings
	peers    Peers
	// by method and pattern
	routes map[string]route
}

// New gives the handler of everything that the gateway serves.
func New(ctx context.Context, settings Settings, peers Peers) (http.Handler, error) {
	g := &gateway{settings, peers, map[string]route{}}
	all := routes()
	for _, r := range all {
		g.routes[r.verb+" "+r.pattern()] = r
	}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.SetQueryParameterParser(parameters{}),
		runtime.WithForwardResponseRewriter(rewrite(all)),
		runtime.WithErrorHandler(refuse),
		runtime.WithRoutingErrorHandler(g.refuseRoute),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(nothing),
		runtime.WithOutgoingHeaderMatcher(nothing),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithWriteContentLength(),
		runtime.WithMiddlewares(g.prepared),
	)
	if err := register(ctx, mux, peers); err != nil {
		return nil, err
	}
	return around(mux), g.handleOwn(mux, all)
}

func register(ctx context.Context, mux *runtime.ServeMux, peers Peers) error {
	if err := headracev1.RegisterAgentServiceHandler(ctx, mux, peers.Orchestrator); err != nil {
		return err
	}
	if err := headracev1.RegisterMemoryServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	return headracev1.RegisterToolServiceHandler(ctx, mux, peers.Tools)
}

// handleOwn registers what is written by hand; of several handlers for a path the last one counts.
func (g *gateway) handleOwn(mux *runtime.ServeMux, all []route) error {
	handle := func(path string, answer runtime.HandlerFunc, verbs ...string) error {
		for _, verb := range verbs {
			if err := mux.HandlePath(verb, path, answer); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range all {
		if answer, verbs := g.answering(r); answer != nil {
			if err := handle(r.path, answer, verbs...); err != nil {
				return err
			}
		}
	}
	if err := handle("/healthz", healthz, "GET", "HEAD"); err != nil {
		return err
	}
	if err := handle("/metrics", metrics, "GET", "HEAD"); err != nil {
		return err
	}
	if err := handle("/openapi.json", openapi, "GET", "HEAD"); err != nil {
		return err
	}
	return handle("/readyz", g.readyz, "GET", "HEAD")
}

// answering gives the handler of a route that grpc-gateway's own cannot serve, and its methods.
func (g *gateway) answering(r route) (runtime.HandlerFunc, []string) {
	switch {
	case r.isUnary():
		return nil, nil
	case r.isStreamOfEvents():
		return g.events(r), []string{r.verb}
	case r.isUpload():
		return g.upload(r), []string{r.verb}
	case r.isFile():
		return g.resource(r), []string{r.verb, "HEAD"}
	default:
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
			message := r.verb + " " + r.path + " is not served by this version"
			envelope.Failure{Status: http.StatusNotImplemented, Reason: "UNSUPPORTED", Message: message}.Write(w)
		}, []string{r.verb}
	}
}

// connOf gives the connection to the service that answers a route.
func (g *gateway) connOf(r route) *grpc.ClientConn {
	switch r.rpc.ParentFile() {
	case headracev1.File_headrace_v1_agent_proto:
		return g.peers.Orchestrator
	case headracev1.File_headrace_v1_memory_proto:
		return g.peers.Memory
	default:
		return g.peers.Tools
	}
}

func nothing(string) (string, bool) { return "", false }
