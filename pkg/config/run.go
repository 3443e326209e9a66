// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
)

// Engines that intercept the target's sockets.
const (
	EngineAuto      = "auto"
	EngineSupervise = "supervise"
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
	Engine     string       `json:"engine,omitempty"`  // EngineAuto or EngineSupervise
	Require    string       `json:"require,omitempty"` // RequireStack, RequireMPTCP or nothing
	Interfaces []Interface  `json:"interfaces,omitempty"`
	Sysctls    []Sysctl     `json:"sysctls,omitempty"`
	DNS        []netip.Addr `json:"dns,omitempty"`
	Command    []string     `json:"command"`
}

// ParseEngine checks the name of an engine.
func ParseEngine(s string) (string, error) {
	switch s {
	case EngineAuto, EngineSupervise:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s or %s", s, EngineAuto, EngineSupervise)
}

// ParseRequire checks the name of a requirement.
func ParseRequire(s string) (string, error) {
	switch s {
	case RequireStack, RequireMPTCP:
		return s, nil
	}
	return "", fmt.Errorf("%q; expected %s or %s", s, RequireStack, RequireMPTCP)
}
