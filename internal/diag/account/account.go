// SPDX-License-Identifier: Apache-2.0

// Package account parses the stack host's statistics of the target's processes: which
// stack their sockets used, how much data they carried, to which peers, and whether they
// used MPTCP. csrc/engine/carrier/account.c and hostnet_rules.c write these lines.
package account

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Account holds the statistics of a run so far.
type Account struct {
	Processes []Process `json:"processes"`                   // processes that used sockets
	Hosted    []Place   `json:"host_destinations,omitempty"` // destinations reached over the host's stack (--host-net)
}

// Process holds the statistics of one process.
type Process struct {
	PID      int    `json:"pid"`             // process ID on the host; 0: several ended processes
	Command  string `json:"command"`         // process name
	Ended    bool   `json:"ended"`           // the process has ended
	Stack    int64  `json:"sockets_stack"`   // sockets created in the stack
	Host     int64  `json:"sockets_host"`    // sockets created on the host (--host-net)
	Refused  int64  `json:"sockets_refused"` // sockets refused because the stack does not support their type
	Foreign  int64  `json:"sockets_foreign"` // refused sockets of the host's network, received from outside the run
	Received int64  `json:"bytes_received"`  // bytes received over sockets of the stack
	Sent     int64  `json:"bytes_sent"`      // bytes sent over sockets of the stack

	MPTCP          int64 `json:"connections_mptcp"`           // connections over MPTCP
	TCP            int64 `json:"connections_tcp"`             // connections that did not request MPTCP
	FallbackPeer   int64 `json:"connections_fallback_peer"`   // connections whose peer does not support MPTCP
	FallbackLater  int64 `json:"connections_fallback_later"`  // MPTCP connections that later fell back to TCP
	FallbackOption int64 `json:"connections_fallback_option"` // connections that fell back because MPTCP lacks a socket option

	Peers []Peer `json:"peers,omitempty"` // peers with the most bytes, largest first
}

// Peer is a peer with the number of bytes in both directions.
type Peer struct {
	Proto string `json:"proto,omitempty"` // tcp or udp
	Addr  string `json:"addr"`            // ADDRESS:PORT; ADDRESS for incoming connections; "others" for the rest
	Bytes int64  `json:"bytes"`           // bytes in both directions
}

// Place is a destination with the number of sockets that were connected to it over the
// host's stack.
type Place struct {
	Addr    string `json:"addr"`    // ADDRESS:PORT, or "elsewhere"
	Sockets int64  `json:"sockets"` // sockets connected to it
}

// Parse extracts an Account from the stack host's counters.
func Parse(stats []stackconn.Stat) *Account {
	a := &Account{Processes: []Process{}}
	index := map[string]int{}
	for _, s := range stats {
		if where, ok := strings.CutPrefix(s.Name, "hosted."); ok {
			if s.Value > 0 {
				a.Hosted = append(a.Hosted, Place{where, s.Value})
			}
			continue
		}
		whose, pid, command, field, ok := split(s.Name)
		if !ok {
			continue
		}
		n, known := index[whose]
		if !known {
			n = len(a.Processes)
			index[whose] = n
			a.Processes = append(a.Processes, Process{PID: pid, Command: command, Ended: strings.HasPrefix(whose, "ended.")})
		}
		a.Processes[n].set(field, s.Value)
	}
	for n := range a.Processes {
		peers := a.Processes[n].Peers
		sort.SliceStable(peers, func(i, j int) bool {
			x, y := &peers[i], &peers[j]
			if (x.Proto == "") != (y.Proto == "") { // the remaining peers together
				return y.Proto == ""
			}
			return x.Bytes > y.Bytes
		})
	}
	return a
}

// split splits a counter's name, which has the form proc.PID.COMMAND.FIELD. The command
// and a peer's address may contain dots and blanks.
func split(name string) (whose string, pid int, command, field string, ok bool) {
	f := strings.SplitN(name, ".", 3)
	if len(f) != 3 || f[0] != "proc" && f[0] != "ended" {
		return "", 0, "", "", false
	}
	pid, err := strconv.Atoi(f[1])
	if err != nil {
		return "", 0, "", "", false
	}
	i := strings.LastIndex(f[2], ".peer ")
	if i < 0 {
		i = strings.LastIndexByte(f[2], '.')
	}
	if i < 0 {
		return "", 0, "", "", false
	}
	return name[:len(name)-len(f[2])+i], pid, f[2][:i], f[2][i+1:], true
}

// set stores one field.
func (p *Process) set(field string, value int64) {
	if peer, ok := strings.CutPrefix(field, "peer "); ok {
		proto, addr, both := strings.Cut(peer, " ")
		if !both {
			proto, addr = "", peer
		}
		p.Peers = append(p.Peers, Peer{proto, addr, value})
		return
	}
	to := map[string]*int64{
		"stack": &p.Stack, "host": &p.Host, "refused": &p.Refused, "foreign": &p.Foreign, "received": &p.Received, "sent": &p.Sent,
		"mptcp": &p.MPTCP, "tcp": &p.TCP,
		"fallback-peer": &p.FallbackPeer, "fallback-later": &p.FallbackLater, "fallback-option": &p.FallbackOption,
	}[field]
	if to != nil {
		*to = value
	}
}

// Connections describes the outcome of a process's connections. It returns "" if there
// were none.
func (p *Process) Connections() string {
	var parts []string
	add := func(n int64, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(p.MPTCP, "%d MPTCP")
	add(p.TCP, "%d TCP")
	add(p.FallbackPeer, "%d TCP (peer without MPTCP)")
	add(p.FallbackLater, "%d TCP (later fallback from MPTCP)")
	add(p.FallbackOption, "%d TCP (socket option without MPTCP support)")
	return strings.Join(parts, ", ")
}

// PeerNames formats the first n peers.
func (p *Process) PeerNames(n int) []string {
	var names []string
	for _, q := range p.Peers {
		if q.Proto == "" {
			continue
		}
		if len(names) == n {
			names = append(names, "...")
			break
		}
		name := q.Addr
		if q.Proto != "tcp" {
			name = q.Proto + " " + name
		}
		names = append(names, name)
	}
	return names
}
