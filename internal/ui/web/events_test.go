// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
	"github.com/lklrun/lklrun/test/kit"
)

// limit is the timeout of waits that always end unless the test fails.
const limit = 30 * time.Second

// A stage is an instance that can be started and ended, and a server for it.
type stage struct {
	*testing.T
	server *Server
	url    string
	opened atomic.Int32 // open sources
	asked  atomic.Int32 // snapshots

	mu      sync.Mutex
	running bool
	broken  error // error of the source instead of a snapshot
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, running: true}
	list := func() ([]instance.Info, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return []instance.Info{{State: instance.State{Name: "a"}, Running: s.running}}, nil
	}
	s.server = New(list, nil)
	s.server.hubs.open = func(context.Context, string) (source, error) {
		s.opened.Add(1)
		return counter{s}, nil
	}
	s.server.every, s.server.hubs.every = 20*time.Millisecond, 20*time.Millisecond
	l, err := net.Listen("tcp", httpserve.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := s.opened.Load(); n != 0 {
			t.Errorf("%d sources are open at the end", n)
		}
	})
	s.url = s.server.URL(l)
	return s
}

type counter struct{ s *stage }

func (o counter) Snapshot(context.Context) (any, error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	return &Snapshot{Snapshot: &live.Snapshot{Interval: float64(o.s.asked.Add(1))}}, o.s.broken
}

func (o counter) Close() error {
	o.s.opened.Add(-1)
	return nil
}

func (s *stage) set(running bool, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.broken = running, broken
}

// watch opens the stream; next returns its next event, and skips comments.
func (s *stage) watch(query string) (next func() string, end func()) {
	s.Helper()
	return s.watchAt("api/events", query)
}

func (s *stage) watchAt(path, query string) (next func() string, end func()) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+query, nil)
	if err != nil {
		s.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { cancel(); res.Body.Close() })
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("the stream: %s %s", res.Status, res.Header)
	}
	in := bufio.NewScanner(res.Body)
	return func() string {
		s.Helper()
		for in.Scan() {
			if event, ok := strings.CutPrefix(in.Text(), "event: "); ok && in.Scan() {
				return event + " " + strings.TrimPrefix(in.Text(), "data: ")
			}
		}
		s.Fatalf("the stream has ended: %v", in.Err())
		return ""
	}, cancel
}

func (s *stage) wants(got, prefix string) {
	s.Helper()
	if !strings.HasPrefix(got, prefix) {
		s.Fatalf("%s; want %s", got, prefix)
	}
}

// A page receives the list of instances, the snapshots of the requested instance, and its
// end. Then it receives the snapshots of the next instance of that name.
func TestEvents(t *testing.T) {
	s := newStage(t)
	next, end := s.watch("?instance=a")
	s.wants(next(), `instances [{"name":"a"`)
	s.wants(next(), `snapshot {"time":"0001-01-01T00:00:00Z","interval_s":1,`)
	s.wants(next(), `snapshot {"time":"0001-01-01T00:00:00Z","interval_s":2,`)

	s.set(false, errors.New("the stack host is gone"))
	var events []string
	for len(events) < 3 {
		if e := next(); !strings.HasPrefix(e, "snapshot") { // a snapshot may be in progress
			events = append(events, e)
		}
	}
	slices.Sort(events[:2]) // the order of these two events is not defined
	want := []string{
		`ended {"instance":"a","reason":"the stack host is gone"}`,
		`instances []`,
		`ended {"instance":"a","reason":"it is not running"}`,
	}
	if !slices.Equal(events, want) {
		t.Fatalf("at its end:\n%s", strings.Join(events, "\n"))
	}

	s.set(true, nil)
	s.wants(next(), `instances [{"name":"a"`)
	s.wants(next(), `snapshot {"time":`)
	end()
	if !kit.Within(limit, func() bool { return s.opened.Load() == 0 }) {
		t.Error("the instance is asked although nobody looks")
	}
}

// A page that requests no instance receives the overview, and the list when it changes.
func TestEventsOfAll(t *testing.T) {
	s := newStage(t)
	next, _ := s.watch("")
	s.wants(next(), `instances [{"name":"a"`)
	s.wants(next(), `overview {"time":"0001-01-01T00:00:00Z","interval_s":1,`)
	s.set(false, nil)
	for e := next(); e != `instances []`; e = next() {
		s.wants(e, "overview ")
	}
	s.wants(next(), "overview ")
}

// Pages of one instance share its snapshots, and a page that does not read does not
// delay others.
func TestShared(t *testing.T) {
	s := newStage(t)
	_, stop := s.watch("?instance=a") // this page does not read
	defer stop()
	for range 3 {
		next, _ := s.watch("?instance=a")
		s.wants(next(), "instances")
		s.wants(next(), "snapshot")
		s.wants(next(), "snapshot")
	}
	if n := s.opened.Load(); n != 1 {
		t.Errorf("%d sources for four pages", n)
	}
}

// A late watcher gets the newest snapshot, not the first.
func TestNewestWins(t *testing.T) {
	h := newHubs(nil, 0)
	w := &watcher{newest: make(chan []byte, 1)}
	b := &hub{watchers: map[*watcher]struct{}{w: {}}}
	for n := range 5 {
		h.publish(b, fmt.Append(nil, n))
	}
	if got := string(<-w.newest); got != "4" {
		t.Errorf("%s", got)
	}
}

// The number of streams is limited, and a closed stream makes room for another.
func TestManyStreams(t *testing.T) {
	s := newStage(t)
	for range maxStreams {
		next, _ := s.watch("")
		s.wants(next(), "instances")
	}
	get := func() int {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"api/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", got)
	}
}
