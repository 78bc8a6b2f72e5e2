// Package strangers bounds the connections of one address that have brought no request that was admitted.
//
// Each costs a descriptor and some memory until its time is over, and one address could take all descriptors. Behind a
// proxy all clients have the proxy's address, so only connections that wait for a request count.
package strangers

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connectionsMax is the number of an address, as in services/facade/strangers.py; with the next one, the one that has
// waited longest is closed.
const connectionsMax = 1024

// networkBits are the leading bits of an IPv6 address that count as one address.
const networkBits = 64

type contextKey struct{}

// connections are those of a server that no request has been admitted on.
type connections struct {
	mutex sync.Mutex
	// strangers has the place of each in its address's list, nil while a request of it is served.
	strangers map[net.Conn]*list.Element
	// waiting are those that wait for a request, by address, the longest first.
	waiting map[string]*list.List
	// handshakes is nil without TLS.
	handshakes *handshakes
}

// Bound bounds the connections of a server that does not serve yet, and, where it is for TLS, the handshakes of those
// that the listener it returns accepts.
func Bound(server *http.Server, listener net.Listener) net.Listener {
	c := &connections{strangers: map[net.Conn]*list.Element{}, waiting: map[string]*list.List{}}
	if server.TLSConfig != nil {
		c.handshakes = &handshakes{left: map[string]allowance{}}
		listener = handshakeListener{listener, c.handshakes}
	}
	server.ConnState = c.follow
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, contextKey{}, func() { c.admit(conn) })
	}
	return listener
}

// Admit notes that a request was admitted: its connection is no stranger's.
func Admit(ctx context.Context) {
	if admit, isBound := ctx.Value(contextKey{}).(func()); isBound {
		admit()
	}
}

func (c *connections) follow(conn net.Conn, state http.ConnState) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_, isStranger := c.strangers[conn]
	switch {
	case state == http.StateNew, state == http.StateIdle && isStranger:
		c.endWait(conn)
		c.beginWait(conn)
	case state == http.StateActive && isStranger:
		c.endWait(conn)
		c.strangers[conn] = nil
	case isStranger && (state == http.StateClosed || state == http.StateHijacked):
		c.endWait(conn)
		delete(c.strangers, conn)
	}
}

func (c *connections) admit(conn net.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if _, isStranger := c.strangers[conn]; isStranger && c.handshakes != nil {
		c.handshakes.giveBack(addressOf(conn), time.Now())
	}
	c.endWait(conn)
	delete(c.strangers, conn)
}

func (c *connections) beginWait(conn net.Conn) {
	address := addressOf(conn)
	waiting := c.waiting[address]
	if waiting == nil {
		waiting = list.New()
		c.waiting[address] = waiting
	}
	c.strangers[conn] = waiting.PushBack(conn)
	if waiting.Len() > connectionsMax {
		oldest, _ := waiting.Front().Value.(net.Conn)
		c.endWait(oldest)
		delete(c.strangers, oldest)
		go func() { _ = oldest.Close() }() // TLS says goodbye, which may take seconds
	}
}

func (c *connections) endWait(conn net.Conn) {
	place := c.strangers[conn]
	if place == nil {
		return
	}
	address := addressOf(conn)
	waiting := c.waiting[address]
	if waiting.Remove(place); waiting.Len() == 0 {
		delete(c.waiting, address)
	}
}

// addressOf returns what counts as one address: of IPv6 the network, whose owner has all others in it.
func addressOf(conn net.Conn) string {
	tcp, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	if !isTCP {
		return conn.RemoteAddr().String()
	}
	if tcp.IP.To4() != nil {
		return tcp.IP.String()
	}
	return tcp.IP.Mask(net.CIDRMask(networkBits, 8*net.IPv6len)).String()
}
