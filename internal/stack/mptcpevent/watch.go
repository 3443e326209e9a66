// SPDX-License-Identifier: Apache-2.0

package mptcpevent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Attributes of an event, enum mptcp_event_attr of include/uapi/linux/mptcp_pm.h.
const (
	attrToken       = 1
	attrLocalID     = 3
	attrRemoteID    = 4
	attrLocal4      = 5
	attrLocal6      = 6
	attrRemote4     = 7
	attrRemote6     = 8
	attrLocalPort   = 9
	attrRemotePort  = 10
	attrBackup      = 11
	attrError       = 12
	attrFlags       = 13
	attrIfIndex     = 15
	attrResetReason = 16
	attrServerSide  = 18

	// Bits of attrFlags, include/uapi/linux/mptcp.h.
	flagDenyJoinID0 = 1 << 0 // MPTCP_PM_EV_FLAG_DENY_JOIN_ID0
	flagServerSide  = 1 << 1 // MPTCP_PM_EV_FLAG_SERVER_SIDE, of later kernels
)

// Watcher receives the events of a stack since Open.
type Watcher struct{ nl *netlink.Conn }

// Open starts to listen, until ctx is done or Close. The error wraps
// stacknet.ErrNoPathManager if the stack has no MPTCP.
func Open(ctx context.Context, conn *stackconn.Conn) (*Watcher, error) {
	nl, err := stacknet.ListenMPTCP(ctx, conn)
	if err != nil {
		return nil, err
	}
	return &Watcher{nl}, nil
}

// Filter lets the stack drop all events except those of kinds, so that unwanted events cost
// nothing.
func (w *Watcher) Filter(kinds ...Kind) error {
	program, err := bpf.Assemble(only(kinds))
	if err != nil {
		return err
	}
	return w.nl.SetBPF(program)
}

// only returns a filter that accepts events of the wanted kinds. The command follows
// struct nlmsghdr (16 bytes).
func only(wanted []Kind) []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 16, Size: 1}}
	var commands []uint8
	for command, kind := range kinds {
		if slices.Contains(wanted, kind) {
			commands = append(commands, command)
		}
	}
	for n, command := range commands {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(command), SkipTrue: uint8(len(commands) - n)})
	}
	return append(program, bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 1 << 16})
}

// Close closes the Watcher.
func (w *Watcher) Close() { w.nl.Close() }

// Run calls tell with each event in order, until the Watcher is closed or the connection
// to the stack ends, and returns the error.
func (w *Watcher) Run(tell func(Event)) error {
	for {
		msgs, err := w.nl.Receive()
		if errors.Is(err, syscall.ENOBUFS) {
			tell(Event{Time: time.Now(), Kind: Lost})
			continue
		}
		if err != nil {
			return err
		}
		now := time.Now()
		for _, m := range msgs {
			if e, ok := parse(m.Data); ok {
				e.Time = now
				tell(e)
			}
		}
	}
}

// parse parses struct genlmsghdr and its attributes; false if the event is unknown.
func parse(b []byte) (e Event, ok bool) {
	if len(b) < unix.GENL_HDRLEN {
		return e, false
	}
	if e.Kind, ok = kinds[b[0]]; !ok {
		return e, false
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.GENL_HDRLEN:])
	if err != nil {
		return e, false
	}
	var local, remote netip.Addr
	var localPort, remotePort uint16
	for ad.Next() {
		switch ad.Type() {
		case attrToken:
			e.Token = Token(ad.Uint32())
		case attrLocalID:
			e.LocalID = number(ad.Uint8())
		case attrRemoteID:
			e.RemoteID = number(ad.Uint8())
		case attrLocal4, attrLocal6:
			local = address(ad.Bytes())
		case attrRemote4, attrRemote6:
			remote = address(ad.Bytes())
		case attrLocalPort:
			localPort = port(ad.Bytes())
		case attrRemotePort:
			remotePort = port(ad.Bytes())
		case attrBackup:
			e.Backup = ad.Uint8() != 0
		case attrError:
			e.Errno = syscall.Errno(ad.Uint8())
		case attrFlags:
			flags := ad.Uint16()
			e.DenyJoinID0 = flags&flagDenyJoinID0 != 0
			e.Server = e.Server || flags&flagServerSide != 0
		case attrIfIndex:
			e.IfIndex = int(int32(ad.Uint32()))
		case attrResetReason:
			e.ResetReason = number(ad.Uint32())
		case attrServerSide:
			e.Server = e.Server || ad.Uint8() != 0
		}
	}
	if ad.Err() != nil {
		return e, false
	}
	if local.IsValid() {
		e.Local = netip.AddrPortFrom(local, localPort)
	}
	if remote.IsValid() {
		e.Remote = netip.AddrPortFrom(remote, remotePort)
	}
	return e, true
}

func number[N uint8 | uint32](n N) *int {
	i := int(n)
	return &i
}

// address parses an address; IPv6 sockets that carry IPv4 have mapped addresses.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

func port(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return uint16(b[0])<<8 | uint16(b[1])
}
