package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
	"headrace/gateway/internal/strangers"
	"headrace/gateway/internal/tracing"
)

// restTimeout limits reading the rest of a body whose request has been answered.
const restTimeout = 5 * time.Second

// withRequestLog takes the caller's ids or creates them, adds them to every call and to the answer, and writes one log
// line. The gateway's only recover stands here.
func withRequestLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		started := time.Now()
		id, forwarded := readCallMetadata(request.Header, request.RemoteAddr)
		entry := &requestLog{ResponseWriter: w, route: "unknown", admit: func() {
			if isGuarded(request.URL.Path) {
				strangers.Admit(request.Context())
			}
		}}
		span := tracing.StartSpan(request, forwarded)
		defer func() {
			entry.finish(recover(), request)
			// net/http reads the rest of the body; this limits how long it waits.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout))
			requestsTotal.WithLabelValues(entry.route, strconv.Itoa(entry.status)).Inc()
			span.End(request.Method, entry.route, entry.status, id)
			slog.With(span.LogAttributes()...).Info("http done", "method", request.Method, "route", entry.route,
				"status", entry.status, "reason", entry.reason, "request_id", id,
				"ms", float64(time.Since(started).Microseconds())/1000, "peer", request.RemoteAddr)
			if entry.aborted {
				panic(http.ErrAbortHandler)
			}
		}()
		w.Header().Set("X-Request-Id", id)
		if request.ProtoMajor == 1 && len(request.TransferEncoding) > 0 {
			// It may have had a Content-Length too, which net/http has removed; what a proxy took for the rest of its body
			// must not become a request (RFC 9112, section 6.1).
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		if err := requireSingleHeader(request, "X-Request-Id"); err != nil {
			envelope.FromError(err).Write(entry)
			return
		}
		next.ServeHTTP(entry, request.WithContext(withMetadata(request.Context(), forwarded)))
	})
}

// requestLog keeps what is logged of a request: its annotated route and its status. A failure after the headers counts
// with the status that it would have had.
type requestLog struct {
	http.ResponseWriter
	route   string
	status  int
	reason  string
	aborted bool
	// admit is called when an answer begins that is no refusal.
	admit func()
}

// RecordFailure keeps why a request has failed.
func (l *requestLog) RecordFailure(status int, reason string) { l.status, l.reason = status, reason }

// finish handles what a handler panicked with. An answer that has begun cannot be replaced, so its connection is cut.
func (l *requestLog) finish(problem any, request *http.Request) {
	switch {
	case problem == http.ErrAbortHandler: // a peer has failed in the middle of an answer, which is no defect
		l.RecordFailure(http.StatusBadGateway, "INTERRUPTED")
		l.aborted = true
	case problem != nil:
		slog.Error("http failed", "method", request.Method, "route", l.route,
			"problem", fmt.Sprint(problem), "stack", string(debug.Stack()))
		if l.aborted = l.status != 0; !l.aborted {
			envelope.Failure{Status: http.StatusInternalServerError, Reason: "INTERNAL", Message: "internal error"}.Write(l)
		}
	case l.status == 0 && request.Context().Err() != nil:
		l.RecordFailure(499, "CANCELLED") // the client has gone
	}
}

func (l *requestLog) WriteHeader(status int) {
	l.begin(status)
	l.ResponseWriter.WriteHeader(status)
}

func (l *requestLog) Write(data []byte) (int, error) {
	l.begin(http.StatusOK)
	return l.ResponseWriter.Write(data)
}

func (l *requestLog) begin(status int) {
	if l.status != 0 {
		return
	}
	l.status = status
	if status < http.StatusBadRequest {
		l.admit()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (l *requestLog) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// requireSingleHeader returns an error for a header that is repeated.
func requireSingleHeader(request *http.Request, name string) error {
	if len(request.Header.Values(name)) > 1 {
		return &jsonform.Invalid{Field: name, Rule: "must be given once"}
	}
	return nil
}
