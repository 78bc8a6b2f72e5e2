package tracing

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// shutdownTimeout is how long the end of the process waits for spans to be exported; the rest is lost.
const shutdownTimeout = 3 * time.Second

// isEnabled reports whether an endpoint is set and OpenTelemetry's own switches are not off.
func isEnabled() bool {
	if strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Start records and exports spans if the environment says so; stop exports the last ones. The SDK reads its settings
// itself: OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES.
func Start(ctx context.Context) (stop func(), err error) {
	if !isEnabled() {
		return func() {}, nil
	}
	otel.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("telemetry", "problem", err.Error()) }))
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	// The environment comes last, so that its attributes win.
	serviceResource, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "headrace-gateway"), attribute.String("service.instance.id", rand.Text()),
	), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	exporter := &loggingExporter{SpanExporter: client}
	// The queue holds OTEL_BSP_MAX_QUEUE_SIZE spans, 2048 by default; when it is full, spans are dropped.
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(serviceResource))
	tracer = provider.Tracer("headrace")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		_ = provider.Shutdown(ctx) // spans that were not exported have been logged
	}, nil
}

// loggingExporter logs one line when exports begin to fail, and one when they succeed again. The batcher exports one
// batch at a time.
type loggingExporter struct {
	sdk.SpanExporter
	isFailing bool
	lost      int
}

func (t *loggingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	switch err := t.SpanExporter.ExportSpans(ctx, spans); {
	case err != nil:
		if !t.isFailing {
			slog.Warn("spans not exported", "until", "the collector takes them")
		}
		t.isFailing, t.lost = true, t.lost+len(spans)
	case t.isFailing:
		slog.Info("spans exported again", "lost", t.lost)
		t.isFailing, t.lost = false, 0
	}
	return nil
}
