// Command gateway is Headrace's production HTTP facade.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"headrace/gateway/internal/gateway"
	"headrace/gateway/internal/strangers"
	"headrace/gateway/internal/tracing"
)

// headerTimeout limits reading a request's head.
const headerTimeout = 10 * time.Second

func main() {
	logToStderr()
	shareProcessors()
	if err := run(); err != nil {
		slog.Error("gateway stopped", "problem", err.Error())
		os.Exit(1)
	}
}

// shareProcessors leaves half of the processors to the services beside the gateway, unless GOMAXPROCS says otherwise. A
// delta is read by one goroutine and written by another; with a processor idle, each handing-over wakes its thread, which
// was a sixth of a delta's cost on two cores (Go 1.26).
func shareProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

func run() error {
	settings, err := readSettings(os.Environ())
	if err != nil {
		return err
	}
	slog.Info("settings in force", "settings", settings.effective)
	stops := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		stops = append(stops, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stops...)
	defer stop()
	peers, closePeers, err := openPeers(settings)
	if err != nil {
		return err
	}
	defer closePeers()
	stopTracing, err := tracing.Start(ctx)
	if err != nil {
		return fmt.Errorf("a variable OTEL_… has a wrong value: %w", err)
	}
	defer stopTracing()
	handler, err := gateway.New(ctx, settings.handlers, peers)
	if err != nil {
		return err
	}
	return serve(ctx, stop, settings, handler)
}

// serve answers requests until ctx ends, then lets open requests finish within the drain time.
func serve(ctx context.Context, stop func(), settings settings, handler http.Handler) error {
	listener, err := net.Listen("tcp", settings.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       75 * time.Second, // longer than proxies keep a connection
		MaxHeaderBytes:    32 << 10,
	}
	if settings.certificate != "" {
		files, err := readCertificates(settings.certificate, settings.key, "")
		if err != nil {
			return err
		}
		server.TLSConfig = files.serverConfig()
	}
	listener = strangers.Bound(server, listener)
	metricsAddress, closeMetrics, err := serveMetrics(settings.metricsListen)
	if err != nil {
		return err
	}
	defer closeMetrics()
	slog.Info("serving", "addresses", []string{listener.Addr().String()}, "tls", server.TLSConfig != nil,
		"metrics", metricsAddress)
	serveErrors := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			serveErrors <- server.ServeTLS(listener, "", "")
			return
		}
		serveErrors <- server.Serve(listener)
	}()
	select {
	case err := <-serveErrors:
		return err
	case <-ctx.Done():
	}
	stop()                        // a second signal ends at once
	signal.Ignore(syscall.SIGHUP) // a terminal that goes away hangs up more than once
	drain, cancel := context.WithTimeout(context.Background(), settings.drain)
	defer cancel()
	if err := server.Shutdown(drain); errors.Is(err, context.DeadlineExceeded) {
		slog.Info("stopped", "cut", true)
		return server.Close()
	}
	return nil
}

// serveMetrics answers Prometheus at an address of its own until it is closed; an empty one serves nowhere.
func serveMetrics(listen string) (address string, closeServer func(), err error) {
	if listen == "" {
		return "", func() {}, nil
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: gateway.MetricsHandler(), ReadHeaderTimeout: headerTimeout}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}
