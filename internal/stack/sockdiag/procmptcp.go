// SPDX-License-Identifier: Apache-2.0

package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcMPTCP holds the values in the connection file of out-of-tree MPTCP, except the
// addresses and queues.
type ProcMPTCP struct {
	Token       Value `json:"token,omitzero"`        // local token, which identifies the connection
	RemoteToken Value `json:"remote_token,omitzero"` // token of the peer
	Subflows    Value `json:"subflows,omitzero"`     // number of subflows
}

// ProcConnections lists the MPTCP connections of a stack whose sock_diag does not list
// them. It reads /proc/net/mptcp_net/mptcp, or /proc/net/mptcp, which the first versions
// of out-of-tree MPTCP and lklrun's library have. Values that the file does not contain
// are absent, including the list of subflows. ErrUnsupported means that there is no such
// file.
func ProcConnections(ctx context.Context, r FileReader) ([]Connection, error) {
	for _, path := range []string{"/proc/net/mptcp_net/mptcp", "/proc/net/mptcp"} {
		text, err := r.ReadFile(ctx, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		conns, err := parseProcMPTCP(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return conns, nil
	}
	return nil, ErrUnsupported
}

// parseProcMPTCP parses the file, including its heading.
func parseProcMPTCP(text string) ([]Connection, error) {
	conns := []Connection{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i == 0 {
			if !strings.Contains(line, "loc_tok") {
				return nil, fmt.Errorf("unexpected heading %q", line)
			}
			continue
		}
		c, err := parseProcMPTCPLine(line)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// parseProcMPTCPLine parses a line of mptcp_pm_seq_show, net/mptcp/mptcp_ctrl.c of
// out-of-tree MPTCP: sl: loc_tok rem_tok v6 local_address remote_address st ns
// tx_queue:rx_queue inode. IPv4 in an IPv6 socket is written as IPv4.
func parseProcMPTCPLine(line string) (Connection, error) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return Connection{}, fmt.Errorf("%d columns in %q, want 10", len(f), line)
	}
	p := &ProcMPTCP{}
	c := Connection{Socket: Socket{Proto: MPTCP, Family: unix.AF_INET}, Proc: p}
	if f[3] != "0" {
		c.Family = unix.AF_INET6
	}
	var errs []error
	for i, at := range []*netip.AddrPort{&c.Local, &c.Remote} {
		var err error
		*at, err = procAddr(f[4+i])
		if err == nil && at.Addr().Is6() != (c.Family == unix.AF_INET6) {
			err = fmt.Errorf("address %q contradicts v6 %q", f[4+i], f[3])
		}
		errs = append(errs, err)
	}
	send, recv, _ := strings.Cut(f[8], ":")
	var state Value
	for _, n := range []struct {
		text string
		bits int
		to   *Value
	}{
		{f[1], 32, &p.Token}, {f[2], 32, &p.RemoteToken}, {f[6], 8, &state},
		{f[7], 32, &p.Subflows}, {send, 32, &c.SendQ}, {recv, 32, &c.RecvQ},
	} {
		v, err := strconv.ParseUint(n.text, 16, n.bits)
		*n.to = Known(v)
		errs = append(errs, err)
	}
	c.State = State(state.N)
	// -1 hides the value from unprivileged readers, 0 means not agreed yet.
	for _, token := range []*Value{&p.Token, &p.RemoteToken} {
		if token.N == math.MaxUint32 || token.N == 0 {
			*token = Value{}
		}
	}
	var err error
	c.Inode, err = strconv.ParseUint(f[9], 10, 64)
	return c, errors.Join(append(errs, err)...)
}
