// Package gateway is a facade on grpc-gateway: JSON, and a run's events as Server-Sent Events, in front of the gRPC
// services. Everything else is passed on to the embedded facade: other protocols, the console, what pages send, watches,
// files, and unknown paths.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headracev1 "headrace/gateway/gen/headrace/v1"
	"headrace/gateway/internal/jsonform"
)

// Settings configure the handlers.
type Settings struct {
	// Heartbeat is how long a stream may be silent before a comment is sent, so that proxies keep it open.
	Heartbeat time.Duration
	// SlowReader is how long a client may take for one write before its connection is closed; its run continues.
	SlowReader time.Duration
	Facade     string // address of the embedded facade
	// Token proves to the services that a facade calls, where no certificate does; it may be empty.
	Token string
}

// Peers are the connections to the services, each shared by all requests.
type Peers struct{ Orchestrator, Memory, Tools *grpc.ClientConn }

type gateway struct {
	settings Settings
	agents   headracev1.AgentServiceClient
	facade   *httputil.ReverseProxy
	// routes are those served here, by method and path.
	routes map[string]route
}

// New returns the handler of everything that the gateway serves.
func New(settings Settings, peers Peers) (http.Handler, error) {
	ctx := context.Background() // the connections are there until the process ends
	g := &gateway{settings, headracev1.NewAgentServiceClient(peers.Orchestrator), newFacadeProxy(settings.Facade), listRoutes()}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &marshaler{}),
		runtime.SetQueryParameterParser(&jsonform.QueryParser{}),
		runtime.WithForwardResponseRewriter(encodeResponse),
		runtime.WithErrorHandler(handleError),
		runtime.WithStreamErrorHandler(handleStreamError),
		runtime.WithRoutingErrorHandler(g.handleRoutingError),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(), // net/http does it
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithWriteContentLength(),
		runtime.WithMiddlewares(g.checkRequest),
	)
	err := errors.Join(
		headracev1.RegisterAgentServiceHandler(ctx, mux, peers.Orchestrator),
		headracev1.RegisterAuditServiceHandler(ctx, mux, peers.Memory),
		headracev1.RegisterDataServiceHandler(ctx, mux, peers.Orchestrator),
		headracev1.RegisterGateServiceHandler(ctx, mux, peers.Orchestrator),
		headracev1.RegisterKeyServiceHandler(ctx, mux, peers.Memory),
		headracev1.RegisterMemoryServiceHandler(ctx, mux, peers.Memory),
		headracev1.RegisterOperatorServiceHandler(ctx, mux, peers.Orchestrator),
		headracev1.RegisterScheduleServiceHandler(ctx, mux, peers.Memory),
		headracev1.RegisterSpendServiceHandler(ctx, mux, peers.Memory),
		headracev1.RegisterToolServiceHandler(ctx, mux, peers.Tools),
		headracev1.RegisterWebhookServiceHandler(ctx, mux, peers.Memory),
	)
	front := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch {
		case request.URL.Path == "/healthz":
			writeJSON(w, http.StatusOK, []byte(`{"code":0,"msg":"success","data":{"status":"live"}}`))
		case isFromPage(request.Header):
			g.facade.ServeHTTP(w, request)
		default:
			mux.ServeHTTP(w, request)
		}
	})
	return g.withRequestLog(front), err
}

// handleRoutingError has the embedded facade answer on paths and methods that are not the contract's.
func (g *gateway) handleRoutingError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, request *http.Request, _ int,
) {
	g.facade.ServeHTTP(w, request)
}

// route is what an HTTP method and path call.
type route struct {
	// isRun says whether the answer is a run's events.
	isRun, hasBody bool
	// responseBody is the response field that becomes `data`; empty stands for the whole response.
	responseBody string
}

// listRoutes returns the annotated routes that are served here, by method and path: one JSON answer, or a run's events.
// The embedded facade serves the other streams, and what carries raw bytes: files, and what webhooks post.
func listRoutes() map[string]route {
	routes := map[string]route{}
	protoregistry.GlobalFiles.RangeFilesByPackage("headrace.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				addRoutes(routes, file.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
	return routes
}

func addRoutes(routes map[string]route, rpc protoreflect.MethodDescriptor) {
	isRun := rpc.Output() == (&headracev1.AgentDelta{}).ProtoReflect().Descriptor()
	if (rpc.IsStreamingServer() && !isRun) || rpc.IsStreamingClient() || rpc.Name() == "ReceiveWebhook" {
		return
	}
	rule, _ := proto.GetExtension(rpc.Options(), annotations.E_Http).(*annotations.HttpRule)
	for _, binding := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
		reflected := binding.ProtoReflect()
		if verb := reflected.WhichOneof(reflected.Descriptor().Oneofs().ByName("pattern")); verb != nil {
			key := strings.ToUpper(string(verb.Name())) + " " + reflected.Get(verb).String()
			routes[key] = route{isRun, binding.GetBody() == "*", binding.GetResponseBody()}
		}
	}
}

// isFromPage reports whether a page may have sent a request: one of another origin, which the embedded facade's settings
// may allow, or one with the session of somebody who has signed in, which the facade alone can read.
func isFromPage(header http.Header) bool {
	site := header.Get("Sec-Fetch-Site")
	return (site != "" && site != "same-origin" && site != "none") || header.Get("Origin") != "" ||
		strings.Contains(header.Get("Cookie"), "headrace-session")
}

// newFacadeProxy passes requests on to the embedded facade, and each piece of an answer as it comes. The caller's
// credential goes along, and the facade checks it.
func newFacadeProxy(address string) *httputil.ReverseProxy {
	network := "tcp"
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		network, address = "unix", path
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "facade" // the header Host stays
			r.SetXForwarded()
			// Behind a proxy that ends TLS, agents' cards name that proxy's address.
			for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
				if given := r.In.Header.Get(name); given != "" {
					r.Out.Header.Set(name, given)
				}
			}
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			DisableCompression:  true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     60 * time.Second, // shorter than the facade keeps a connection
		},
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelInfo),
		ModifyResponse: func(response *http.Response) error {
			response.Header.Del("X-Request-Id") // the gateway has set both
			response.Header.Del("Cross-Origin-Resource-Policy")
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, request *http.Request, err error) {
			slog.Info("facade away", "problem", err.Error())
			problem := failure{status: http.StatusServiceUnavailable, reason: "OVERLOADED", retriable: true,
				message: "the facade that serves this path cannot be reached; try again"}
			if strings.Contains(err.Error(), "chunk") { // as all errors of net/http about a body's chunks
				problem = invalid("body", "must be a whole body as HTTP frames it")
			}
			problem.write(w.(*answer))
		},
	}
}
