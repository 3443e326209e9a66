// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
)

// Engines that intercept the target's sockets.
const (
	EngineAuto      = "auto"      // EngineSupervise if the host supports it
	EngineSupervise = "supervise" // a process outside the program, with seccomp user notification
	EnginePreload   = "preload"   // the kernel inside the program's own process
	EngineTrace     = "trace"     // as EngineSupervise, with ptrace in place of seccomp user notification
)

// Default and maximum time in microseconds for which a waiting thread polls for
// work of the stack before it sleeps.
const (
	DefaultSpin = 50
	MaxSpin     = 1000000
)

// MaxCoalesce is the longest time in microseconds for which packets may gather.
const MaxCoalesce = 100000

// Requirements that lklrun checks at the end of a run.
const (
	RequireStack = "stack" // at least one socket was on the stack, and none was refused
	RequireMPTCP = "mptcp" // RequireStack, and at least one connection was MPTCP, and none was TCP
)

// Run is the user's configuration of one run.
type Run struct {
	Stack      string       `json:"stack,omitempty"`       // name or path of a stack
	Name       string       `json:"name,omitempty"`        // name of the instance; empty: derived from the command
	Mem        uint64       `json:"mem,omitempty"`         // memory of the stack, in bytes; 0: the stack's default
	Engine     string       `json:"engine,omitempty"`      // EngineAuto, EngineSupervise, EnginePreload or EngineTrace
	Spin       int          `json:"spin_us"`               // time to poll before sleeping, in microseconds; see DefaultSpin
	Coalesce   int          `json:"coalesce_us,omitempty"` // time for which packets may gather before they wake the stack, in microseconds
	Require    string       `json:"require,omitempty"`     // RequireStack, RequireMPTCP or empty
	Interfaces []Interface  `json:"interfaces,omitempty"`
	Ifaces     []string     `json:"iface,omitempty"` // devices of the host, which the plan turns into interfaces
	Sysctls    []Sysctl     `json:"sysctls,omitempty"`
	DNS        []netip.Addr `json:"dns,omitempty"`
	AddHosts   []HostName   `json:"add_host,omitempty"`   // names for the program's /etc/hosts
	HostNets   []HostNet    `json:"host_net,omitempty"`   // destinations that use the host's stack
	Allows     []Allow      `json:"allow,omitempty"`      // the only destinations that the program may reach; empty: all, unless there is a policy
	Egress     string       `json:"egress,omitempty"`     // file of the policy, whose rules are in Allows, or audit:FILE
	EgressLog  string       `json:"egress_log,omitempty"` // file for the decisions about destinations
	Proxy      string       `json:"proxy,omitempty"`      // URL of the proxy for all connections
	Detach     bool         `json:"detach,omitempty"`     // run in the background
	WaitAll    bool         `json:"wait_all,omitempty"`   // wait for the last process
	Listen     []int        `json:"listen,omitempty"`     // ports of servers at an address shared with the host
	PortRange  PortRange    `json:"port_range,omitzero"`  // ports for connections from such an address
	Publish    []Publish    `json:"publish,omitempty"`
	Captures   []Capture    `json:"capture,omitempty"`
	TLSKeys    bool         `json:"tls_keys,omitempty"`  // programs write their TLS secrets, for the captures
	RSTGuard   string       `json:"rst_guard,omitempty"` // GuardAuto, ...
	User       string       `json:"user,omitempty"`      // user of the target; empty: the user who starts lklrun
	Profile    string       `json:"profile,omitempty"`
	Cmdline    string       `json:"cmdline,omitempty"`  // parameters for the stack's kernel, appended to lklrun's own
	Delay      int          `json:"delay_us,omitempty"` // delay before the command starts, in microseconds
	Mount      []string     `json:"mount,omitempty"`    // types of file systems to mount in the stack
	Dump       []string     `json:"dump,omitempty"`     // files of the stack to print at the end
	Explain    bool         `json:"explain,omitempty"`  // say at the end what limited the connections
	Log        string       `json:"log,omitempty"`      // file for the output, with Detach
	Verbose    bool         `json:"verbose,omitempty"`
	Quiet      bool         `json:"quiet,omitempty"`
	Notes      []string     `json:"notes,omitempty"` // messages about values without effect, printed once
	Command    []string     `json:"command"`
}

// Confined names the flag that makes the user-mode gateway the only way to the network: with
// its value, but without a password. It is empty if there is none.
func (r *Run) Confined() string {
	switch {
	case r.Egress != "":
		return "--egress " + r.Egress
	case len(r.Allows) > 0:
		return "--allow " + r.Allows[0].String()
	case r.Proxy != "":
		if p, err := ParseProxy(r.Proxy); err == nil {
			return "--proxy " + p.String()
		}
	}
	return ""
}

// ParseEngine checks the name of an engine.
func ParseEngine(s string) (string, error) {
	switch s {
	case EngineAuto, EngineSupervise, EnginePreload, EngineTrace:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s, %s, %s or %s", s, EngineAuto, EngineSupervise, EnginePreload, EngineTrace)
}

// ParseRequire checks the name of a requirement.
func ParseRequire(s string) (string, error) {
	switch s {
	case RequireStack, RequireMPTCP:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s or %s", s, RequireStack, RequireMPTCP)
}
