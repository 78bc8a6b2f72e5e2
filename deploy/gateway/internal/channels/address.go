package channels

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

const dnsScheme = "dns:///"

// Open returns a connection to an address in the forms of services/runtime/calls/addresses.py: host:port,
// unix:/path, dns:///host:port for all replicas of a name, or a list of the first two with commas between.
func Open(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := CheckAddress(address); err != nil {
		return nil, err
	}
	if strings.Contains(address, ",") {
		all := addressList(strings.Split(address, ","))
		return grpc.NewClient(all.Scheme()+":///", append(options, grpc.WithResolvers(all))...)
	}
	return grpc.NewClient(address, options...)
}

// CheckAddress reports an invalid address; gRPC would take a name without a port for port 443.
func CheckAddress(address string) error {
	parts := strings.Split(address, ",")
	if len(parts) == 1 {
		parts[0] = strings.TrimPrefix(address, dnsScheme)
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

// addressList resolves to its addresses, each with its own server name.
type addressList []string

func (addressList) Scheme() string { return "list" }

func (l addressList) Build(_ resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	var state resolver.State
	for _, address := range l {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: serverName(address)})
	}
	return l, conn.UpdateState(state)
}

func (l addressList) OverrideAuthority(resolver.Target) string { return serverName(l[0]) }

func (addressList) ResolveNow(resolver.ResolveNowOptions) {}

func (addressList) Close() {}

// serverName returns the name that the certificate of the server at an address must have.
func serverName(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return "localhost"
	}
	return address
}
