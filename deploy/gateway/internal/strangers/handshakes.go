package strangers

import (
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	// handshakesSaved and handshakesPerSecond are those of the services (services/runtime/http2/limits.py), whose keys
	// make one cost 2 ms: a handshake of an RSA key of 4,096 bits takes about twice as long.
	handshakesSaved     = 100
	handshakesPerSecond = 25
)

var refusedTotal = promauto.NewCounter(prometheus.CounterOpts{
	Name: "headrace_gateway_handshakes_refused_total",
	Help: "Connections closed because their address had no TLS handshake left.",
})

// handshakes are those that an address may begin without a request that is admitted.
type handshakes struct {
	mutex sync.Mutex
	// left has what was left to an address, and when; one that is missing has all.
	left map[string]allowance
}

type allowance struct {
	count float64
	at    time.Time
}

// handshakeListener closes connections of addresses that may begin no further handshake.
type handshakeListener struct {
	net.Listener
	handshakes *handshakes
}

func (l handshakeListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.handshakes.take(addressOf(conn), time.Now()) {
			return conn, err
		}
		refusedTotal.Inc()
		_ = conn.Close()
	}
}

// take counts a handshake that is about to begin, and tells whether it may.
func (h *handshakes) take(address string, now time.Time) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.forgetSome(now)
	count := h.countLeft(address, now)
	if count < 1 {
		return false
	}
	h.left[address] = allowance{count - 1, now}
	return true
}

// giveBack returns the place of a handshake whose connection was admitted.
func (h *handshakes) giveBack(address string, now time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.left[address] = allowance{min(h.countLeft(address, now)+1, handshakesSaved), now}
}

func (h *handshakes) countLeft(address string, now time.Time) float64 {
	last, isKnown := h.left[address]
	if !isKnown {
		return handshakesSaved
	}
	return min(last.count+now.Sub(last.at).Seconds()*handshakesPerSecond, handshakesSaved)
}

// forgetSome drops addresses that have all again: two are looked at for each that comes, so that they do not become more
// and more.
func (h *handshakes) forgetSome(now time.Time) {
	seen := 0
	for address := range h.left {
		if seen++; seen > 2 {
			return
		}
		if h.countLeft(address, now) >= handshakesSaved {
			delete(h.left, address)
		}
	}
}
