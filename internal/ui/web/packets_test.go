// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/pkg/capture"
)

func TestFlowFilter(t *testing.T) {
	for _, c := range []struct {
		want  string
		flows []string
	}{
		{"tcp and ((host 10.0.0.1 and host 10.0.0.2 and port 80 and port 81))", []string{"10.0.0.1:80,10.0.0.2:81"}},
		{"tcp and ((host 10.0.0.1 and host 10.0.0.2 and port 80 and port 81))", []string{"[::ffff:10.0.0.1]:80,10.0.0.2:81"}},
		{"tcp and ((host fe80::1 and host fe80::2 and port 80 and port 81))", []string{"[fe80::1]:80,[fe80::2%eth0]:81"}},
		{"tcp and ((host ::1 and host ::1 and port 1 and port 2) or (host ::1 and host ::1 and port 3 and port 4))", []string{"[::1]:1,[::1]:2", "[::1]:3,[::1]:4"}},
		{"", nil},
		{"", make([]string, maxFlows+1)},
		{"", []string{"10.0.0.1:80"}},
		{"", []string{"10.0.0.1:80,10.0.0.2"}},
		{"", []string{"10.0.0.1:80,10.0.0.2:81 or tcp"}},
		{"", []string{"a:80,b:81"}},
	} {
		got, err := flowFilter(c.flows)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.flows, got, err)
		}
		if err != nil {
			continue
		}
		if _, err := capture.Compile(got, capture.LinkTypeEthernet, snaplen); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// A view keeps the newest packets and counts all.
func TestView(t *testing.T) {
	var v view
	for n := range 3 {
		packets := make([]capture.Packet, maxPackets/2)
		for i := range packets {
			packets[i].Length = n*len(packets) + i
		}
		if err := v.Packets(packets); err != nil {
			t.Fatal(err)
		}
	}
	got, seen := v.after(0, 10)
	if seen != 3*maxPackets/2 || len(got) != 10 || got[9].Length != int(seen)-1 {
		t.Errorf("%d packets of %d, the last is number %d", len(got), seen, got[9].Length)
	}
	if got, _ := v.after(seen-3, 10); len(got) != 3 || got[0].Length != int(seen)-3 {
		t.Errorf("behind number %d: %v", seen-3, got)
	}
	if got, _ := v.after(0, 1<<20); len(got) != maxPackets {
		t.Errorf("%d are kept", len(got))
	}
}

// The stream of a capture, its end, and its file.
func TestPackets(t *testing.T) {
	s := newStage(t)
	data := make([]byte, 60)
	s.server.capture = func(ctx context.Context, name string, take capture.Take, h capture.Handler) error {
		h.(*view).add(member{
			capture.Interface{Name: "eth7", LinkType: capture.LinkTypeEthernet, Snaplen: take.Snaplen},
			func(context.Context) capture.Stats { return capture.Stats{Received: 3, Dropped: 2} },
		})
		err := h.Packets([]capture.Packet{{Length: len(data), Data: data, Dir: capture.In, Comment: "a comment"}})
		if err != nil || name != "a" {
			return fmt.Errorf("of %s: %w", name, err)
		}
		return errors.New("it is over")
	}
	next, _ := s.watchAt("api/packets", "?instance=a&flow="+url.QueryEscape("[::1]:1,[::1]:2"))
	view := next()
	id, ok := strings.CutPrefix(view, `view {"id":"`)
	s.wants(view, `view {"id":"`)
	id, _, _ = strings.Cut(id, `"`)
	if !ok || !strings.Contains(view, `"filter":"tcp and ((host ::1`) {
		t.Errorf("%s", view)
	}
	lines := next()
	s.wants(lines, `packets {"packets":[{"time":"0001`)
	for _, want := range []string{`"iface":"eth7"`, `"dir":"In"`, `"comment":"a comment"`, `"seen":1,"dropped":2`} {
		if !strings.Contains(lines, want) {
			t.Errorf("%s; want %s", lines, want)
		}
	}
	s.wants(next(), `ended {"instance":"a","reason":"it is over"}`)

	get := func(id string) (int, []byte) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"api/packets.pcapng?view="+id, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, b
	}
	if status, file := get(id); status != http.StatusOK || !bytes.HasPrefix(file, []byte{0x0a, 0x0d, 0x0d, 0x0a}) || !bytes.Contains(file, []byte("eth7")) {
		t.Errorf("the file: %d, %q", status, file)
	}
	if status, _ := get("other"); status != http.StatusNotFound {
		t.Errorf("another file: %d", status)
	}
}
