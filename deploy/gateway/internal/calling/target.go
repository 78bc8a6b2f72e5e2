package calling

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

const dns = "dns:///"

// Client gives a connection to an address as services/runtime/http2/client/addresses.py has them: host:port, unix:/path,
// dns:///host:port for all replicas of a name, or a list of the first two with commas between.
func Client(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	if strings.Contains(address, ",") {
		all := list(strings.Split(address, ","))
		return grpc.NewClient(all.Scheme()+":///", append(options, grpc.WithResolvers(all))...)
	}
	return grpc.NewClient(address, options...)
}

// Check says what is wrong with an address; gRPC takes a name without a port for port 443.
func Check(address string) error {
	parts := strings.Split(address, ",")
	if len(parts) == 1 {
		parts[0] = strings.TrimPrefix(address, dns)
	}
	for _, part := range parts {
		if strings.HasPrefix(part, "unix:/") {
			continue
		}
		host, port, err := net.SplitHostPort(part)
		if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || host == "" || notNumber != nil {
			return fmt.Errorf("%q: expected host:port, unix:/path, dns:///host:port, or a list of the first two", address)
		}
	}
	return nil
}

// list resolves to its addresses, each under its own name.
type list []string

func (list) Scheme() string { return "list" }

func (l list) Build(_ resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for _, address := range l {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: nameOf(address)})
	}
	return l, conn.UpdateState(state)
}

func (l list) OverrideAuthority(resolver.Target) string { return nameOf(l[0]) }

func (list) ResolveNow(resolver.ResolveNowOptions) {}

func (list) Close() {}

// nameOf is whom the certificate of the server at `address` must name.
func nameOf(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return "localhost"
	}
	return address
}
