// SPDX-License-Identifier: Apache-2.0

// Package sockfilter implements the part of ss(8)'s filter language that selects sockets
// by state, addresses, ports and interface.
//
//	FILTER := { state STATE | exclude STATE } [ EXPRESSION ]
//
// It follows ss of iproute2 6.1, which differs from its manual in some points. "and",
// "or" and adjacent conditions are evaluated from left to right, without precedence
// (misc/ssfilter.y has one list for all). "not" applies to the next condition only. Names
// of hosts are not looked up.
package sockfilter

import "github.com/lklrun/lklrun/internal/stack/sockdiag"

// Filter selects sockets. The zero value selects all.
type Filter struct {
	states  states
	test    test // nil: every socket
	devices []string
}

// test is a condition on a socket.
type test func(*sockdiag.Socket) bool

// Match reports whether the filter selects the socket. "dev NAME" needs the name of the
// socket's interface.
func (f *Filter) Match(s sockdiag.Socket) bool {
	return f.states.has(s.State) && (f.test == nil || f.test(&s))
}

// Empty reports whether the filter has neither states nor conditions.
func (f *Filter) Empty() bool { return !f.states.given && f.test == nil }

// HasStates reports whether the filter has states. If so, only these states count: as in
// ss, they override -l and -a.
func (f *Filter) HasStates() bool { return f.states.given }

// Devices are the interfaces named in the filter.
func (f *Filter) Devices() []string { return f.devices }

func (t test) not() test {
	return func(s *sockdiag.Socket) bool { return !t(s) }
}

func (t test) and(u test) test {
	return func(s *sockdiag.Socket) bool { return t(s) && u(s) }
}

func (t test) or(u test) test {
	return func(s *sockdiag.Socket) bool { return t(s) || u(s) }
}
