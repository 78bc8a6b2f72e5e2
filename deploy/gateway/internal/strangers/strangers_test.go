package strangers

import (
	"net"
	"testing"
)

type remoteConn struct {
	net.Conn
	ip string
}

func (c remoteConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.ip), Port: 443} }

func TestAddressOf(t *testing.T) {
	for given, expected := range map[string]string{
		"::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:3:ffff::ff": "2001:db8:1:3::",
	} {
		if address := addressOf(remoteConn{ip: given}); address != expected {
			t.Errorf("addressOf(%s) = %s, expected %s", given, address, expected)
		}
	}
}
