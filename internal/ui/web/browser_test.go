// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/diag/live"
	"github.com/lklrun/lklrun/internal/diag/mptcpdiag"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/ui/httpserve"
	"github.com/lklrun/lklrun/test/kit"
)

// A scene is a set of instances with constant rates.
type scene struct {
	infos []instance.Info
	links map[string][]live.Link // by instance
	fails map[string]error
}

// add adds an instance. Each interface is "NAME TYPE[:HOST] RX TX", with rates in bit/s.
func (s *scene) add(name, command string, interfaces ...string) {
	info := instance.Info{Dir: "/run/" + name, Running: true, State: instance.State{
		Name: name, PID: len(s.infos) + 1, Stack: "mptcp", Engine: "supervise", Kernel: "6.12.60",
		Started: time.Now().Add(-3 * time.Minute), Command: strings.Fields(command),
	}}
	links := []live.Link{{Name: "lo", Index: 1, State: "up"}}
	for n, text := range interfaces {
		var ifname, spec string
		var rx, tx uint64
		if _, err := fmt.Sscan(text, &ifname, &spec, &rx, &tx); err != nil {
			panic(err)
		}
		typ, host, _ := strings.Cut(spec, ":")
		info.Interfaces = append(info.Interfaces, instance.Interface{Name: ifname, Type: typ, Host: host})
		links = append(links, live.Link{
			Name: ifname, Index: n + 2, State: "up", Addrs: []string{fmt.Sprintf("10.9.%d.%d/24", n, len(s.infos)+1)},
			RxRate: sockdiag.Known(rx), TxRate: sockdiag.Known(tx), RxBytes: sockdiag.Known(rx * 20), TxBytes: sockdiag.Known(tx * 20),
		})
	}
	if s.links == nil {
		s.links, s.fails = map[string][]live.Link{}, map[string]error{}
	}
	s.infos, s.links[name] = append(s.infos, info), links
}

// twoWires is a client and a server that two wires join.
func twoWires() *scene {
	s := &scene{}
	s.add("demo.client", "curl -sO http://10.9.0.2/file", "eth0 wire:demo.a 93200000 1100000", "eth1 wire:demo.b 48000000 700000")
	s.add("demo.server", "nginx -g daemon off;", "eth0 wire:demo.a 1100000 93200000", "eth1 wire:demo.b 700000 48000000")
	return s
}

// routers is a chain of five nodes.
func routers() *scene {
	s := &scene{}
	for n := 1; n <= 5; n++ {
		var ifs []string
		if n > 1 {
			ifs = append(ifs, fmt.Sprintf("eth%d wire:chain.w%d 2000000 51000000", len(ifs), n-1))
		}
		if n < 5 {
			ifs = append(ifs, fmt.Sprintf("eth%d wire:chain.w%d 51000000 2000000", len(ifs), n))
		}
		s.add(fmt.Sprintf("chain.r%d", n), "sleep inf", ifs...)
	}
	return s
}

// star is a node with eight others around it.
func star() *scene {
	s := &scene{}
	var hub []string
	for n := 1; n <= 8; n++ {
		hub = append(hub, fmt.Sprintf("eth%d wire:star.w%d %d %d", n-1, n, n*1000000, n*20000000))
		s.add(fmt.Sprintf("star.leaf%d", n), "iperf3 -c hub", fmt.Sprintf("eth0 wire:star.w%d %d %d", n, n*20000000, n*1000000))
	}
	s.add("star.hub", "iperf3 -s", hub...)
	return s
}

// mixture has a switch, a mesh, a wire with one end, a wire that is down, an instance
// that does not answer, and instances without wires.
func mixture() *scene {
	s := &scene{}
	for n := 1; n <= 4; n++ {
		s.add(fmt.Sprintf("lan.pc%d", n), "bash", "eth0 wire:lan 120000 80000", "eth1 user 4000 2000")
	}
	s.add("mesh.client", "iperf3 -c", "eth0 wire:mesh.up 0 90000000", "eth1 wire:mesh.down 0 30000000")
	s.add("mesh.r1", "sleep inf", "eth0 wire:mesh.up 90000000 0", "eth1 wire:mesh.up2 0 90000000")
	s.add("mesh.r2", "sleep inf", "eth0 wire:mesh.down 30000000 0", "eth1 wire:mesh.down2 0 30000000")
	s.add("mesh.server", "iperf3 -s", "eth0 wire:mesh.up2 90000000 0", "eth1 wire:mesh.down2 30000000 0", "eth2 wire:mesh.none 0 0")
	s.links["mesh.client"][2].State = "no carrier"
	s.add("curl", "curl -sS https://example.com/a/long/path/to/a/file", "eth0 user 1200000 34000")
	s.add("phone", "chromium", "eth0 raw:wlan0 0 0", "eth1 rawip:rmnet_data0 0 0")
	s.add("broken", "stress", "eth0 tap:tap0 0 0")
	s.fails["broken"] = context.DeadlineExceeded
	return s
}

// busy is one instance with many connections, which have two reasons, and with many short
// connections, which no snapshot contains.
func busy() *scene {
	s := &scene{}
	s.add("load", "ab -n 100000 -c 50 http://192.0.2.1/", "eth0 user 61000000 9000000", "eth1 tap:tap0 18000000 44000000")
	return s
}

