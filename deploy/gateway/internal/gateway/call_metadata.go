package gateway

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

var (
	// safeID matches acceptable request ids of callers: anything else could forge log lines or headers.
	safeID         = regexp.MustCompile(`^[A-Za-z0-9._:/+=-]{1,128}$`)
	traceparent    = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	userCredential = regexp.MustCompile(`^(x-mcp-[a-z0-9_-]{1,32}-authorization|x-tool-[a-z0-9_-]{1,32}-credential)$`)
	printable      = regexp.MustCompile(`^[ -~]*$`)
)

// credentialCharsMax limits all credentials together: gRPC refuses calls with more than 8 KiB of metadata.
const credentialCharsMax = 4096

type metadataKey struct{}

// clientCredentials are the headers with a client's credential, which the services check
// (services/runtime/auth/authenticator.py).
var clientCredentials = []string{"Authorization", "X-Api-Key"}

// clientAddress names whoever has shown the credential, for the audit log (services/runtime/auth/refused_sign_ins.py).
const clientAddress = "x-headrace-client-address"

// readCallMetadata returns the request's id and everything that calls forward from its headers: request and trace id,
// the client's credential and address, and the user's credentials for MCP servers and tools
// (services/runtime/auth/passed_credentials.py).
func readCallMetadata(header http.Header, remote string) (string, metadata.MD) {
	id := header.Get("X-Request-Id")
	if !safeID.MatchString(id) {
		id = newID()
	}
	forwarded := readUserCredentials(header)
	forwarded.Set("x-request-id", id)
	if address, err := netip.ParseAddrPort(remote); err == nil { // no other comes from a Unix socket
		forwarded.Set(clientAddress, address.Addr().Unmap().WithZone("").String())
	}
	for _, name := range clientCredentials {
		for _, value := range header[http.CanonicalHeaderKey(name)] {
			if printable.MatchString(value) && len(value) <= credentialCharsMax {
				forwarded.Append(strings.ToLower(name), value)
			}
		}
	}
	if trace := header.Get("Traceparent"); traceparent.MatchString(trace) {
		forwarded.Set("traceparent", trace)
	}
	return id, forwarded
}

func readUserCredentials(header http.Header) metadata.MD {
	result, chars := metadata.MD{}, 0
	for name, values := range header {
		key := strings.ToLower(name)
		if !userCredential.MatchString(key) {
			continue
		}
		for _, value := range values {
			if printable.MatchString(value) {
				result.Append(key, value)
				chars += len(key) + len(value)
			}
		}
	}
	if chars > credentialCharsMax {
		slog.Warn("credentials dropped", "keys", slices.Sorted(maps.Keys(result)), "chars_max", credentialCharsMax)
		return metadata.MD{}
	}
	return result
}

func withMetadata(ctx context.Context, forwarded metadata.MD) context.Context {
	return context.WithValue(ctx, metadataKey{}, forwarded)
}

// MetadataOptions adds the metadata of the request and of this service to every call of a connection, and nothing else:
// grpc-gateway alone would add the client's address.
func MetadataOptions(callerMetadata metadata.MD) []grpc.DialOption {
	withCallMetadata := func(ctx context.Context) context.Context {
		forwarded, _ := ctx.Value(metadataKey{}).(metadata.MD)
		return metadata.NewOutgoingContext(ctx, metadata.Join(forwarded, callerMetadata))
	}
	unary := func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		return invoke(withCallMetadata(ctx), method, request, reply, conn, options...)
	}
	stream := func(
		ctx context.Context, kind *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(withCallMetadata(ctx), kind, conn, method, options...)
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)}
}

// newID returns a random UUID.
func newID() string {
	var random [16]byte
	_, _ = rand.Read(random[:])
	random[6], random[8] = random[6]&0x0f|0x40, random[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
}
