package gateway

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"headrace/gateway/internal/unauthenticated"
)

// These metrics have the names of services/facade/metrics.py.
var (
	requestDuration = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headrace_facade_request_duration_seconds", Help: "Time of requests that have ended, by the route as annotated.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300},
	}, []string{"route", "status"})
	openStreams = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "headrace_facade_open_streams", Help: "Streams of callers that are open.",
	})
)

// answer is the response to a request. A failure after its headers is logged with the status that it would have had.
type answer struct {
	http.ResponseWriter
	control       *http.ResponseController
	slowReader    time.Duration
	request       *http.Request
	route, reason string
	status        int
}

// withRequestLog takes the caller's ids or creates them, adds them to every call and the answer, and writes a log line.
func (g *gateway) withRequestLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		started := time.Now()
		id, forwarded := g.readMetadata(request)
		a := &answer{w, http.NewResponseController(w), g.settings.SlowReader, request, "facade", "", 0}
		defer func() {
			if problem := recover(); problem != nil { // net/http cuts the connection, and logs a defect
				a.status, a.reason = http.StatusBadGateway, "INTERRUPTED"
				defer panic(problem)
			}
			if request.Context().Err() != nil && (a.status == 0 || a.reason == "INTERRUPTED") { // the client has gone
				a.status, a.reason = 499, "CANCELLED"
			}
			_ = a.control.SetReadDeadline(time.Now().Add(5 * time.Second)) // for the rest of the body
			requestDuration.WithLabelValues(a.route, strconv.Itoa(a.status)).Observe(time.Since(started).Seconds())
			slog.Info("http done", "method", request.Method, "route", a.route, "status", a.status, "reason", a.reason,
				"request_id", id, "ms", float64(time.Since(started).Microseconds())/1000, "peer", request.RemoteAddr)
		}()
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if request.ProtoMajor == 1 && len(request.TransferEncoding) > 0 {
			// It may have had a Content-Length too, which net/http has removed; what a proxy took for the rest of its body
			// must not become a request (RFC 9112, section 6.1).
			w.Header().Set("Connection", "close")
		}
		request.Header.Set("X-Request-Id", id)
		next.ServeHTTP(a, request.WithContext(metadata.NewOutgoingContext(request.Context(), forwarded)))
	})
}

func (a *answer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

// Write sends data in pieces, and hangs up on a client that does not take one in time.
func (a *answer) Write(data []byte) (int, error) {
	a.begin(http.StatusOK)
	for piece := range slices.Chunk(data, 64<<10) {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.slowReader))
		if _, err := a.ResponseWriter.Write(piece); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

func (a *answer) begin(status int) {
	if a.status != 0 {
		return
	}
	a.status = status
	if a.Header().Get("Cache-Control") == "" { // as in services/facade/middleware/request_lifecycle.py
		a.Header().Set("Cache-Control", "no-store")
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(a.slowReader))
	for _, guarded := range []string{"/api/", "/v1/", "/agui", "/mcp", "/a2a"} {
		if status < http.StatusBadRequest && strings.HasPrefix(a.request.URL.Path, guarded) {
			unauthenticated.Admit(a.request.Context())
		}
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// failure is an error answer.
type failure struct {
	status          int
	reason, message string
	retriable       bool
	details         map[string]string
	retryAfter      string // in seconds, rounded up; empty if unknown
	isOurs          bool   // whether a service of the suite gave the reason
	isRefused       bool   // whether a stopping replica did not begin the call (services/runtime/rpc/handling.py)
}

func (f failure) Error() string { return f.message }

func invalid(field, rule string) failure {
	return failure{
		status: http.StatusBadRequest, reason: "INVALID_REQUEST", message: field + ": " + rule,
		details: map[string]string{"field": field, "rule": rule},
	}
}

// failureOf returns the failure of an error. The text of a status that is not the suite's may reveal internals.
func failureOf(err error) failure {
	if result, ok := err.(failure); ok {
		return result
	}
	received := status.Convert(err)
	result := failure{
		status: runtime.HTTPStatusFromCode(received.Code()), reason: code.Code(received.Code()).String(),
		message:   strings.ToLower(code.Code(received.Code()).String()) + " error",
		retriable: received.Code() == codes.Unavailable || received.Code() == codes.DeadlineExceeded,
	}
	for _, detail := range received.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == "headrace" {
				result.reason, result.message, result.details = detail.GetReason(), received.Message(), detail.GetMetadata()
				result.retriable, result.isOurs = detail.GetMetadata()["retriable"] == "true", true
				delete(result.details, "retriable")
			}
		case *errdetails.RetryInfo:
			seconds := detail.GetRetryDelay().AsDuration().Seconds()
			result.retryAfter = strconv.Itoa(int(math.Ceil(seconds)))
			result.isRefused = received.Code() == codes.Unavailable && seconds == 0
		}
	}
	switch {
	case received.Code() == codes.InvalidArgument && !result.isOurs: // grpc-gateway could not read the request
		return invalid("request", received.Message())
	case received.Code() == codes.Unavailable && len(received.Details()) == 0: // as a provider that cannot be reached
		result.reason, result.message = "PROVIDER_UNAVAILABLE", "a service of the suite cannot be reached; try again"
	}
	return result
}

// encode returns the failure as the JSON of an answer.
func (f failure) encode() []byte {
	message, _ := json.Marshal(f.message) // texts can always be encoded
	details := []byte("{}")
	if len(f.details) > 0 {
		details, _ = json.Marshal(f.details)
	}
	const form = `{"code":%d,"msg":%s,"data":{},"error":{"code":%q,"retriable":%t,"details":%s}}`
	return fmt.Appendf(nil, form, f.status, message, f.reason, f.retriable, details)
}

func (f failure) write(a *answer) {
	if a.reason = f.reason; f.retryAfter != "" {
		a.Header().Set("Retry-After", f.retryAfter)
	}
	if f.status == http.StatusUnauthorized {
		a.Header().Set("WWW-Authenticate", "Bearer") // https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1
	}
	writeJSON(a, f.status, f.encode())
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", marshaler{}.ContentType(nil))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