// snapshot is the busy instance after a number of seconds.
func snapshot(s *scene, second int) *Snapshot {
	value := sockdiag.Known
	wave := uint64(20 + second*7%13)
	opened, retrans, cpu := 812.4, 1.5, 37.2
	now := &live.Snapshot{
		Time: time.Now(), Interval: 1,
		Instance: live.Instance{Name: "load", Stack: "mptcp", Release: "6.12.60", Engine: "supervise", Command: strings.Join(s.infos[0].Command, " "), Started: s.infos[0].Started},
		CPU:      live.CPU{Stack: &cpu},
		Totals:   live.Totals{RxRate: value(wave * 3000000), TxRate: value(wave * 1000000), RetransRate: &retrans, OpenedRate: &opened, Connections: 16, Subflows: 20},
	}
	for n, l := range s.links["load"] {
		l.RxRate, l.TxRate = value(uint64(n)*wave*2000000), value(uint64(n)*wave*900000)
		if l.Name == "lo" {
			l.RxRate, l.TxRate = value(0), value(0)
		}
		now.Links = append(now.Links, l)
	}
	for n := range 16 {
		c := live.Connection{
			ID: fmt.Sprintf("c%d", n), Proto: "mptcp", State: "ESTAB", Local: fmt.Sprintf("10.9.0.1:%d", 40000+n), Remote: "192.0.2.1:80",
			Process: "ab", PID: 4711, Token: fmt.Sprintf("%08x", n), Fallback: n < 12,
			TxRate: value(wave * 10000), RxRate: value(wave * 50000), BytesSent: value(uint64(second) * 1000), BytesReceived: value(uint64(second) * 100000),
		}
		for k := range 1 + n/14 {
			c.Subflows = append(c.Subflows, live.Subflow{
				ID: fmt.Sprintf("s%d.%d", n, k), Iface: fmt.Sprintf("eth%d", k), State: "ESTAB", Local: fmt.Sprintf("10.9.%d.1:%d", k, 40000+n), Remote: "192.0.2.1:80",
				RTT: value(20000 + uint64(n)*900), Cwnd: value(10 + uint64(n)*3), TxRate: value(wave * uint64(n+1) * 40000), RxRate: value(wave * uint64(16-n) * 90000),
			})
		}
		now.Connections = append(now.Connections, c)
	}
	var reasons [][]mptcpdiag.Reason
	for n := range 16 {
		var all []mptcpdiag.Reason
		if n < 12 {
			all = append(all, mptcpdiag.Reason{Code: mptcpdiag.Gateway, Text: "the connection uses eth0, and TCP ends at lklrun's gateway there", Remedy: "remove --if user, or make it the last --if"})
		} else if n < 14 {
			all = append(all, mptcpdiag.Reason{Code: mptcpdiag.Limit, Iface: "eth1", Address: "10.9.1.1", Text: "the limit is 0 additional subflows, and the connection has 0", Remedy: "lklctl mptcp limits set subflows 1 (for new connections)"})
		}
		reasons = append(reasons, all)
	}
	return &Snapshot{now, map[string]string{"eth0": "user", "eth1": "tap"}, mptcpdiag.GroupBy(reasons, func(n int) string { return fmt.Sprintf("c%d", n) })}
}

// theatre serves scenes.
type theatre struct {
	mu    sync.Mutex
	now   *scene
	stage int // seconds
}

func (h *theatre) set(s *scene) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = s
}

func (h *theatre) list() ([]instance.Info, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]instance.Info(nil), h.now.infos...), nil
}

// fakeSampler samples an instance of the scene.
type fakeSampler struct {
	*theatre
	name string
}

func (f fakeSampler) Sample(context.Context) ([]live.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now.links[f.name], f.now.fails[f.name]
}

func (f fakeSampler) Snapshot(context.Context) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stage++
	if len(f.now.infos) == 0 || f.now.infos[0].Name != f.name {
		return nil, errors.New("the instance has ended")
	}
	return snapshot(f.now, f.stage), nil
}

func (fakeSampler) Close() error { return nil }

// TestPage shows scenes in a browser: the page without instances, pictures of several
// topologies, and one instance with many connections. PICTURES keeps the screenshots.
func TestPage(t *testing.T) {
	kit.Need(t, "node", "/usr/bin/chromium")
	h := &theatre{now: &scene{}}
	s := New(h.list, nil)
	s.hubs.open = func(_ context.Context, name string) (source, error) {
		if name != "" {
			return fakeSampler{h, name}, nil
		}
		open := func(_ context.Context, name string) (sampler, error) { return fakeSampler{h, name}, nil }
		return &overview{list: h.list, open: open, all: map[string]*inspected{}}, nil
	}
	s.every, s.hubs.every = 200*time.Millisecond, 200*time.Millisecond
	l, err := net.Listen("tcp", httpserve.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	scenes := map[string]func() *scene{"nothing": func() *scene { return &scene{} }, "two": twoWires, "chain": routers, "star": star, "mixture": mixture, "busy": busy}
	dir := os.Getenv("PICTURES")
	kit.Browse(t, kit.Host, func(what string) {
		if scenes[what] == nil {
			t.Errorf("the browser asks for %q", what)
			return
		}
		h.set(scenes[what]())
	}, kit.TestData("page.cjs"), s.URL(l), dir)
}
