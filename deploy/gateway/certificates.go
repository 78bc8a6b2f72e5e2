package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// certificates reads a PEM certificate, its key and optionally the CA of the peers. The files are checked for each new
// connection, as in services/runtime/process/transport.py, so that a renewal needs no restart.
type certificates struct {
	cert, key, ca string

	mu         sync.Mutex
	lastStamps [3]stamp
	config     *tls.Config
}

// stamp tells whether a file has changed; a missing file's is zero.
type stamp struct {
	modified time.Time
	size     int64
}

func readCertificates(cert, key, ca string) (*certificates, error) {
	c := &certificates{cert: cert, key: key, ca: ca}
	c.lastStamps = c.readStamps()
	var err error
	if c.config, err = c.readConfig(); err == nil {
		c.reportExpiry()
	}
	return c, err
}

// reportExpiry lets Prometheus see when the certificate expires, as services/runtime/process/tls_expiry.py does.
func (c *certificates) reportExpiry() {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "headrace_certificate_expires_timestamp_seconds",
		Help:        "When a file's first certificate expires, in Unix seconds.",
		ConstLabels: prometheus.Labels{"file": c.cert},
	}, func() float64 { return float64(c.currentConfig().Certificates[0].Leaf.NotAfter.Unix()) })
	_ = prometheus.Register(gauge) // whoever else reads the file tells the same
}

// currentConfig returns the files as they are now, or as they last were when they could be read.
func (c *certificates) currentConfig() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamps := c.readStamps()
	if stamps == c.lastStamps {
		return c.config
	}
	c.lastStamps = stamps
	config, err := c.readConfig()
	if err != nil {
		// This may be half of a renewal; the other half changes a stamp again.
		slog.Warn("certificates not read, the former ones stay", "problem", err.Error())
		return c.config
	}
	slog.Info("certificates read", "cert", c.cert)
	c.config = config
	return config
}

func (c *certificates) readConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificates %s, %s: %w", c.cert, c.key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.ca == "" {
		return config, nil // the machine's CAs
	}
	pem, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, fmt.Errorf("cannot use the CA %s: %w", c.ca, err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("cannot use the CA %s: %w", c.ca, errors.New("no certificate in it"))
	}
	return config, nil
}

func (c *certificates) readStamps() (stamps [3]stamp) {
	for i, path := range []string{c.cert, c.key, c.ca} {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// serverConfig returns a configuration that shows each client the current certificate.
func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &c.currentConfig().Certificates[0], nil
		},
	}
}

// clientCredentials returns credentials that use the current certificates for each new connection.
func (c *certificates) clientCredentials() credentials.TransportCredentials {
	return reloadingCredentials{credentials.NewTLS(c.currentConfig()), c}
}

type reloadingCredentials struct {
	credentials.TransportCredentials
	files *certificates
}

func (r reloadingCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.files.currentConfig()).ClientHandshake(ctx, authority, conn)
}

func (r reloadingCredentials) Clone() credentials.TransportCredentials { return r }
