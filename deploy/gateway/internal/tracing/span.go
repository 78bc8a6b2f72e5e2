// Package tracing records a span for each request, as services/facade/middleware/tracing.py does, and exports it over OTLP where
// the environment says where to.
package tracing

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/metadata"
)

const traceparent = "traceparent"

// probes are asked every few seconds by machines: a span each would be most of all spans.
var probes = []string{"/healthz", "/readyz", "/metrics"}

var (
	// tracer is nil where no spans are recorded.
	tracer trace.Tracer
	w3c    propagation.TraceContext
)

// Span is of one request.
type Span struct{ trace.Span }

// Begin opens a request's span, in the trace that the forwarded traceparent names or the first of a new one; calls get
// its own traceparent instead.
func Begin(request *http.Request, forwarded metadata.MD) Span {
	if tracer == nil || slices.Contains(probes, request.URL.Path) {
		return Span{noop.Span{}}
	}
	carrier := propagation.MapCarrier{}
	if given := forwarded.Get(traceparent); len(given) > 0 {
		carrier[traceparent] = given[0]
	}
	ctx, span := tracer.Start(w3c.Extract(context.Background(), carrier), request.Method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", request.Method)))
	w3c.Inject(ctx, carrier)
	forwarded.Set(traceparent, carrier[traceparent])
	return Span{span}
}

// End says how the request was answered; what the client did wrong is no error of ours. The path is left out: it may
// name a user's file.
func (s Span) End(method, route string, status int, id string) {
	if s.IsRecording() {
		s.SetName(method + " " + route)
		s.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status),
			attribute.String("headrace.request.id", id))
		if status >= http.StatusInternalServerError {
			s.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
			s.SetStatus(codes.Error, "")
		}
	}
	s.Span.End()
}

// ForLog gives the span's ids, as log lines have them.
func (s Span) ForLog() []any {
	context := s.SpanContext()
	if !context.IsValid() {
		return nil
	}
	return []any{"trace_id", context.TraceID().String(), "span_id", context.SpanID().String()}
}
