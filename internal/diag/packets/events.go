// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/drops"
	"github.com/lklrun/lklrun/pkg/capture"
)

const (
	// eventPeriod is the time between two readings. The kernel keeps 1024 records.
	eventPeriod = 200 * time.Millisecond

	// lastEvents bounds the final reading.
	lastEvents = 2 * time.Second
)

// Events reports drops, resets and retransmissions. A stack whose kernel does not report
// them has no events.
func (st *Stack) Events(ctx context.Context, names []string, filter string, handle func([]capture.Event)) error {
	accepts, err := selection(names, filter)
	if err != nil {
		return err
	}
	var all []*drops.Reader
	for _, path := range []string{drops.Drops, drops.Retransmits} {
		r, err := drops.Open(ctx, st.conn, path)
		if errors.Is(err, drops.ErrUnsupported) {
			continue
		}
		if err != nil {
			return st.over(ctx, err)
		}
		defer r.Close()
		if _, err := r.Read(ctx); err != nil { // skip the past
			return st.over(ctx, err)
		}
		r.Missed = 0
		all = append(all, r)
	}
	read := func(ctx context.Context) error {
		for _, r := range all {
			events, err := st.newEvents(ctx, r, accepts)
			if len(events) > 0 {
				handle(events)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	tick := time.NewTicker(eventPeriod)
	defer tick.Stop()
	for {
		select {
		case <-st.conn.Done():
			return nil
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEvents)
			defer cancel()
			return st.over(last, read(last))
		case <-tick.C:
			if err := read(ctx); err != nil && ctx.Err() == nil {
				return st.over(ctx, err)
			}
		}
	}
}

// newEvents reads the new records of a file.
func (st *Stack) newEvents(ctx context.Context, r *drops.Reader, accepts func(*drops.Record) bool) ([]capture.Event, error) {
	missed := r.Missed
	records, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	// The statistics of the interfaces count the copies for which the capture had no room.
	records = slices.DeleteFunc(records, func(r drops.Record) bool { return r.Reason == "PACKET_SOCK_ERROR" || !accepts(&r) })
	if err := drops.Attribute(ctx, st.conn, records); err != nil {
		return nil, err
	}
	var events []capture.Event
	if n := r.Missed - missed; n > 0 {
		events = append(events, capture.Event{Time: time.Now(), Message: fmt.Sprintf("%d events are missing: the kernel overwrote them before they were read", n)})
	}
	for i := range records {
		events = append(events, event(&records[i]))
	}
	return events, nil
}

// event describes a record.
func event(r *drops.Record) capture.Event {
	words := []string{strings.ReplaceAll(r.Kind, "-", " "), r.Reason}
	for _, word := range []string{r.Interface, r.Packet(), r.Owner(), r.Function} {
		if word != "" {
			words = append(words, word)
		}
	}
	e := capture.Event{Time: r.Time, Message: strings.Join(words, " ") + ": " + r.Meaning, Fields: []capture.Field{
		{Name: "LKLRUN_KIND", Value: r.Kind}, {Name: "LKLRUN_REASON", Value: r.Reason}, {Name: "LKLRUN_FUNCTION", Value: r.Function},
		{Name: "LKLRUN_INTERFACE", Value: r.Interface}, {Name: "LKLRUN_PROTOCOL", Value: r.Protocol}, {Name: "LKLRUN_TOKEN", Value: r.Token},
	}}
	for _, end := range []struct {
		name string
		addr netip.AddrPort
	}{{"LKLRUN_SOURCE", r.Source}, {"LKLRUN_DESTINATION", r.Destination}} {
		if end.addr.IsValid() {
			e.Fields = append(e.Fields, capture.Field{Name: end.name, Value: end.addr.String()})
		}
	}
	if r.PID != 0 {
		e.Fields = append(e.Fields, capture.Field{Name: "_COMM", Value: r.Process}, capture.Field{Name: "_PID", Value: strconv.Itoa(r.PID)})
	}
	return e
}

// selection returns whether a record belongs to a capture with these interfaces and this
// filter. The filter sees a packet that consists only of what a record contains: addresses,
// protocol, ports and TCP flags.
func selection(names []string, filter string) (func(*drops.Record) bool, error) {
	var vm *bpf.VM
	if strings.TrimSpace(filter) != "" {
		prog, err := capture.Compile(filter, capture.LinkTypeRaw, capture.MaxSnaplen)
		if err != nil {
			return nil, err
		}
		insns, ok := bpf.Disassemble(prog)
		if !ok {
			return nil, &capture.FilterError{Filter: filter, Words: "makes a program that only a kernel can run"}
		}
		if vm, err = bpf.NewVM(insns); err != nil {
			return nil, err
		}
	}
	every := len(names) == 0 || slices.Contains(names, capture.Any)
	return func(r *drops.Record) bool {
		if !every && r.Interface != "" && !slices.Contains(names, r.Interface) {
			return false
		}
		if vm == nil {
			return true
		}
		n, err := vm.Run(rebuilt(r))
		return err == nil && n > 0
	}, nil
}

// rebuilt returns the headers of a packet with the content of a record.
func rebuilt(r *drops.Record) []byte {
	var l4 []byte
	proto := drops.Protocol(r.Protocol)
	if proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP {
		l4 = binary.BigEndian.AppendUint16(nil, r.Source.Port())
		l4 = binary.BigEndian.AppendUint16(l4, r.Destination.Port())
		l4 = append(l4, make([]byte, 16)...)
		if proto == unix.IPPROTO_TCP {
			l4[12], l4[13] = 5<<4, drops.Flags(r.Flags)
		}
	}
	src, dst := r.Source.Addr(), r.Destination.Addr()
	if r.Family == "inet6" {
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 6<<4, proto, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		copy(ip[8:], src.AsSlice())
		copy(ip[24:], dst.AsSlice())
		return append(ip, l4...)
	}
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 4<<4|5, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(l4)))
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	return append(ip, l4...)
}
