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
	"headrace/gateway/internal/tracing"
)

// restTimeout is for the rest of a body whose request has been answered.
const restTimeout = 5 * time.Second

// around takes the caller's ids or makes them, gives them to every call and to the answer, and writes one log line. The
// gateway's last resort stands here and nowhere else.
func around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		started := time.Now()
		id, forwarded := idsOf(request.Header)
		line := &logLine{ResponseWriter: w, route: "unknown"}
		span := tracing.Begin(request, forwarded)
		defer func() {
			line.end(recover(), request)
			// What nobody has read of the body is waited for by net/http, but not for ever.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTimeout))
			requestsTotal.WithLabelValues(line.route, strconv.Itoa(line.status)).Inc()
			span.End(request.Method, line.route, line.status, id)
			slog.With(span.ForLog()...).Info("http done", "method", request.Method, "route", line.route,
				"status", line.status, "reason", line.reason, "request_id", id,
				"ms", float64(time.Since(started).Microseconds())/1000, "peer", request.RemoteAddr)
			if line.aborted {
				panic(http.ErrAbortHandler)
			}
		}()
		w.Header().Set("X-Request-Id", id)
		if err := once(request, "X-Request-Id"); err != nil {
			envelope.Of(err).Write(line)
			return
		}
		next.ServeHTTP(line, request.WithContext(forwarding(request.Context(), forwarded)))
	})
}

// logLine is what is said of a request: the route as annotated, and the status, which is kept on its way out. Of what
// fails behind its headers it is the status that it would have had.
type logLine struct {
	http.ResponseWriter
	route   string
	status  int
	reason  string
	aborted bool
}

// Failed keeps why a request has failed.
func (l *logLine) Failed(status int, reason string) { l.status, l.reason = status, reason }

// end takes what a handler panicked with. An answer that has begun cannot become another one: its connection is cut.
func (l *logLine) end(problem any, request *http.Request) {
	switch {
	case problem != nil:
		slog.Error("http failed", "method", request.Method, "route", l.route,
			"problem", fmt.Sprint(problem), "stack", string(debug.Stack()))
		if l.aborted = l.status != 0; !l.aborted {
			envelope.Failure{Status: http.StatusInternalServerError, Reason: "INTERNAL", Message: "internal error"}.Write(l)
		}
	case l.status == 0 && request.Context().Err() != nil:
		l.Failed(499, "CANCELLED") // the client has gone
	}
}

func (l *logLine) WriteHeader(status int) {
	if l.status == 0 {
		l.status = status
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *logLine) Write(data []byte) (int, error) {
	if l.status == 0 {
		l.status = http.StatusOK
	}
	return l.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController reach the connection.
func (l *logLine) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// once refuses a header that may not be repeated.
func once(request *http.Request, name string) error {
	if len(request.Header.Values(name)) > 1 {
		return &jsonform.Invalid{Field: name, Rule: "must be given once"}
	}
	return nil
}
