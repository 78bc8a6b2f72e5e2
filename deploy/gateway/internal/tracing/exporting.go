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

// lastSpans is how long the process's end waits for what has not been taken yet; then it is lost.
const lastSpans = 3 * time.Second

// isOn says whether an endpoint is set, and OpenTelemetry's own switches are not off.
func isOn() bool {
	if strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Start records and exports spans from here on, if the environment has it so; `stop` sends the last ones. The SDK reads
// its settings itself: OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES.
func Start(ctx context.Context) (stop func(), err error) {
	if !isOn() {
		return func() {}, nil
	}
	otel.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("telemetry", "problem", err.Error()) }))
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	// What the environment says is behind ours, so that it wins.
	described, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "headrace-gateway"), attribute.String("service.instance.id", rand.Text()),
	), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	exporter := &told{SpanExporter: client}
	// Its queue holds OTEL_BSP_MAX_QUEUE_SIZE spans, 2048 unless set; those that find it full are dropped.
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(described))
	tracer = provider.Tracer("headrace")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
		defer cancel()
		_ = provider.Shutdown(ctx) // what was not taken has its line already
	}, nil
}

// told is an exporter whose failures are one line when they begin, and one when they end. The batcher exports one batch
// at a time.
type told struct {
	sdk.SpanExporter
	isFailing bool
	lost      int
}

func (t *told) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
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
