// Package localusers says which user of this machine is at the other end of a loopback connection, as the kernel knows
// (services/runtime/local_users.py; https://man7.org/linux/man-pages/man7/sock_diag.7.html).
package localusers

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"
)

const (
	sockDiagByFamily = 20
	headBytes        = 16
	// uidOffset is where the kernel's answer has the user: after the message's head, the socket's state, its id, and its
	// timers and queues.
	uidOffset   = headBytes + 4 + 48 + 12
	answerBytes = 4096
	root        = 0
)

// IsForeign reports whether another user of this machine, not root, has connected from peer to own. It is false for
// other machines' connections, and where the kernel does not say.
func IsForeign(peer, own netip.AddrPort) bool {
	if !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	user, ok := findUser(peer, own)
	return ok && user != root && user != uint32(os.Geteuid())
}

// findUser returns the user who owns the TCP socket of this machine with these two ends.
func findUser(local, remote netip.AddrPort) (user uint32, ok bool) {
	kernel, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_INET_DIAG)
	if err != nil {
		return 0, false
	}
	defer func() { _ = syscall.Close(kernel) }()
	_ = syscall.SetsockoptTimeval(kernel, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 1})
	if err := syscall.Sendto(kernel, question(local, remote), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, false
	}
	answer := make([]byte, answerBytes)
	size, _, err := syscall.Recvfrom(kernel, answer, 0)
	if err != nil || size < uidOffset+4 || binary.NativeEndian.Uint16(answer[4:]) != sockDiagByFamily {
		return 0, false
	}
	return binary.NativeEndian.Uint32(answer[uidOffset:]), true
}

// question asks for the one socket with these two ends, in any state.
func question(local, remote netip.AddrPort) []byte {
	family := byte(syscall.AF_INET6)
	if local.Addr().Unmap().Is4() {
		family = syscall.AF_INET
	}
	body := []byte{family, syscall.IPPROTO_TCP, 0, 0, 0xff, 0xff, 0xff, 0xff}
	body = binary.BigEndian.AppendUint16(body, local.Port())
	body = binary.BigEndian.AppendUint16(body, remote.Port())
	for _, address := range []netip.Addr{local.Addr().Unmap(), remote.Addr().Unmap()} {
		var padded [16]byte
		copy(padded[:], address.AsSlice())
		body = append(body, padded[:]...)
	}
	body = append(body, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // any interface, no cookie
	head := binary.NativeEndian.AppendUint32(nil, uint32(headBytes+len(body)))
	head = binary.NativeEndian.AppendUint16(head, sockDiagByFamily)
	head = binary.NativeEndian.AppendUint16(head, syscall.NLM_F_REQUEST)
	return append(append(head, make([]byte, 8)...), body...)
}
