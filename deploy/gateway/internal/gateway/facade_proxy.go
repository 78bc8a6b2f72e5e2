package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"headrace/gateway/internal/envelope"
)

// faces are the paths that the embedded facade alone serves: other programs' protocols, and the console's files. A prefix
// ends with a slash.
var faces = []string{"/v1/", "/agui", "/agui/", "/mcp", "/a2a", "/a2a/", "/console/", "/auth/", "/"}

// publicFaces need no credential.
var publicFaces = []string{"/console/", "/auth/", "/"}

// sessionCookies name the sessions of people who have signed in, which the embedded facade alone can read.
var sessionCookies = []string{"headrace-session", "__Host-headrace-session"}

// showsSession reports whether a request has a session's cookie and no other credential.
func showsSession(request *http.Request) bool {
	for _, name := range clientCredentials {
		if len(request.Header.Values(name)) > 0 {
			return false
		}
	}
	for _, name := range sessionCookies {
		if _, err := request.Cookie(name); err == nil {
			return strings.HasPrefix(request.URL.Path, "/api/")
		}
	}
	return false
}

func matchesFace(path string, among []string) bool {
	for _, face := range among {
		if path == face || (face != "/" && strings.HasSuffix(face, "/") && strings.HasPrefix(path, face)) {
			return true
		}
	}
	return false
}

// isGuarded reports whether a path is for callers alone.
func isGuarded(path string) bool {
	return strings.HasPrefix(path, "/api/") || (matchesFace(path, faces) && !matchesFace(path, publicFaces))
}

// withFacade passes what the embedded facade alone serves on to it, each piece of an answer as it comes. The caller's
// credential goes along, and the facade checks it; without a facade next says that there is no such path.
func (g *gateway) withFacade(next http.Handler) http.Handler {
	if g.settings.Facade == "" {
		return next
	}
	proxy := g.newFacadeProxy()
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !matchesFace(request.URL.Path, faces) && !showsSession(request) {
			next.ServeHTTP(w, request)
			return
		}
		if entry, ok := w.(*requestLog); ok {
			entry.route = "facade"
			defer cutAnswer(entry)
		}
		request.Header.Set("X-Request-Id", w.Header().Get("X-Request-Id"))
		proxy.ServeHTTP(&slowReaderWriter{w, http.NewResponseController(w), g.settings.SlowReader}, request)
	})
}

// cutAnswer cuts an answer that has broken in its middle, because the client has gone or the facade has; the proxy says so
// by a panic, which is no defect.
func cutAnswer(entry *requestLog) {
	if problem := recover(); problem == http.ErrAbortHandler {
		entry.RecordFailure(499, "CANCELLED")
		entry.aborted = true
	} else if problem != nil {
		panic(problem)
	}
}

func (g *gateway) newFacadeProxy() *httputil.ReverseProxy {
	address := g.settings.Facade
	network := "tcp"
	if path, isSocket := strings.CutPrefix(address, "unix:"); isSocket {
		network, address = "unix", path
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "localhost"})
			r.SetXForwarded()
			// Behind a proxy that ends TLS, agents' cards name that one's address, as the facade's own do.
			for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Host"} {
				if given := r.In.Header.Get(name); given != "" {
					r.Out.Header.Set(name, given)
				}
			}
			r.Out.Host = "localhost"
			// The gateway has looked at what pages may ask for; to the facade it is no page of another name. A session
			// is for the pages of one origin, which the facade knows.
			isSession := showsSession(r.In) || strings.HasPrefix(r.In.URL.Path, "/auth/")
			for name := range r.Out.Header {
				if (name == "Origin" && !isSession) || strings.HasPrefix(name, "Sec-Fetch-") {
					r.Out.Header.Del(name)
				}
			}
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
			DisableCompression:  true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     60 * time.Second, // shorter than the facade keeps a connection
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.Default().Handler(), slog.LevelInfo),
		ModifyResponse: func(response *http.Response) error {
			for _, name := range []string{"X-Request-Id", "Cross-Origin-Resource-Policy"} {
				response.Header.Del(name) // the gateway has set them
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, request *http.Request, err error) {
			slog.Info("facade away", "problem", err.Error())
			envelope.Failure{Status: http.StatusServiceUnavailable, Reason: "OVERLOADED", Retriable: true,
				Message: "the facade that serves this path cannot be reached; try again"}.Write(w)
		},
	}
}

// slowReaderWriter hangs up on a client that does not take what is written.
type slowReaderWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (w *slowReaderWriter) Write(piece []byte) (int, error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	return w.ResponseWriter.Write(piece)
}

func (w *slowReaderWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
