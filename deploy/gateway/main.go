// Command gateway is Headrace's HTTP facade on grpc-gateway. It runs in front of the embedded facade.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/grpclog"

	"headrace/gateway/internal/gateway"
	"headrace/gateway/internal/strangers"
)

func main() {
	logToStderr()
	// A delta is read by one goroutine and written by another. With a processor idle, each handover wakes its thread, which
	// was a sixth of a delta's cost on two cores (Go 1.26).
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
	if err := run(); err != nil {
		slog.Error("gateway stopped", "problem", err.Error())
		os.Exit(1)
	}
}

func run() error {
	settings, err := readSettings(os.Environ())
	if err != nil {
		return err
	}
	shown := maps.Clone(settings)
	if shown["INTERNAL_TOKEN"] != "" {
		shown["INTERNAL_TOKEN"] = "***"
	}
	slog.Info("settings in force", "settings", shown)
	peers, err := openPeers(settings)
	if err != nil {
		return err
	}
	handler, err := gateway.New(gateway.Settings{
		Heartbeat: settings.seconds("GATEWAY_HEARTBEAT_S"), SlowReader: settings.seconds("GATEWAY_SLOW_READER_S"),
		Facade: settings["GATEWAY_FACADE_ADDRESS"], Token: settings["INTERNAL_TOKEN"],
	}, peers)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       75 * time.Second, // longer than proxies keep a connection
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	listener, err := net.Listen("tcp", settings["GATEWAY_LISTEN"])
	if err != nil {
		return err
	}
	if settings["GATEWAY_TLS_CERTIFICATE"] != "" {
		files, err := watchCertificates(settings["GATEWAY_TLS_CERTIFICATE"], settings["GATEWAY_TLS_KEY"], "")
		if err != nil {
			return err
		}
		server.TLSConfig = files.serverConfig()
	}
	listener = strangers.Bound(server, listener)
	metricsAddress := ""
	if settings["GATEWAY_METRICS_LISTEN"] != "" {
		metrics, err := net.Listen("tcp", settings["GATEWAY_METRICS_LISTEN"])
		if err != nil {
			return err
		}
		metricsAddress = metrics.Addr().String()
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.Handler())
		go func() { _ = (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(metrics) }()
	}
	slog.Info("serving", "addresses", []string{listener.Addr().String()}, "tls", server.TLSConfig != nil,
		"metrics", metricsAddress)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			failed <- server.ServeTLS(listener, "", "")
		} else {
			failed <- server.Serve(listener)
		}
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once, and this one once open requests have ended
	drain, cancel := context.WithTimeout(context.Background(), settings.seconds("GATEWAY_DRAIN_S"))
	defer cancel()
	if err := server.Shutdown(drain); errors.Is(err, context.DeadlineExceeded) {
		slog.Info("stopped", "cut", true)
		return server.Close()
	}
	return nil
}

// logToStderr writes one JSON object a line, with the keys that the other services use for time and event.
func logToStderr() {
	names := map[string]string{slog.MessageKey: "event", slog.TimeKey: "timestamp"}
	rename := func(_ []string, attribute slog.Attr) slog.Attr {
		if name := names[attribute.Key]; name != "" {
			attribute.Key = name
		}
		if attribute.Key == slog.LevelKey {
			attribute.Value = slog.StringValue(strings.ToLower(attribute.Value.String()))
		}
		return attribute
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: rename})
	slog.SetDefault(slog.New(handler).With("service", "gateway"))
	libraries := slog.NewLogLogger(slog.Default().Handler(), slog.LevelInfo).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, libraries, io.Discard)) // it gets the errors too
}
