// Package strangers limits the connections of one address that have brought no admitted request.
//
// Each costs a descriptor and some memory until it times out, and one address could take all descriptors. All clients of
// a proxy share its address, so only connections that wait for a request count.
package strangers

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
)

const (
	// connectionsMax is as in services/facade/strangers.py; one more closes the connection that has waited longest.
	connectionsMax = 1024
	// These are the services' (services/runtime/http2/limits.py), for keys that make a handshake cost 2 ms.
	handshakesSaved     = 100
	handshakesPerSecond = 25
)

var refusedTotal = promauto.NewCounter(prometheus.CounterOpts{
	Name: "headrace_gateway_handshakes_refused_total",
	Help: "Connections closed because their address had no TLS handshake left.",
})

type contextKey struct{}

type connections struct {
	net.Listener
	mutex    sync.Mutex
	admitted map[net.Conn]bool
	// waiting are those that wait for a request, by address, the longest first.
	waiting map[string][]net.Conn
	// handshakes are what addresses may begin without an admitted request; a missing one has all. It is nil without TLS.
	handshakes map[string]*rate.Limiter
}

// Bound limits the connections of a server that does not serve yet, and, if it has TLS, the handshakes of those that the
// returned listener accepts.
func Bound(server *http.Server, listener net.Listener) net.Listener {
	c := &connections{Listener: listener, admitted: map[net.Conn]bool{}, waiting: map[string][]net.Conn{}}
	if server.TLSConfig != nil {
		c.handshakes = map[string]*rate.Limiter{}
	}
	server.ConnState = c.follow
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, contextKey{}, func() { c.admit(conn) })
	}
	return c
}

// Admit records that a request was admitted: its connection is no longer a stranger's.
func Admit(ctx context.Context) {
	if admit, isBound := ctx.Value(contextKey{}).(func()); isBound {
		admit()
	}
}

func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	address := addressOf(conn)
	waiting := slices.DeleteFunc(c.waiting[address], func(other net.Conn) bool { return other == conn })
	if (state == http.StateNew || state == http.StateIdle) && !c.admitted[conn] {
		waiting = append(waiting, conn)
	}
	if len(waiting) > connectionsMax {
		go func(oldest net.Conn) { _ = oldest.Close() }(waiting[0]) // closing TLS may take seconds
		waiting = waiting[1:]
	}
	if c.waiting[address] = waiting; len(waiting) == 0 {
		delete(c.waiting, address)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		delete(c.admitted, conn)
	}
}

func (c *connections) admit(conn net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if limit := c.handshakes[addressOf(conn)]; limit != nil && !c.admitted[conn] {
		limit.AllowN(time.Now(), -1) // its handshake back
	}
	c.admitted[conn] = true
}

// Accept closes connections of addresses that may begin no further handshake.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil || c.handshakes == nil || c.takeHandshake(addressOf(conn)) {
			return conn, err
		}
		refusedTotal.Inc()
		_ = conn.Close()
	}
}

func (c *connections) takeHandshake(address string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	checked := 0
	for other, limit := range c.handshakes { // two are checked for each that comes, so that the map stays small
		if limit.Tokens() >= handshakesSaved {
			delete(c.handshakes, other)
		}
		if checked++; checked == 2 {
			break
		}
	}
	if c.handshakes[address] == nil {
		c.handshakes[address] = rate.NewLimiter(handshakesPerSecond, handshakesSaved)
	}
	return c.handshakes[address].Allow()
}

// addressOf returns what counts as one address: for IPv6 the network, because its owner has all addresses in it.
func addressOf(conn net.Conn) string {
	tcp, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	if !isTCP || tcp.IP.To4() != nil {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		return host
	}
	return tcp.IP.Mask(net.CIDRMask(64, 128)).String()
}
