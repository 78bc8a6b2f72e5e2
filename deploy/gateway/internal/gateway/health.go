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
	// chain is the health service name whose check asks a peer's own peers too (services/runtime/rpc/health.py).
	chain = "chain"
	// peerTimeout is for one peer's answer; peers are asked at the same time.
	peerTimeout = 2 * time.Second
)

// healthz is 200 while the process answers; asks nobody.
func healthz(w http.ResponseWriter, _ *http.Request, _ map[string]string) {
	envelope.WriteJSON(w, http.StatusOK, envelope.Told([]byte(`{"status":"live"}`)))
}

// readyz is 200 when each peer, and what it needs itself, is ready, else 503; `data` says which is.
func (g *gateway) readyz(w http.ResponseWriter, request *http.Request, _ map[string]string) {
	names := []string{"orchestrator", "memory", "tools"}
	ready := g.ask(request.Context(), g.peers.Orchestrator, g.peers.Memory, g.peers.Tools)
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
		envelope.WriteJSON(w, http.StatusOK, envelope.Told(data))
		return
	}
	message := "not ready: " + strings.Join(missing, ", ")
	envelope.Failure{Status: 503, Reason: "NOT_READY", Message: message, Retriable: true, Data: data}.Write(w)
}

// ask gives whether each peer is ready.
func (g *gateway) ask(ctx context.Context, peers ...*grpc.ClientConn) []bool {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	ready := make([]bool, len(peers))
	var asked sync.WaitGroup
	for i, peer := range peers {
		asked.Go(func() {
			request := &grpc_health_v1.HealthCheckRequest{Service: chain}
			answer, err := grpc_health_v1.NewHealthClient(peer).Check(ctx, request)
			ready[i] = err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
		})
	}
	asked.Wait()
	return ready
}
