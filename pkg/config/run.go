// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
)

// Engines that intercept the target's sockets.
const (
	EngineAuto      = "auto"      // EngineSupervise where the host offers it
	EngineSupervise = "supervise" // a process beside the program, by seccomp user notification
	EnginePreload   = "preload"   // the kernel in the program's own process
)

// How long whoever waits for the stack looks for work before it sleeps, in
// microseconds: by default, and at most.
const (
	DefaultSpin = 50
	MaxSpin     = 1000000
)

// What a run may be required to have used in the end.
const (
	RequireStack = "stack" // a socket at least came from the stack, and none was refused
	RequireMPTCP = "mptcp" // moreover a connection at least was MPTCP, and none was TCP
)

// Run is all that a user says about one run.
type Run struct {
	Stack      string       `json:"stack,omitempty"`   // a stack's name, or a path
	Name       string       `json:"name,omitempty"`    // of the instance; empty: after the command
	Mem        uint64       `json:"mem,omitempty"`     // of the stack, in bytes; 0: the stack's default
	Engine     string       `json:"engine,omitempty"`  // EngineAuto, EngineSupervise or EnginePreload
	Spin       int          `json:"spin_us"`           // microseconds, see DefaultSpin
	Require    string       `json:"require,omitempty"` // RequireStack, RequireMPTCP or nothing
	Interfaces []Interface  `json:"interfaces,omitempty"`
	Ifaces     []string     `json:"iface,omitempty"` // devices of the host's; a plan makes interfaces of them
	Sysctls    []Sysctl     `json:"sysctls,omitempty"`
	DNS        []netip.Addr `json:"dns,omitempty"`
	HostNets   []HostNet    `json:"host_net,omitempty"`  // destinations that stay on the host's stack
	Detach     bool         `json:"detach,omitempty"`    // in the background
	WaitAll    bool         `json:"wait_all,omitempty"`  // until the last process has ended
	Listen     []int        `json:"listen,omitempty"`    // ports of servers at an address shared with the host
	PortRange  PortRange    `json:"port_range,omitzero"` // of connections from such an address
	Publish    []Publish    `json:"publish,omitempty"`
	Captures   []Capture    `json:"capture,omitempty"`
	RSTGuard   string       `json:"rst_guard,omitempty"` // GuardAuto, ...
	User       string       `json:"user,omitempty"`      // the target's; empty: whoever starts lklrun
	Profile    string       `json:"profile,omitempty"`
	Cmdline    string       `json:"cmdline,omitempty"`  // of the stack's kernel, behind lklrun's own
	Delay      int          `json:"delay_us,omitempty"` // microseconds before the command runs
	Mount      []string     `json:"mount,omitempty"`    // types of file systems, in the stack
	Dump       []string     `json:"dump,omitempty"`     // files of the stack, at the end
	Log        string       `json:"log,omitempty"`      // with Detach
	Verbose    bool         `json:"verbose,omitempty"`
	Quiet      bool         `json:"quiet,omitempty"`
	Notes      []string     `json:"notes,omitempty"` // what has no meaning here, to be told once
	Command    []string     `json:"command"`
}

// ParseEngine checks the name of an engine.
func ParseEngine(s string) (string, error) {
	switch s {
	case EngineAuto, EngineSupervise, EnginePreload:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s, %s or %s", s, EngineAuto, EngineSupervise, EnginePreload)
}

// ParseRequire checks the name of a requirement.
func ParseRequire(s string) (string, error) {
	switch s {
	case RequireStack, RequireMPTCP:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s or %s", s, RequireStack, RequireMPTCP)
}
