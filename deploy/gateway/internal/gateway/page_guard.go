package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"headrace/gateway/internal/envelope"
)

// Hosts are the names under which the gateway may be reached where it asks for no credentials, beside loopback names and
// IP addresses; "*" is any name. With Credentials it is served under every name.
type Hosts struct {
	Credentials bool
	Names       []string
}

// withPageGuard refuses what pages of other origins, and pages under names that are not ours, ask for
// (services/facade/middleware/page_guard.py).
func withPageGuard(hosts Hosts, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !hosts.serve(request.Host) {
			refusePage(w, "this facade asks for no credentials, so it is served under loopback names and IP addresses alone; "+
				"HEADRACE_GATEWAY_HOSTS names others")
			return
		}
		if hosts.isForeign(request) {
			refusePage(w, "pages of other origins may not call this facade")
			return
		}
		next.ServeHTTP(w, request)
	})
}

func refusePage(w http.ResponseWriter, message string) {
	envelope.Failure{Status: http.StatusForbidden, Reason: "PERMISSION_DENIED", Message: message}.Write(w)
}

func (h Hosts) serve(host string) bool {
	if h.Credentials || slices.Contains(h.Names, "*") {
		return true
	}
	name := host
	if withoutPort, _, err := net.SplitHostPort(host); err == nil {
		name = withoutPort
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return strings.HasSuffix("."+name, ".localhost") || slices.Contains(h.Names, name)
}

// isForeign reports whether a page of another origin sent the request. A proxy may change Host, so what the browser
// itself says counts first; it says so on trustworthy names alone.
func (h Hosts) isForeign(request *http.Request) bool {
	origin, hasOrigin := request.Header["Origin"]
	switch request.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		if h.Credentials || !hasOrigin || request.Method == http.MethodOptions {
			return false
		}
		parsed, err := url.Parse(origin[0])
		return err != nil || !strings.EqualFold(parsed.Host, request.Host)
	default:
		isLink := request.Method == http.MethodGet && request.Header.Get("Sec-Fetch-Mode") == "navigate"
		return hasOrigin || !isLink
	}
}
