// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/sockdiag"
	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// netstatOptions are the flags of netstat, as ss(8) has them.
type netstatOptions struct {
	listening, all                      bool
	tcp, udp, raw, mptcp, unix, packet  bool
	v4, v6                              bool
	processes, numeric, info, connected bool
}

func (c *ctl) netstatCommand() *cobra.Command {
	var o netstatOptions
	var w watching
	cmd := &cobra.Command{
		Use:   "netstat [-l] [-t] [-u] [-w] [-M] [-x] [-0] [-4|-6] [-p] [-i] [--watch]",
		Short: "list the stack's sockets with the processes they belong to",
		Long: `netstat lists the sockets of the stack: kind, state, queues, addresses, process.

The flags are those of ss(8); without any it shows TCP, UDP, raw and MPTCP
sockets in every state. A TCP connection that is part of an MPTCP connection is
shown too: as it is in the stack's own /proc/net/tcp. The process is the one
that holds the socket now, "(1234)" behind it its pid; +N stands for N more.`,
		Example: `  lklctl netstat
  lklctl netstat -tl
  lklctl netstat -tip
  lklctl netstat -o json | jq '.[] | select(.state=="ESTAB") | .remote'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.listening && o.connected {
				return cli.Usagef("-l and -c: choose one")
			}
			return noArgs(cmd, args)
		},
		RunE: c.watch(&w, func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, _ []string) error {
			sockets, err := c.gather(ctx, conn, o)
			if err != nil {
				return err
			}
			return c.show(netstatRows(sockets), len(sockets), c.nothing("instance %q has no such sockets", info.Name), func(out io.Writer) error {
				return writeNetstat(out, sockets, o)
			})
		}),
	}
	f := cmd.Flags()
	c.flags(f, false)
	document(cmd, []netstatRow{})
	w.flag(f)
	f.BoolVarP(&o.listening, "listening", "l", false, "only listening sockets")
	f.BoolVarP(&o.all, "all", "a", false, "sockets in every state (the default)")
	f.BoolVarP(&o.connected, "connected", "c", false, "only connected sockets")
	f.BoolVarP(&o.tcp, "tcp", "t", false, "TCP")
	f.BoolVarP(&o.udp, "udp", "u", false, "UDP")
	f.BoolVarP(&o.raw, "raw", "w", false, "raw IP")
	f.BoolVarP(&o.mptcp, "mptcp", "M", false, "MPTCP")
	f.BoolVarP(&o.unix, "unix", "x", false, "unix domain, of the stack itself")
	f.BoolVarP(&o.packet, "packet", "0", false, "packet")
	f.BoolVarP(&o.v4, "ipv4", "4", false, "only IPv4")
	f.BoolVarP(&o.v6, "ipv6", "6", false, "only IPv6")
	f.BoolVarP(&o.processes, "processes", "p", false, "every process with its descriptors, as ss writes them")
	f.BoolVarP(&o.numeric, "numeric", "n", false, "numbers instead of names (always so)")
	f.BoolVarP(&o.info, "info", "i", false, "a second line: congestion control, RTT, window, bytes")
	return cmd
}

// kinds are the sockets asked for, and whether each must be known to the stack.
func (o netstatOptions) kinds() (kinds []sockdiag.Proto, named bool) {
	for _, k := range []struct {
		on    bool
		proto sockdiag.Proto
	}{
		{o.tcp, sockdiag.TCP},
		{o.mptcp, sockdiag.MPTCP},
		{o.udp, sockdiag.UDP},
		{o.raw, sockdiag.Raw},
		{o.packet, sockdiag.Packet},
		{o.unix, sockdiag.Unix},
	} {
		if k.on {
			kinds = append(kinds, k.proto)
		}
	}
	if len(kinds) > 0 {
		return kinds, true
	}
	return []sockdiag.Proto{sockdiag.TCP, sockdiag.MPTCP, sockdiag.UDP, sockdiag.Raw}, false
}

// gather lists the sockets that o asks for, with their owners.
func (c *ctl) gather(ctx context.Context, conn *stackconn.Conn, o netstatOptions) ([]sockdiag.Socket, error) {
	kinds, named := o.kinds()
	var all []sockdiag.Socket
	for _, k := range kinds {
		some, err := sockdiag.List(ctx, conn, k)
		if errors.Is(err, sockdiag.ErrUnsupported) && !named {
			continue // the stack has none of them
		}
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			if o.wants(s) {
				all = append(all, s)
			}
		}
	}
	if err := annotate(ctx, conn, all); err != nil {
		return nil, err
	}
	sockdiag.Sort(all)
	return all, nil
}

func (o netstatOptions) wants(s sockdiag.Socket) bool {
	if o.v4 != o.v6 && (o.v4 && s.Family != unix.AF_INET || o.v6 && s.Family != unix.AF_INET6) {
		return false
	}
	// ss counts what waits for datagrams among the listening.
	listening := s.State == sockdiag.Listen || s.State == sockdiag.Close && s.Proto != sockdiag.TCP && s.Proto != sockdiag.MPTCP
	switch {
	case o.listening:
		return listening
	case o.connected:
		return !listening
	}
	return true
}

// annotate tells sockets their processes and interfaces.
func annotate(ctx context.Context, conn *stackconn.Conn, sockets []sockdiag.Socket) error {
	owners, err := conn.Owners(ctx)
	if err != nil {
		return err
	}
	sockdiag.Attribute(sockets, owners, int(conn.Hello().HostPID))
	names, err := newInterfaces(ctx, conn)
	if err != nil {
		return err
	}
	for i := range sockets {
		sockets[i].Iface = names.Of(sockets[i].IfIndex, sockets[i].Local.Addr())
	}
	return nil
}

// newInterfaces asks for what finds the interface of a socket.
func newInterfaces(ctx context.Context, conn *stackconn.Conn) (*stacknet.Names, error) {
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil, err
	}
	addrs, err := stacknet.Addresses(ctx, conn)
	if err != nil {
		return nil, err
	}
	return stacknet.NewNames(links, addrs), nil
}

// netstatRow is a socket as netstat writes it in JSON: addresses as in the
// table, and the first process without its list.
type netstatRow struct {
	sockdiag.Socket
	Family  string `json:"family"`
	Local   string `json:"local,omitempty"`
	Remote  string `json:"remote,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Process string `json:"process,omitempty"`
}

func netstatRows(sockets []sockdiag.Socket) []netstatRow {
	rows := make([]netstatRow, 0, len(sockets))
	for _, s := range sockets {
		rows = append(rows, newRow(s))
	}
	return rows
}

func newRow(s sockdiag.Socket) netstatRow {
	r := netstatRow{Socket: s, Family: familyName(s.Family), Local: localAddr(s), Remote: remoteAddr(s)}
	if len(s.Processes) > 0 {
		r.PID, r.Process = s.Processes[0].PID, s.Processes[0].Comm
	}
	return r
}

func familyName(f int) string {
	switch f {
	case unix.AF_INET:
		return "inet"
	case unix.AF_INET6:
		return "inet6"
	case unix.AF_UNIX:
		return "unix"
	case unix.AF_PACKET:
		return "packet"
	}
	return fmt.Sprint(f)
}

func writeNetstat(w io.Writer, sockets []sockdiag.Socket, o netstatOptions) error {
	t := cli.NewTable("PROTO", "STATE", ">RECVQ", ">SENDQ", "LOCAL", "PEER", "PROCESS")
	for _, s := range sockets {
		process := firstProcess(s.Processes)
		if o.processes {
			process = allProcesses(s.Processes)
		}
		t.Row(protoName(s), s.State.String(), number(s.RecvQ), number(s.SendQ), localAddr(s), remoteAddr(s), process)
	}
	if !o.info {
		return t.Write(w)
	}
	// The second lines are not part of the columns: print row by row.
	var b strings.Builder
	if err := t.Write(&b); err != nil {
		return err
	}
	lines := strings.SplitAfter(b.String(), "\n")
	var out strings.Builder
	out.WriteString(lines[0])
	for i, s := range sockets {
		out.WriteString(lines[i+1])
		if text := infoLine(s); text != "" {
			out.WriteString("       " + text + "\n")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// protoName tells IPv6 apart, as netstat(8) does.
func protoName(s sockdiag.Socket) string {
	if s.Family == unix.AF_INET6 {
		return string(s.Proto) + "6"
	}
	return string(s.Proto)
}

// localAddr and remoteAddr write a port that is none as *, as netstat does.
func localAddr(s sockdiag.Socket) string {
	switch s.Proto {
	case sockdiag.Unix:
		return s.Name
	case sockdiag.Packet:
		if s.Iface != "" {
			return s.Name + " on " + s.Iface
		}
		return s.Name
	}
	return hostPort(s.Local.Addr().String(), s.Local.Port(), s.Local.Addr().Is6())
}

func remoteAddr(s sockdiag.Socket) string {
	if !s.Remote.IsValid() {
		return ""
	}
	return hostPort(s.Remote.Addr().String(), s.Remote.Port(), s.Remote.Addr().Is6())
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

func firstProcess(procs []sockdiag.Process) string {
	if len(procs) == 0 {
		return ""
	}
	s := fmt.Sprintf("%s(%d)", procs[0].Comm, procs[0].PID)
	if n := len(procs) - 1; n > 0 {
		s += fmt.Sprintf("+%d", n)
	}
	return s
}

// allProcesses writes users as ss -p does.
func allProcesses(procs []sockdiag.Process) string {
	var all []string
	for _, p := range procs {
		if len(p.FDs) == 0 {
			all = append(all, fmt.Sprintf("(%q,pid=%d)", p.Comm, p.PID))
		}
		for _, fd := range p.FDs {
			all = append(all, fmt.Sprintf("(%q,pid=%d,fd=%d)", p.Comm, p.PID, fd))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "users:(" + strings.Join(all, ",") + ")"
}

// infoLine is the second line of -i.
func infoLine(s sockdiag.Socket) string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+":"+value)
		}
	}
	if s.Congestion != "" {
		words = append(words, s.Congestion)
	}
	if i := s.TCP; i != nil && s.State != sockdiag.Listen {
		add("rtt", micros(i.RTT))
		add("cwnd", number(i.Cwnd))
		add("mss", number(i.SndMSS))
		add("sent", bytes(i.BytesSent))
		add("acked", bytes(i.BytesAcked))
		add("received", bytes(i.BytesRecv))
		add("retrans", number(i.TotalRetrans))
		add("pacing", rate(i.PacingRate))
		add("delivery", rate(i.DeliveryRate))
	}
	if i := s.MPTCP; i != nil {
		add("token", token(i.Token))
		add("sent", bytes(i.BytesSent))
		add("received", bytes(i.BytesRecv))
	}
	if f := s.Subflow; f != nil && len(f.Flags.Names()) > 0 {
		add("subflow", strings.Join(f.Flags.Names(), ","))
	}
	add("if", s.Iface)
	return strings.Join(words, " ")
}
