package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

const (
	bodyBytesMax            = 4 << 20          // the largest request from outside the suite
	unauthenticatedBytesMax = 16 << 10         // the largest body that is read before a service has seen the credential
	bodyTimeout             = 60 * time.Second // 4 MiB at 70 kB/s
	// unaryTimeout is that of services/facade/handlers/rpc.py; a stream has none, because a run may wait for people.
	unaryTimeout = 30 * time.Second
)

// checkRequest reads a request for its generated handler, which sees no header and no address: the outgoing metadata has
// all that the services may know. Annotated routes that are not served here go to the embedded facade.
func (g *gateway) checkRequest(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request, inPath map[string]string) {
		a := w.(*answer)
		pattern, _ := runtime.HTTPPattern(request.Context())
		a.route = pattern.String()
		r, isOurs := g.routes[request.Method+" "+a.route]
		if !isOurs {
			g.facade.ServeHTTP(w, request)
			return
		}
		c := &call{answer: a, gateway: g, route: r, original: request.Clone(request.Context())}
		if r.hasBody {
			kind, _, _ := strings.Cut(strings.Join(request.Header.Values("Content-Type"), ","), ";")
			isJSON := strings.EqualFold(strings.TrimSpace(kind), "application/json")
			if !isJSON || request.Header.Get("Content-Encoding") != "" {
				g.facade.ServeHTTP(w, request) // it refuses the body, after the credential
				return
			}
			body, err := g.readBody(a, request)
			if err != nil {
				failureOf(err).write(a)
				return
			}
			c.original.Body, request.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			var query struct{ Stream *bool }
			if r.isRun && json.Unmarshal(body, &query) == nil && query.Stream != nil && !*query.Stream {
				g.facade.ServeHTTP(w, c.original) // it folds a run into one answer
				return
			}
		} else if query := request.URL.Query(); r.isRun { // which a reconnecting browser sends as it was
			if last := cmp.Or(request.Header.Get("Last-Event-ID"), query.Get("lastEventId")); last != "" {
				query.Set("lastSeq", last)
				query.Del("lastEventId")
				request.URL.RawQuery, c.original.URL.RawQuery = query.Encode(), query.Encode()
			}
		}
		request = request.WithContext(context.WithValue(request.Context(), callKey{}, c))
		request.Header, request.Host, request.RemoteAddr = http.Header{}, "", ""
		if r.isRun {
			c.stream(func() { next(c, request, inPath) })
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), unaryTimeout)
		defer cancel()
		next(w, request.WithContext(ctx), inPath)
	}
}

// readBody returns the JSON body.
func (g *gateway) readBody(a *answer, request *http.Request) ([]byte, error) {
	if length := request.ContentLength; length < 0 || length > unauthenticatedBytesMax {
		// This takes none of a key's calls. Errors other than a wrong credential are for the call itself to find.
		_, err := g.agents.GetIdentity(request.Context(), &headracev1.GetIdentityRequest{})
		if status.Code(err) == codes.Unauthenticated {
			return nil, err
		}
	}
	tooLarge := invalid("body", "must not be larger than 4194304 bytes")
	tooLarge.status = http.StatusRequestEntityTooLarge
	if request.ContentLength > bodyBytesMax {
		return nil, tooLarge
	}
	_ = a.control.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer func() { _ = a.control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(a, request.Body, bodyBytesMax))
	switch _, isTooLarge := errors.AsType[*http.MaxBytesError](err); {
	case isTooLarge:
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, failure{status: http.StatusRequestTimeout, reason: "INVALID_REQUEST", message: "request timeout"}
	case err != nil:
		return nil, invalid("body", "must be a whole body as HTTP frames it")
	}
	return bytes.TrimPrefix(body, []byte("\ufeff")), nil
}

var (
	// safeID matches acceptable request ids of callers: anything else could forge log lines or headers.
	safeID         = regexp.MustCompile(`^[A-Za-z0-9._:/+=-]{1,128}$`)
	traceparent    = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	userCredential = regexp.MustCompile(`^(x-mcp-[a-z0-9_-]{1,32}-authorization|x-tool-[a-z0-9_-]{1,32}-credential)$`)
	printable      = regexp.MustCompile(`^[ -~]*$`)
)

// credentialCharsMax limits a user's credentials for tools together, and a client's own: gRPC takes 8 KiB of metadata.
const credentialCharsMax = 4096

// readMetadata returns the request's id and all that calls forward of it: request and trace id, the client's credential
// and address, and the user's credentials for MCP servers and tools (services/runtime/auth/passed_credentials.py).
func (g *gateway) readMetadata(request *http.Request) (id string, forwarded metadata.MD) {
	if id = request.Header.Get("X-Request-Id"); !safeID.MatchString(id) {
		id = uuid.NewString()
	}
	forwarded = metadata.Pairs("x-request-id", id)
	if g.settings.Token != "" {
		forwarded.Set("x-headrace-caller", "facade")
		forwarded.Set("x-headrace-token", g.settings.Token)
	}
	// For the audit log (services/runtime/auth/refused_sign_ins.py).
	if address, err := netip.ParseAddrPort(request.RemoteAddr); err == nil {
		forwarded.Set("x-headrace-client-address", address.Addr().Unmap().WithZone("").String())
	}
	if trace := request.Header.Get("Traceparent"); traceparent.MatchString(trace) {
		forwarded.Set("traceparent", trace)
	}
	ofUser, chars := metadata.MD{}, 0
	for name, values := range request.Header {
		key := strings.ToLower(name)
		isUsers := userCredential.MatchString(key)
		for _, value := range values {
			switch {
			case !printable.MatchString(value):
			case isUsers:
				ofUser.Append(key, value)
				chars += len(key) + len(value)
			// The services check it (services/runtime/auth/authenticator.py).
			case (key == "authorization" || key == "x-api-key") && len(value) <= credentialCharsMax:
				forwarded.Append(key, value)
			}
		}
	}
	if chars <= credentialCharsMax {
		forwarded = metadata.Join(forwarded, ofUser)
	}
	return id, forwarded
}
