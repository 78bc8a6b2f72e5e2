package gateway

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// These metrics have the names of services/facade/metrics.py.
var (
	requestsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "headrace_facade_requests_total", Help: "Requests that have ended, by the route as annotated.",
	}, []string{"route", "status"})
	openStreams = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "headrace_facade_open_streams", Help: "Streams of callers that are open.",
	})
)

// MetricsHandler returns the handler of the port for Prometheus; no ingress passes on what names tenants.
func MetricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}
