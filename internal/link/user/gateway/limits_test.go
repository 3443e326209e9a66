// SPDX-License-Identifier: Apache-2.0

//go:build !nogateway

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/link/user/rules"
)

// The sum of the shares of all kinds is less than the number of descriptors.
func TestLimits(t *testing.T) {
	for _, files := range []int{64, 256, 1024, 4096, 20000, 1 << 20} {
		n := limits(files)
		sum := n[connecting] // evicted entries
		for k, a := range about {
			if n[k] < 1 || n[k] > a.most {
				t.Errorf("%d descriptors: %d of %s", files, n[k], a.counter)
			}
			if a.part > 0 || kind(k) == carried {
				sum += n[k]
			}
		}
		if sum > files {
			t.Errorf("%d descriptors: %d are used: %v", files, sum, n)
		}
	}
}

// A full table evicts the least recently used entry of the peer with the most
// entries.
func TestTable(t *testing.T) {
	var mu sync.Mutex
	var words []string
	g := &Gateway{log: slog.New(slog.DiscardHandler), warn: func(s string) {
		mu.Lock()
		defer mu.Unlock()
		words = append(words, s)
	}}
	tab := newTable(connecting, 8)
	ended := []string{}
	enter := func(peer byte, n int) *entry {
		e := &entry{g: g, peer: netip.AddrFrom4([4]byte{192, 0, 2, peer})}
		name := fmt.Sprint(peer, ".", n)
		e.end = func() { ended = append(ended, name) }
		tab.add(e)
		return e
	}
	enter(1, 0)
	for i := range 7 {
		enter(2, i)
	}
	first := enter(3, 0) // it replaces the oldest of 2
	enter(3, 1)
	tab.remove(first)
	tab.remove(first)
	enter(3, 2)
	enter(3, 3)
	if got := fmt.Sprint(ended); got != "[2.0 2.1 2.2]" {
		t.Errorf("%s gave way", got)
	}
	if len(tab.all) != tab.most || g.Counts()["connecting_evicted"] != 3 {
		t.Errorf("%d are left, counts %v", len(tab.all), g.Counts())
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		mu.Lock()
		n := len(words)
		mu.Unlock()
		if n > 0 {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(words) != 1 {
		t.Errorf("%q", words)
	}
}

// If more queries than allowed wait for a silent name server, the oldest fail
// at once, and the last ones still get their answers.
func TestQueriesGiveWay(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	g := &Gateway{log: slog.New(slog.DiscardHandler), warn: func(string) {}, dns: newResolver(path, new(Config).dial)}
	g.dns.current()
	g.dns.servers = []netip.AddrPort{server.LocalAddr().(*net.UDPAddr).AddrPort()}
	most := tables()[queries].most
	answers := make(chan byte, 2*most)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const extra = 10
	for i := range most + extra {
		query := make([]byte, dnsHeader)
		query[0], query[1] = byte(i>>8), byte(i)
		go g.resolve(ctx, codes{answers}, rules.Socket{}, query)
	}
	for range extra {
		select {
		case code := <-answers:
			if code != 2 {
				t.Errorf("response code %d", code)
			}
		case <-time.After(10 * queryLimit):
			t.Fatal("none of the oldest queries fails")
		}
	}
	if n := g.Counts()["queries_evicted"]; n != extra {
		t.Errorf("%d gave way", n)
	}
}

// codes is a writer that passes on the response codes of answers.
type codes struct{ to chan<- byte }

func (c codes) Write(b []byte) (int, error) {
	c.to <- b[3] & 0xf
	return len(b), nil
}

var _ io.Writer = codes{}
