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
	"syscall"
	"time"

	"google.golang.org/grpc"

	"headrace/gateway/internal/gateway"
)

func main() {
	logToStderr()
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
	slog.Info("settings in force", "settings", settings.inForce)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var peers gateway.Peers
	for _, peer := range []struct {
		address string
		conn    **grpc.ClientConn
	}{{settings.orchestrator, &peers.Orchestrator}, {settings.memory, &peers.Memory}, {settings.tools, &peers.Tools}} {
		if *peer.conn, err = connect(peer.address); err != nil {
			return fmt.Errorf("%s: %w", peer.address, err)
		}
		defer (*peer.conn).Close()
	}
	handler, err := gateway.New(ctx, settings.handlers, peers)
	if err != nil {
		return err
	}
	return serve(ctx, stop, settings, handler)
}

// serve answers until it is told to stop, then lets open requests go on for the drain's time.
func serve(ctx context.Context, stop func(), settings settings, handler http.Handler) error {
	listener, err := net.Listen("tcp", settings.listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       75 * time.Second, // longer than proxies keep a connection
		MaxHeaderBytes:    32 << 10,
	}
	slog.Info("serving", "addresses", []string{listener.Addr().String()}, "tls", settings.certificate != "")
	failed := make(chan error, 1)
	go func() {
		if settings.certificate != "" {
			failed <- server.ServeTLS(listener, settings.certificate, settings.key)
			return
		}
		failed <- server.Serve(listener)
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends at once
	drain, cancel := context.WithTimeout(context.Background(), settings.drain)
	defer cancel()
	if err := server.Shutdown(drain); errors.Is(err, context.DeadlineExceeded) {
		slog.Info("stopped", "cut", true)
		return server.Close()
	}
	return nil
}
