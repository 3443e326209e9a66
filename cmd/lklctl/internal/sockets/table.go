// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

func writeNetstat(w io.Writer, sockets []sockdiag.Socket, o *netstatOptions) error {
	t := cli.NewTable("PROTO", "STATE", ">RECVQ", ">SENDQ", "LOCAL", "PEER", "PROCESS")
	if o.noHeader {
		t.Bare()
	}
	if !o.oneLine {
		t.Narrow()
	}
	for _, s := range sockets {
		process := FirstProcess(s.Processes)
		groups := o.groups(s)
		if o.oneLine {
			process = strings.Join(append(strings.Fields(process), flat(groups)...), " ")
		}
		t.Row(protoName(s), s.State.String(), Number(s.RecvQ), Number(s.SendQ), LocalAddr(s), RemoteAddr(s), process)
		if !o.oneLine {
			t.Below(below(groups, cli.Columns(w)))
		}
	}
	return t.Write(w)
}

// group is a list of words about a socket under one heading.
type group struct {
	name  string
	words []string
}

func flat(groups []group) (words []string) {
	for _, g := range groups {
		words = append(words, g.words...)
	}
	return words
}

// Layout of the lines below a socket: the group's name in one column, and its
// words in the next, up to the width of the terminal.
const (
	groupIndent = 4
	wordIndent  = groupIndent + 12
)

func below(groups []group, columns int) string {
	var b strings.Builder
	for _, g := range groups {
		if len(g.words) == 0 {
			continue
		}
		line := fmt.Sprintf("%*s%-*s", groupIndent, "", wordIndent-groupIndent-1, g.name)
		for i, word := range g.words {
			if i > 0 && columns > 0 && len(line)+1+len(word) > columns {
				b.WriteString(line + "\n")
				line = strings.Repeat(" ", wordIndent-1)
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// protoName returns the protocol's name. Like netstat(8), it marks IPv6.
func protoName(s sockdiag.Socket) string {
	if s.Family == unix.AF_INET6 {
		return string(s.Proto) + "6"
	}
	return string(s.Proto)
}

// LocalAddr formats the local address and port. Like netstat, it formats an absent
// port as *.
func LocalAddr(s sockdiag.Socket) string {
	switch s.Proto {
	case sockdiag.Unix:
		return s.Name
	case sockdiag.Packet:
		if s.Iface != "" {
			return s.Name + " on " + s.Iface
		}
		return s.Name
	case sockdiag.Netlink:
		return s.Name + ":" + portID(s.PortID)
	}
	return hostPort(s.Local.Addr().String(), s.Local.Port(), s.Local.Addr().Is6())
}

// RemoteAddr formats the peer's address and port, like LocalAddr.
func RemoteAddr(s sockdiag.Socket) string {
	if s.Proto == sockdiag.Netlink && s.Peer.Known {
		return portID(s.Peer)
	}
	if !s.Remote.IsValid() {
		return ""
	}
	return hostPort(s.Remote.Addr().String(), s.Remote.Port(), s.Remote.Addr().Is6())
}

// portID formats the address of a netlink socket. Like ss, it shows the address of
// the kernel by name.
func portID(id sockdiag.Value) string {
	if id.N == 0 {
		return "kernel"
	}
	return Number(id)
}

func hostPort(host string, port uint16, six bool) string {
	if six {
		host = "[" + host + "]"
	}
	if port == 0 {
		return host + ":*"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// FirstProcess names the first process that has a socket, and how many more have it.
func FirstProcess(procs []sockdiag.Process) string {
	if len(procs) == 0 {
		return ""
	}
	s := fmt.Sprintf("%s(%d)", procs[0].Comm, procs[0].PID)
	if n := len(procs) - 1; n > 0 {
		s += fmt.Sprintf("+%d", n)
	}
	return s
}
