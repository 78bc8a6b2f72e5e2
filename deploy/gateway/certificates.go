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

	"google.golang.org/grpc/credentials"
)

// certificates are a certificate with its key and, where there is one, the CA of the other end; files in PEM. They are
// looked at for each new connection, as services/runtime/process/tls.py does it: a renewal needs no restart.
type certificates struct {
	cert, key, ca string

	mu     sync.Mutex
	seen   [3]stamp
	config *tls.Config
}

// stamp is what changes when a file does; that of a file that is gone is zero.
type stamp struct {
	changed time.Time
	size    int64
}

func readCertificates(cert, key, ca string) (*certificates, error) {
	c := &certificates{cert: cert, key: key, ca: ca}
	c.seen = c.stamps()
	var err error
	c.config, err = c.read()
	return c, err
}

// current gives the files as they are now, or as they were when they last made sense.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamps := c.stamps()
	if stamps == c.seen {
		return c.config
	}
	c.seen = stamps
	config, err := c.read()
	if err != nil {
		// Half of a renewal, perhaps; the other half is a change that is seen too.
		slog.Warn("certificates not read, the former ones stay", "problem", err.Error())
		return c.config
	}
	slog.Info("certificates read", "cert", c.cert)
	c.config = config
	return config
}

func (c *certificates) read() (*tls.Config, error) {
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

func (c *certificates) stamps() (found [3]stamp) {
	for i, path := range []string{c.cert, c.key, c.ca} {
		if info, err := os.Stat(path); err == nil {
			found[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return found
}

// listening shows the certificate of the time to each client.
func (c *certificates) listening() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &c.current().Certificates[0], nil
		},
	}
}

// connecting is TLS with the certificates of the time for each connection to a service.
func (c *certificates) connecting() credentials.TransportCredentials {
	return renewed{credentials.NewTLS(c.current()), c}
}

type renewed struct {
	credentials.TransportCredentials
	files *certificates
}

func (r renewed) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.files.current()).ClientHandshake(ctx, authority, conn)
}

func (r renewed) Clone() credentials.TransportCredentials { return r }
