// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/ui/tcpdump"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Limits of the packets sent.
const (
	maxCaptures = 4   // simultaneous captures
	maxFlows    = 16  // flows per capture
	maxLines    = 50  // packets per event, which is sent each linesEvery; further packets are only counted
	buffer      = 1e6 // bytes of buffer in the stack per interface
	linesEvery  = 250 * time.Millisecond
)

// Line is a packet as sent to the page.
type Line struct {
	Time      time.Time `json:"time"`              // time at which the stack processed the packet
	Interface string    `json:"iface"`             // interface in the stack
	Direction string    `json:"dir,omitempty"`     // In or Out, as seen from the stack
	Text      string    `json:"text"`              // tcpdump's description
	Comment   string    `json:"comment,omitempty"` // MPTCP token of the connection
}

// Lines is an event with packets.
type Lines struct {
	Packets []Line  `json:"packets"`           // newest packets since the previous event
	Seen    uint64  `json:"seen"`              // number of packets since the start of the capture, including those that no event contained
	Dropped *uint64 `json:"dropped,omitempty"` // number of packets that the stack dropped because its buffer was full
}

// View is the first event of a capture.
type View struct {
	ID     string `json:"id"`     // ID for the download
	Filter string `json:"filter"` // filter of the capture, in libpcap's language
}

// flowFilter makes a filter for TCP connections, each given as LOCAL,REMOTE.
func flowFilter(flows []string) (string, error) {
	if len(flows) == 0 || len(flows) > maxFlows {
		return "", fmt.Errorf("%d flows; expected 1 to %d", len(flows), maxFlows)
	}
	var all []string
	for _, f := range flows {
		local, remote, _ := strings.Cut(f, ",")
		a, aerr := netip.ParseAddrPort(local)
		b, berr := netip.ParseAddrPort(remote)
		if err := errors.Join(aerr, berr); err != nil {
			return "", fmt.Errorf("flow %q; expected ADDRESS:PORT,ADDRESS:PORT", f)
		}
		all = append(all, fmt.Sprintf("(host %s and host %s and port %d and port %d)", plain(a), plain(b), a.Port(), b.Port()))
	}
	return "tcp and (" + strings.Join(all, " or ") + ")", nil
}

// plain converts an address to its form in packets.
func plain(a netip.AddrPort) netip.Addr { return a.Addr().Unmap().WithZone("") }

// packets serves the event stream of a capture: first "view", then "packets", and "ended"
// at the end. The capture starts and ends with the request.
func (s *Server) packets(w http.ResponseWriter, r *http.Request) {
	name, ok := subject(w, r)
	if !ok {
		return
	}
	filter, err := flowFilter(r.URL.Query()["flow"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, done := begin(w, s.captures)
	if out == nil {
		return
	}
	defer done()
	var work sync.WaitGroup
	defer work.Wait()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	v := s.views.add()
	ended := make(chan error, 1)
	work.Go(func() {
		ended <- s.capture(ctx, name, capture.Take{Filter: filter, Snaplen: snaplen, Buffer: buffer, Annotate: true}, v)
	})
	t := teller{out: out, view: v, name: name}
	t.begin(ctx)
	defer t.end()
	if t.event("view", View{v.id, filter}) == nil {
		t.tell(ctx, ended)
	}
}

// A teller writes the packets of a view to a stream.
type teller struct {
	out     *stream
	view    *view
	tcpdump *tcpdump.Printer // nil: tcpdump does not run
	name    string           // name of the instance
	seen    uint64           // packets sent or skipped
}

// begin starts tcpdump. If this fails, the page shows only the lengths of packets.
func (t *teller) begin(ctx context.Context) {
	if p, err := tcpdump.Start(ctx); err == nil {
		t.tcpdump = p
	}
}

// describe returns a line for each packet.
func (t *teller) describe(packets []capture.Packet, members []member) []string {
	lines := make([]string, 0, len(packets))
	if t.tcpdump != nil && t.tcpdump.Write(packets, func(n int) capture.LinkType { return members[n].LinkType }) != nil {
		t.end()
	}
	for t.tcpdump != nil && len(lines) < len(packets) {
		line, of, err := t.tcpdump.Next()
		switch {
		case err != nil:
			t.tcpdump = nil
		case of != nil:
			lines = append(lines, line)
		}
	}
	for i := len(lines); i < len(packets); i++ {
		lines = append(lines, fmt.Sprintf("%d bytes (install tcpdump for details)", packets[i].Length))
	}
	return lines
}

// end ends tcpdump.
func (t *teller) end() {
	if t.tcpdump == nil {
		return
	}
	_ = t.tcpdump.End() // fails if it has ended already
	for {
		if _, _, err := t.tcpdump.Next(); err != nil {
			break
		}
	}
	t.tcpdump = nil
}

func (t *teller) event(kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return t.out.send(kind, text)
}

// tell continues until the capture has ended or the client has disconnected.
func (t *teller) tell(ctx context.Context, ended <-chan error) {
	tick := time.NewTicker(linesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.out.idle.C:
			if t.out.alive() != nil {
				return
			}
		case <-tick.C:
			if t.more(ctx) != nil {
				return
			}
		case err := <-ended:
			reason := "the instance has ended"
			if err != nil {
				reason = err.Error()
			}
			_ = t.more(ctx)                             // send the last packets
			_ = t.event("ended", Ended{t.name, reason}) // the stream ends anyway
			return
		}
	}
}

// more sends new packets.
func (t *teller) more(ctx context.Context) error {
	packets, seen := t.view.after(t.seen, maxLines)
	if seen == t.seen {
		return nil
	}
	t.seen = seen
	event := Lines{Packets: []Line{}, Seen: seen}
	members := t.view.known()
	text := t.describe(packets, members)
	for i := range packets {
		p := &packets[i]
		dir := map[capture.Direction]string{capture.In: "In", capture.Out: "Out"}[p.Dir]
		event.Packets = append(event.Packets, Line{p.Time, members[p.Interface].Name, dir, text[i], p.Comment})
	}
	n := t.view.dropped(ctx)
	event.Dropped = &n
	return t.event("packets", event)
}

// download sends the packets of a view as a file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	v := s.views.find(r.URL.Query().Get("view"))
	if v == nil {
		http.Error(w, "lklctl web: these packets are no longer stored", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	w.Header().Set("Content-Disposition", `attachment; filename="lklctl-`+v.from.UTC().Format("20060102T150405Z")+`.pcapng"`)
	_ = v.write(w) // the client has disconnected
}
