package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/jsonform"
)

// httpError is the status of a request that HTTP itself refuses.
type httpError int

func (r httpError) Error() string { return strings.ToLower(http.StatusText(int(r))) }

// bodyTooLarge is the limit in bytes that a body exceeds.
type bodyTooLarge int64

func (t bodyTooLarge) Error() string {
	return "must not be larger than " + strconv.FormatInt(int64(t), 10) + " bytes"
}

// handleError answers with an RPC's error.
func handleError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error,
) {
	writeError(w, err)
}

// handleRoutingError answers for an unknown route or method.
func (g *gateway) handleRoutingError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, request *http.Request, status int,
) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", strings.Join(g.allowedMethods(request.URL.Path), ","))
	}
	writeError(w, httpError(status))
}

func (g *gateway) allowedMethods(path string) []string {
	var result []string
	for _, r := range g.routes {
		if !r.matches(path) {
			continue
		}
		result = append(result, r.verb)
		if r.isFile() {
			result = append(result, http.MethodHead)
		}
	}
	if len(result) == 0 {
		result = []string{http.MethodGet, http.MethodHead} // the health pages
	}
	slices.Sort(result)
	return result
}

// writeError answers with an error of the suite, an invalid request, or an error of HTTP itself.
func writeError(w http.ResponseWriter, err error) {
	switch err := err.(type) {
	case httpError:
		reason := map[httpError]string{404: "NOT_FOUND", 405: "UNSUPPORTED"}[err]
		if reason == "" {
			reason = "INVALID_REQUEST"
		}
		envelope.Failure{Status: int(err), Reason: reason, Message: err.Error()}.Write(w)
	case bodyTooLarge:
		failure := envelope.FromError(&jsonform.Invalid{Field: jsonform.Body, Rule: err.Error()})
		failure.Status = http.StatusRequestEntityTooLarge
		failure.Write(w)
	default:
		envelope.FromError(err).Write(w)
	}
}
