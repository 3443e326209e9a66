// SPDX-License-Identifier: Apache-2.0

package mptcpevent

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
)

// The filter of a History passes exactly the events that it keeps.
func TestNotable(t *testing.T) {
	vm, err := bpf.NewVM(notable)
	if err != nil {
		t.Fatal(err)
	}
	created := func(flags bool) func(*netlink.AttributeEncoder) {
		return func(ae *netlink.AttributeEncoder) {
			ae.Uint32(attrToken, 1)
			ae.Uint8(attrServerSide, 0)
			if flags {
				ae.Uint16(attrFlags, flagDenyJoinID0)
			}
			ae.Uint16(2, 2) // family
		}
	}
	for _, c := range []struct {
		cmd  uint8
		fill func(*netlink.AttributeEncoder)
		want bool
	}{
		{1, created(true), false},
		{2, created(false), false},
		{2, created(true), true},
		{3, created(false), false},
		{6, refused, true},
		{7, refused, true},
		{10, refused, true},
		{11, refused, true},
		{13, refused, true},
	} {
		n, err := vm.Run(append(make([]byte, 16), message(t, c.cmd, c.fill)...))
		if err != nil || n > 0 != c.want {
			t.Errorf("command %d: %d, %v; want %v", c.cmd, n, err, c.want)
		}
	}
	for size := range 60 {
		if _, err := vm.Run(make([]byte, size)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// With a filter for two kinds, no other event arrives.
func TestOnly(t *testing.T) {
	vm, err := bpf.NewVM(only([]Kind{SubEstablished, SubClosed}))
	if err != nil {
		t.Fatal(err)
	}
	for command := range kinds {
		n, err := vm.Run(append(make([]byte, 16), message(t, command, refused)...))
		if want := command == 10 || command == 11; err != nil || n > 0 != want {
			t.Errorf("command %d: %d, %v; want %v", command, n, err, want)
		}
	}
}

// A History keeps the newest events, returns those requested, and reports a
// gap.
func TestHistoryBounded(t *testing.T) {
	h := &History{}
	for i := range 3 * historyMost {
		h.add(Event{Token: Token(i % 2), Kind: SubClosed, IfIndex: i})
		if len(h.events) > historyMost {
			t.Fatal(len(h.events))
		}
	}
	p := h.Events([]Token{1})
	if last := p.Events[len(p.Events)-1]; !p.Gap || last.IfIndex != 3*historyMost-1 || last.Token != 1 {
		t.Errorf("gap %v, last %+v", p.Gap, last)
	}
	if p := h.Events(nil); len(p.Events) != 0 {
		t.Errorf("%d events of no connection", len(p.Events))
	}
}
