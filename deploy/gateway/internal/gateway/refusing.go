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

// refused is a request that HTTP itself refuses, by its status.
type refused int

func (r refused) Error() string { return strings.ToLower(http.StatusText(int(r))) }

// tooLarge is a body of more than so many bytes.
type tooLarge int64

func (t tooLarge) Error() string {
	return "must not be larger than " + strconv.FormatInt(int64(t), 10) + " bytes"
}

// refuse answers with an RPC's error.
func refuse(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error,
) {
	fail(w, err)
}

// refuseRoute answers for a route that is not there, or not with this method.
func (g *gateway) refuseRoute(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, request *http.Request, status int,
) {
	if status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", strings.Join(g.verbsOf(request.URL.Path), ","))
	}
	fail(w, refused(status))
}

func (g *gateway) verbsOf(path string) []string {
	var found []string
	for _, r := range g.routes {
		if r.path != path {
			continue
		}
		found = append(found, r.verb)
		if r.isFile() {
			found = append(found, http.MethodHead)
		}
	}
	if len(found) == 0 {
		found = []string{http.MethodGet, http.MethodHead} // the health pages
	}
	slices.Sort(found)
	return found
}

// fail answers with an error: one of the suite's, a broken rule, or what HTTP itself refuses.
func fail(w http.ResponseWriter, err error) {
	switch err := err.(type) {
	case refused:
		reason := map[refused]string{404: "NOT_FOUND", 405: "UNSUPPORTED"}[err]
		if reason == "" {
			reason = "INVALID_REQUEST"
		}
		envelope.Failure{Status: int(err), Reason: reason, Message: err.Error()}.Write(w)
	case tooLarge:
		failure := envelope.Of(&jsonform.Invalid{Field: jsonform.Body, Rule: err.Error()})
		failure.Status = http.StatusRequestEntityTooLarge
		failure.Write(w)
	default:
		envelope.Of(err).Write(w)
	}
}
