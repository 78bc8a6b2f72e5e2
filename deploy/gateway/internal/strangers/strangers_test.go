package strangers

import (
	"net"
	"testing"
)

type remoteConn struct {
	net.Conn
	address net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.address }

func TestAddressOf(t *testing.T) {
	for given, expected := range map[string]string{
		"192.0.2.7":             "192.0.2.7",
		"::ffff:192.0.2.7":      "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":  "2001:db8:1:2::",
		"2001:db8:1:2::":        "2001:db8:1:2::",
		"2001:db8:1:3:ffff::ff": "2001:db8:1:3::",
		"::1":                   "::",
	} {
		conn := remoteConn{address: &net.TCPAddr{IP: net.ParseIP(given), Port: 443}}
		if address := addressOf(conn); address != expected {
			t.Errorf("addressOf(%s) = %s, expected %s", given, address, expected)
		}
	}
	unix := remoteConn{address: &net.UnixAddr{Name: "@", Net: "unix"}}
	if address := addressOf(unix); address != "@" {
		t.Errorf("addressOf(unix) = %s", address)
	}
}
