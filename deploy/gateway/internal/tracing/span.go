// Package tracing records a span for each request, as services/facade/middleware/request_lifecycle.py does, and exports
// it over OTLP if the environment names an endpoint.
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

// probes are requested by machines every few seconds; with a span each they would be most of all spans.
var probes = []string{"/healthz", "/readyz"}

var (
	// tracer is nil when no spans are recorded.
	tracer trace.Tracer
	w3c    propagation.TraceContext
)

// Span is the span of one request.
type Span struct{ trace.Span }

// StartSpan opens a request's span in the trace of the forwarded traceparent, or in a new one; calls then forward its
// own traceparent.
func StartSpan(request *http.Request, forwarded metadata.MD) Span {
	if tracer == nil || slices.Contains(probes, request.URL.Path) {
		return Span{noop.Span{}}
	}
	carrier := propagation.MapCarrier{}
	if parents := forwarded.Get(traceparent); len(parents) > 0 {
		carrier[traceparent] = parents[0]
	}
	ctx, span := tracer.Start(w3c.Extract(context.Background(), carrier), request.Method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", request.Method)))
	w3c.Inject(ctx, carrier)
	forwarded.Set(traceparent, carrier[traceparent])
	return Span{span}
}

// End records how the request was answered; a client's mistake is not an error. The path is left out, because it may
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

// LogAttributes returns the span's ids for log lines.
func (s Span) LogAttributes() []any {
	context := s.SpanContext()
	if !context.IsValid() {
		return nil
	}
	return []any{"trace_id", context.TraceID().String(), "span_id", context.SpanID().String()}
}
