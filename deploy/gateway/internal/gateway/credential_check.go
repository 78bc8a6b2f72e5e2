package gateway

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "headrace/gateway/gen/headrace/v1"
)

const (
	// admittedFor is how long a credential is not asked about again before a body is read; the call itself always asks.
	admittedFor = time.Minute
	// admittedMax limits the credentials that are kept, as digests.
	admittedMax = 1024
)

// credentialCheck has the services look at a credential before the body that comes with it is read: a stranger's must
// cost no more than its head.
type credentialCheck struct {
	agents   headracev1.AgentServiceClient
	mutex    sync.Mutex
	admitted map[[sha256.Size]byte]time.Time
}

// withCredentialCheck refuses a body with a wrong credential unread where callers show credentials.
func (g *gateway) withCredentialCheck(next http.Handler) http.Handler {
	if !g.settings.Hosts.Credentials {
		return next
	}
	c := credentialCheck{agents: headracev1.NewAgentServiceClient(g.peers.Orchestrator), admitted: map[[sha256.Size]byte]time.Time{}}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		// What lacks its body is refused by that alone, and a stranger learns no more than that they are one.
		hasBody := request.Body != http.NoBody || request.Method == http.MethodPost
		// A session is the facade's to check, which does so before the body too.
		if hasBody && isGuarded(request.URL.Path) && !(g.settings.Facade != "" && showsSession(request)) {
			if err := c.check(request); err != nil {
				writeError(w, err)
				return
			}
		}
		next.ServeHTTP(w, request)
	})
}

// check returns the services' refusal of the request's credential. Without an answer it returns nothing, because the
// call that follows may be to a service that is there.
func (c *credentialCheck) check(request *http.Request) error {
	digest := sha256.New()
	for _, name := range clientCredentials {
		digest.Write([]byte(strings.Join(request.Header.Values(name), "\n") + "\n\n"))
	}
	key := [sha256.Size]byte(digest.Sum(nil))
	c.mutex.Lock()
	isAdmitted := time.Since(c.admitted[key]) < admittedFor
	c.mutex.Unlock()
	if isAdmitted {
		return nil
	}
	ctx, cancel := context.WithTimeout(request.Context(), unaryTimeout)
	defer cancel()
	_, err := c.agents.GetIdentity(ctx, &headracev1.GetIdentityRequest{}) // takes none of a key's calls
	switch status.Code(err) {
	case codes.Unauthenticated:
		return err
	case codes.OK:
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if len(c.admitted) >= admittedMax {
			clear(c.admitted)
		}
		c.admitted[key] = time.Now()
	}
	return nil
}
