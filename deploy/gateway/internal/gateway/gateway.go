// Package gateway is the production facade: HTTP and Server-Sent Events in front of the gRPC services, on grpc-gateway.
//
// Unary routes are grpc-gateway's generated handlers with the contract's JSON form and envelope. Streams of events and
// files are written by hand, generic over the annotations, because no annotation describes their form over HTTP.
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

// Settings configure the handlers.
type Settings struct {
	// Heartbeat is how long a stream may be silent before a comment is sent, so that proxies keep it open.
	Heartbeat time.Duration
	// SlowReader is how long a client may take for one write before its connection is closed; its run goes on.
	SlowReader time.Duration
	// Hosts are the names under which requests are served.
	Hosts Hosts
	// Facade is the address of the embedded facade, for the paths that it alone serves; empty: they are not found.
	Facade string
	// AllowUnauthenticated lets every user of this machine in where nobody shows credentials.
	AllowUnauthenticated bool
}

// unaryTimeout limits one answer, as in services/facade/handlers/rpc.py. Streams have no limit, because a run may wait
// for people.
const unaryTimeout = 30 * time.Second

// Peers are the connections to the services, each shared by all requests.
type Peers struct{ Orchestrator, Memory, Tools *grpc.ClientConn }

type gateway struct {
	settings Settings
	peers    Peers
	// stopping ends when the gateway is to stop.
	stopping context.Context
	// routes are keyed by method and pattern.
	routes map[string]route
}

// New returns the handler of everything that the gateway serves. Streams without an end of their own end with ctx.
func New(ctx context.Context, settings Settings, peers Peers) (http.Handler, error) {
	g := &gateway{settings, peers, ctx, map[string]route{}}
	all := listRoutes()
	for _, r := range all {
		g.routes[r.verb+" "+r.pattern()] = r
	}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.SetQueryParameterParser(queryParser{}),
		runtime.WithForwardResponseRewriter(wrapResponses(all)),
		runtime.WithErrorHandler(handleError),
		runtime.WithRoutingErrorHandler(g.handleRoutingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithIncomingHeaderMatcher(dropHeader),
		runtime.WithOutgoingHeaderMatcher(dropHeader),
		runtime.WithOutgoingTrailerMatcher(dropHeader),
		runtime.WithWriteContentLength(),
		runtime.WithMiddlewares(g.checkRequest),
	)
	if err := registerServices(ctx, mux, peers); err != nil {
		return nil, err
	}
	served := g.withFacade(mux)
	guarded := g.withCredentialCheck(served)
	if !settings.Hosts.Credentials && !settings.AllowUnauthenticated {
		guarded = withLocalUserCheck(served)
	}
	return withRequestLog(withPageGuard(settings.Hosts, guarded)), g.registerHandlers(mux, all)
}

func registerServices(ctx context.Context, mux *runtime.ServeMux, peers Peers) error {
	if err := headracev1.RegisterAgentServiceHandler(ctx, mux, peers.Orchestrator); err != nil {
		return err
	}
	if err := headracev1.RegisterGateServiceHandler(ctx, mux, peers.Orchestrator); err != nil {
		return err
	}
	if err := headracev1.RegisterOperatorServiceHandler(ctx, mux, peers.Orchestrator); err != nil {
		return err
	}
	if err := headracev1.RegisterDataServiceHandler(ctx, mux, peers.Orchestrator); err != nil {
		return err
	}
	if err := headracev1.RegisterMemoryServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	if err := headracev1.RegisterAuditServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	if err := headracev1.RegisterKeyServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	if err := headracev1.RegisterSpendServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	if err := headracev1.RegisterScheduleServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	if err := headracev1.RegisterWebhookServiceHandler(ctx, mux, peers.Memory); err != nil {
		return err
	}
	return headracev1.RegisterToolServiceHandler(ctx, mux, peers.Tools)
}

// registerHandlers registers the handwritten handlers; the last handler registered for a path wins.
func (g *gateway) registerHandlers(mux *runtime.ServeMux, all []route) error {
	handle := func(path string, answer runtime.HandlerFunc, verbs ...string) error {
		for _, verb := range verbs {
			if err := mux.HandlePath(verb, path, answer); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range all {
		if answer, verbs := g.handlerFor(r); answer != nil {
			if err := handle(r.path, answer, verbs...); err != nil {
				return err
			}
		}
	}
	if err := handle("/healthz", serveHealthz, "GET", "HEAD"); err != nil {
		return err
	}
	if err := handle("/openapi.json", serveOpenAPI, "GET", "HEAD"); err != nil {
		return err
	}
	return handle("/readyz", g.serveReadyz, "GET", "HEAD")
}

// handlerFor returns the handler and the methods of a route that grpc-gateway's own handler cannot serve.
func (g *gateway) handlerFor(r route) (runtime.HandlerFunc, []string) {
	switch {
	case r.isUnary():
		return nil, nil
	case r.isStreamOfEvents():
		return g.streamEvents(r), []string{r.verb}
	case r.isWatch():
		return g.streamMessages(r), []string{r.verb}
	case r.isHook():
		return g.receiveWebhook(r), []string{r.verb}
	case r.isUpload():
		return g.uploadFile(r), []string{r.verb}
	case r.isFile():
		return g.serveFile(r), []string{r.verb, "HEAD"}
	case r.isArchive():
		return g.sendArchive(r), []string{r.verb}
	default:
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
			message := r.verb + " " + r.path + " is not served by this version"
			envelope.Failure{Status: http.StatusNotImplemented, Reason: "UNSUPPORTED", Message: message}.Write(w)
		}, []string{r.verb}
	}
}

// connFor returns the connection to the service that answers a route.
func (g *gateway) connFor(r route) *grpc.ClientConn {
	switch r.rpc.ParentFile() {
	case headracev1.File_headrace_v1_agent_proto, headracev1.File_headrace_v1_data_proto,
		headracev1.File_headrace_v1_gates_proto, headracev1.File_headrace_v1_operator_proto:
		return g.peers.Orchestrator
	case headracev1.File_headrace_v1_memory_proto, headracev1.File_headrace_v1_audit_proto, headracev1.File_headrace_v1_keys_proto,
		headracev1.File_headrace_v1_schedule_proto, headracev1.File_headrace_v1_spend_proto,
		headracev1.File_headrace_v1_webhook_proto:
		return g.peers.Memory
	default:
		return g.peers.Tools
	}
}

func dropHeader(string) (string, bool) { return "", false }
