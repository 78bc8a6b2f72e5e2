package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

const (
	// chain is the health service name whose check includes a peer's own peers (services/runtime/rpc/health.py).
	chain = "chain"
	// peerTimeout limits one peer's answer; all peers are checked at the same time.
	peerTimeout = 2 * time.Second
)

// serveHealthz answers 200 while the process runs, without checking any peer.
func serveHealthz(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	envelope.WriteJSON(w, http.StatusOK, envelope.WrapData([]byte(`{"status":"live"}`)))
}

// serveReadyz answers 200; asked for `all`, it does so when each peer and its own peers are ready, else 503, and `data`
// says which peers are.
func (g *gateway) serveReadyz(w http.ResponseWriter, request *http.Request, _ map[string]string) {
	if !request.URL.Query().Has("all") {
		envelope.WriteJSON(w, http.StatusOK, envelope.WrapData([]byte(`{"facade":true}`)))
		return
	}
	names := []string{"orchestrator", "memory", "tools"}
	ready := g.checkPeers(request.Context(), g.peers.Orchestrator, g.peers.Memory, g.peers.Tools)
	var missing []string
	data := []byte{'{'}
	for i, name := range names {
		if !ready[i] {
			missing = append(missing, name)
		}
		if i > 0 {
			data = append(data, ',')
		}
		data = strconv.AppendBool(append(jsonform.AppendString(data, name), ':'), ready[i])
	}
	data = append(data, '}')
	if len(missing) == 0 {
		envelope.WriteJSON(w, http.StatusOK, envelope.WrapData(data))
		return
	}
	message := "not ready: " + strings.Join(missing, ", ")
	envelope.Failure{Status: 503, Reason: "NOT_READY", Message: message, Retriable: true, Data: data}.Write(w)
}

// checkPeers reports for each peer whether it is ready.
func (g *gateway) checkPeers(ctx context.Context, peers ...*grpc.ClientConn) []bool {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	ready := make([]bool, len(peers))
	var checks sync.WaitGroup
	for i, peer := range peers {
		checks.Go(func() {
			request := &grpc_health_v1.HealthCheckRequest{Service: chain}
			answer, err := grpc_health_v1.NewHealthClient(peer).Check(ctx, request)
			ready[i] = err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
		})
	}
	checks.Wait()
	return ready
}
