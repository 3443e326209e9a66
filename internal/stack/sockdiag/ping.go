// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FileReader reads the stack's files; stackconn.Conn is one.
type FileReader interface {
	ReadFile(ctx context.Context, path string) ([]byte, error)
}

// Pings lists the sockets of unprivileged ping(8), SOCK_DGRAM of ICMP and ICMPv6, which
// sock_diag does not list. It reads /proc/net/icmp and /proc/net/icmp6.
func Pings(ctx context.Context, r FileReader) ([]Socket, error) {
	var all []Socket
	for path, family := range map[string]int{"/proc/net/icmp": unix.AF_INET, "/proc/net/icmp6": unix.AF_INET6} {
		text, err := r.ReadFile(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if i == 0 {
				continue // the heading
			}
			s, err := parsePing(line, family)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// parsePing parses a line of ping_v4_format_sock, net/ipv4/ping.c, or of
// __ip6_dgram_sock_seq_show, net/ipv6/datagram.c, which have the same columns.
func parsePing(line string, family int) (Socket, error) {
	f := strings.Fields(line)
	if len(f) < 12 {
		return Socket{}, fmt.Errorf("%d columns in %q, want 12", len(f), line)
	}
	s := Socket{Proto: ICMP, Family: family}
	state, err := strconv.ParseUint(f[3], 16, 8)
	s.State = State(state)
	errs := []error{err}
	for i, at := range []*netip.AddrPort{&s.Local, &s.Remote} {
		*at, err = procAddr(f[1+i])
		errs = append(errs, err)
	}
	send, recv, _ := strings.Cut(f[4], ":")
	for _, n := range []struct {
		text string
		base int
		to   *Value
	}{{send, 16, &s.SendQ}, {recv, 16, &s.RecvQ}, {f[7], 10, &s.UID}} {
		v, err := strconv.ParseUint(n.text, n.base, 64)
		*n.to = Known(v)
		errs = append(errs, err)
	}
	s.Inode, err = strconv.ParseUint(f[9], 10, 64)
	return s, errors.Join(append(errs, err)...)
}

// procAddr parses an address in the format of procfs: 32-bit words in host byte order,
// the port in hexadecimal.
func procAddr(text string) (netip.AddrPort, error) {
	words, port, ok := strings.Cut(text, ":")
	b, err := hex.DecodeString(words)
	n, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address", text)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
