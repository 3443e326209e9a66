// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/owners"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Attribute sets the processes of the records.
func Attribute(ctx context.Context, conn *stackconn.Conn, all []Record) error {
	if len(all) == 0 {
		return nil
	}
	var sockets []sockdiag.Socket
	for i := range all {
		sockets = append(sockets, all[i].Socket())
	}
	if err := owners.Attribute(ctx, conn, sockets); err != nil {
		return err
	}
	for i, s := range sockets {
		if all[i].Inode != 0 && len(s.Processes) > 0 {
			all[i].PID, all[i].Process = s.Processes[0].PID, s.Processes[0].Comm
		}
	}
	return nil
}

// Socket returns a socket with the addresses of a packet, to which filters and owners
// apply.
func (r *Record) Socket() sockdiag.Socket {
	s := sockdiag.Socket{Proto: sockdiag.Proto(r.Protocol), Local: r.Source, Remote: r.Destination, Inode: r.Inode, Iface: r.Interface}
	switch a := r.Source.Addr(); {
	case a.Is4():
		s.Family = unix.AF_INET
	case a.Is6():
		s.Family = unix.AF_INET6
	}
	return s
}

// Packet describes the packet in the manner of tcpdump(8).
func (r *Record) Packet() string {
	words := []string{r.Protocol}
	if r.Protocol == "" {
		words[0] = r.Family
	}
	if r.Source.IsValid() || r.Destination.IsValid() {
		words = append(words, end(r.Source)+" > "+end(r.Destination))
	}
	if r.Flags != "" {
		words = append(words, "["+r.Flags+"]")
	}
	if r.Kind == Drop || r.Kind == Retransmit {
		words = append(words, fmt.Sprintf("%d B", r.Bytes))
	}
	if r.Token != "" {
		words = append(words, "token "+r.Token)
	}
	return strings.Join(words, " ")
}

// end formats an address, with its port if it has one.
func end(a netip.AddrPort) string {
	switch {
	case !a.IsValid():
		return "*"
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}

// Owner returns the process, such as curl(4711), or "" if it is not known.
func (r *Record) Owner() string {
	if r.Process == "" {
		return ""
	}
	return fmt.Sprintf("%s(%d)", r.Process, r.PID)
}
