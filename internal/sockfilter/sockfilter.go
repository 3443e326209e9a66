// SPDX-License-Identifier: Apache-2.0

// Package sockfilter is the filter language of ss(8): which sockets, by state,
// addresses, ports, interface and mark.
//
//	FILTER := { state STATE | exclude STATE } [ EXPRESSION ]
//
// It means what ss of iproute2 6.1 makes of it, which is not in all things what
// its manual says: "and", "or" and what stands side by side are taken from left
// to right, none before the other (misc/ssfilter.y has one list for all); "not"
// is of the next condition alone. Names of hosts are not looked up.
package sockfilter

import "github.com/lklrun/lklrun/internal/sockdiag"

// Filter says of sockets whether they are meant. The zero value means all.
type Filter struct {
	states  states
	test    test // nil: every socket
	devices []string
	asks    map[string]bool // what must be known of sockets
}

// test is a condition on a socket.
type test func(*sockdiag.Socket) bool

// Match says whether the socket is meant. The name of its interface must be known
// for "dev NAME", and MarkAutobound must have told of "autobound".
func (f *Filter) Match(s sockdiag.Socket) bool {
	return f.states.has(s.State) && (f.test == nil || f.test(&s))
}

// Empty says that the filter has neither states nor conditions.
func (f *Filter) Empty() bool { return !f.states.given && f.test == nil }

// HasStates says that the filter names states: they are all that decides then, as
// in ss, where -l and -a say nothing beside them.
func (f *Filter) HasStates() bool { return f.states.given }

// NeedsAutobound says that Match asks for sockdiag.MarkAutobound's answer.
func (f *Filter) NeedsAutobound() bool { return f.asks["autobound"] }

// Devices are the interfaces that the filter names.
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
