package gateway

import (
	"net"
	"net/http"
	"net/netip"

	"headrace/gateway/internal/envelope"
	"headrace/gateway/internal/localusers"
)

// withLocalUserCheck refuses the API to other users of this machine where nobody shows credentials; the calls behind it
// are made by this process's own user.
func withLocalUserCheck(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if isGuarded(request.URL.Path) && isForeignUser(request) {
			envelope.Failure{Status: http.StatusForbidden, Reason: "PERMISSION_DENIED", Message: "without credentials only the " +
				"user who runs this service may call it from this machine: set HEADRACE_AUTH, or " +
				"HEADRACE_ALLOW_UNAUTHENTICATED to let every user in"}.Write(w)
			return
		}
		next.ServeHTTP(w, request)
	})
}

func isForeignUser(request *http.Request) bool {
	address, _ := request.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if address == nil {
		return false
	}
	peer, peerErr := netip.ParseAddrPort(request.RemoteAddr)
	own, ownErr := netip.ParseAddrPort(address.String())
	return peerErr == nil && ownErr == nil && localusers.IsForeign(peer, own)
}
