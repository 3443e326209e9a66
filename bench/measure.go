// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A table compares ways. Each turn measures every row in every way once, so that the load of the
// machine affects all ways alike.
type table struct {
	title, text string
	turns       int   // at most; 0: no other limit
	ways        []way // the ratios are to the first one
	rows        []row
}

// A row is a measurement.
type row struct {
	name, unit string
	take       func(*lab, way) (float64, error)
}

const cubic = "cubic"

// errNone means that a way has no such value.
var errNone = errors.New("does not apply")

// tables returns all measurements. Ways that need servers of their own start them.
func (l *lab) tables() []table {
	host := way{name: "host", wrap: inNetns("client"), peer: "10.9.20.1", own: "10.9.20.2", cc: cubic}
	tap := func(engine, stack string) way {
		return way{name: engine, wrap: l.lklrun(engine, stack, "--if", "tap:tap0,ip=10.9.10.2/24"), peer: "10.9.10.1", own: "10.9.10.2", cc: cubic}
	}
	hostMPTCP := host
	hostMPTCP.name, hostMPTCP.mptcp = "host, MPTCP", true
	hostMPTCP.wrap = append(inNetns("client"), "mptcpize", "run")
	mptcp := func(engine string) way {
		w := tap(engine, "mptcp")
		w.mptcp = true
		return w
	}
	bulk := []row{
		{"send, 1 connection", "Gbit/s", stream()}, {"receive, 1 connection", "Gbit/s", stream("-R")},
		{"send, 8 connections", "Gbit/s", stream("-P", "8")}, {"receive, 8 connections", "Gbit/s", stream("-P", "8", "-R")},
	}
	trip := row{"round trip of 14 bytes", "µs", roundTrip}
	connects := row{"connections to nginx", "1/s", connections}
	return []table{
		{
			"A tap beside the host's kernel",
			"The peer is on the host's kernel. The stack `vanilla` reaches it over a tap, the host's kernel over veth.",
			0,
			[]way{host, tap("preload", "vanilla"), tap("supervise", "vanilla"), tap("trace", "vanilla")},
			append(bulk[:4:4], trip, connects,
				row{"UDP sent, 1,400 bytes", "1/s", datagrams()}, row{"UDP received, 1,400 bytes", "1/s", datagrams("-R")},
				row{"nginx, 32 connections", "1/s", nginx("Connection: keep-alive")}, row{"nginx, a connection each", "1/s", nginx("Connection: close")}),
		},
		{
			"MPTCP beside the host's MPTCP",
			"As above, with the stack `mptcp` and one path. Programs of the host get MPTCP from mptcpize(8).",
			0,
			[]way{hostMPTCP, mptcp("preload"), mptcp("supervise")},
			[]row{bulk[0], bulk[1], connects},
		},
		{
			"Without privileges",
			"The peer is on the host's loopback. `preload` and `supervise` reach it through lklrun's gateway, whose TCP connections end in a kernel of its own. Each kernel uses its default congestion control.",
			0,
			[]way{
				{name: "host", wrap: inNetns("peer"), peer: "127.0.0.1"},
				{name: "preload", wrap: l.lklrun("preload", "vanilla"), peer: gateway},
				{name: "supervise", wrap: l.lklrun("supervise", "vanilla"), peer: gateway},
				{name: "pasta", wrap: append(inNetns("peer"), "pasta", "--quiet", "--runas", "0", "--config-net", "--"), peer: "10.9.20.2"},
				{name: "slirp4netns", wrap: []string{"nsenter", "--net=" + l.slirp}, peer: "10.0.2.2"},
			},
			append(bulk[:4:4], trip, connects),
		},
		l.ruled("user"),
		l.ruled("user,tcp=lklrun"),
		{
			"WireGuard",
			"The peer is wireguard-go with a tun of the host's kernel. `wireguard-go` is the same at the client; `preload` and `supervise` have the interface type `wg`.",
			0,
			[]way{
				{name: "wireguard-go", wrap: inNetns("client"), peer: wgPeer},
				{name: "preload", wrap: l.clientRun("preload", "wg:"+l.dir+"/wg.conf"), peer: wgPeer},
				{name: "supervise", wrap: l.clientRun("supervise", "wg:"+l.dir+"/wg.conf"), peer: wgPeer},
			},
			append(bulk[:4:4], trip),
		},
		{
			"Start and memory",
			"Start: from the start to the end of `true`. Memory: proportional set size (PSS) of the run's processes beside the program. slirp4netns starts no program.",
			0,
			[]way{
				{name: "unshare", wrap: []string{"unshare", "--net"}},
				{name: "preload", wrap: l.lklrun("preload", "vanilla")}, {name: "supervise", wrap: l.lklrun("supervise", "vanilla")},
				{name: "supervise, mptcp", wrap: l.lklrun("supervise", "mptcp")},
				{name: "pasta", wrap: append(inNetns("peer"), "pasta", "--quiet", "--runas", "0", "--config-net", "--")},
			},
			[]row{{"start and end", "ms", start}, {"memory", "MB", memory}},
		},
		{
			"Two stacks on a wire",
			"Both ends are runs of lklrun, joined by `wire:`; the server's engine is supervise. The host's ends are two namespaces, joined by veth.",
			0,
			[]way{host, l.wire("preload"), l.wire("supervise")},
			[]row{bulk[0], bulk[1], trip},
		},
		{
			"MPTCP over two paths",
			fmt.Sprintf("Download over links of %d Mbit/s. The second row: after 1.5 s, the first link drops all packets without an error; for how long less than half of a link's rate arrives. The sender is the host's kernel in all columns.", shapedMbit),
			3,
			[]way{
				l.path("host, one path", inNetns("client"), "p1", "10.9.21.1", false),
				l.path("host, MPTCP", append(inNetns("client"), "mptcpize", "run"), "p1", "10.9.21.1", true),
				l.path("supervise, one path", l.lklrun("supervise", "vanilla", "--if", "tap:tap1,ip=10.9.11.2/24"), "tap1", "10.9.11.1", false),
				l.path("preload, MPTCP", l.twoTaps("preload"), "tap1", "10.9.11.1", true),
				l.path("supervise, MPTCP", l.twoTaps("supervise"), "tap1", "10.9.11.1", true),
			},
			[]row{{"download", "Mbit/s", download}, {"silence after a cut", "ms", silence}},
		},
		{
			"BBR on a lossy path",
			fmt.Sprintf("Two stacks under supervise on a wire of %d Mbit/s with 20 ms of delay in each direction, and 1 %% loss towards the server. The first 2 s do not count.", shapedMbit),
			3,
			[]way{l.lossy(cubic), l.lossy("bbr")},
			[]row{{"goodput", "Mbit/s", goodput}},
		},
	}
}

// ruled compares a gateway without rules and with rules. A rule for a name has it check what the
// program says first.
func (l *lab) ruled(link string) table {
	var ways []way
	for _, w := range []struct {
		name  string
		flags []string
	}{{"no rules", nil}, {"an address", []string{"--allow", "10.9.20.1"}}, {"a name", []string{"--add-host", "peer.test=10.9.20.1", "--allow", "peer.test"}}} {
		ways = append(ways, way{name: w.name, wrap: l.clientRun("supervise", link, w.flags...), peer: "10.9.20.1"})
	}
	return table{
		"Rules of --allow, with --if " + link,
		"The engine is supervise, the peer is on the host's kernel.",
		0, ways,
		[]row{{"send, 1 connection", "Gbit/s", stream()}, {"receive, 1 connection", "Gbit/s", stream("-R")}, {"round trip of 14 bytes", "µs", roundTrip}, {"connections to nginx", "1/s", connections}},
	}
}

// stream measures the throughput of iperf3.
func stream(flags ...string) func(*lab, way) (float64, error) {
	return func(l *lab, w way) (float64, error) {
		report, err := l.iperf(w, append([]string{"-t", "1"}, flags...)...)
		return report.End.Received.BitsPerSecond / 1e9, err
	}
}

// datagrams measures the rate of datagrams that arrive.
func datagrams(flags ...string) func(*lab, way) (float64, error) {
	return func(l *lab, w way) (float64, error) {
		report, err := l.iperf(w, append([]string{"-t", "1", "-u", "-b", "0", "-l", "1400"}, flags...)...)
		if err != nil {
			return 0, err
		}
		return (report.End.Sum.Packets - report.End.Sum.Lost) / report.End.Sum.Seconds, nil
	}
}

// roundTrip measures the median round trip of a TCP connection.
func roundTrip(l *lab, w way) (float64, error) {
	half, err := l.number(`percentile 50.000 = +([0-9.]+)`, w.command("sockperf", "ping-pong", "--tcp", "-i", w.peer, "-p", "11111", "-t", "1"))
	return 2 * half, err
}

// connections measures the rate of a client that makes a connection for each request.
func connections(l *lab, w way) (float64, error) { return l.wrk(w, w.peer, "Connection: close") }

// nginx measures the rate of requests that nginx serves in a way.
func nginx(header string) func(*lab, way) (float64, error) {
	return func(l *lab, w way) (rate float64, err error) {
		err = l.with(w.command(l.nginx()...), func() error {
			peer := way{wrap: inNetns("peer")}
			if err := l.wait(func() error {
				return l.shows(peer.command("curl", "-sSf", "--max-time", "1", "http://"+w.own+":"+nginxPort)...)
			}); err != nil {
				return err
			}
			rate, err = l.wrk(peer, w.own, header)
			return err
		})
		return rate, err
	}
}

func (l *lab) wrk(w way, server, header string) (float64, error) {
	return l.number(`Requests/sec: +([0-9.]+)`, w.command("wrk", "-t1", "-c32", "-d1s", "-H", header, "http://"+server+":"+nginxPort))
}

// start measures a run of true.
func start(l *lab, w way) (float64, error) {
	began := time.Now()
	_, err := l.output(w.command("true")...)
	return time.Since(began).Seconds() * 1e3, err
}

// memory measures the processes of a run while its program sleeps.
func memory(l *lab, w way) (sum float64, err error) {
	if w.name == "unshare" {
		return 0, errNone
	}
	before, flag := pss(), l.dir+"/flags/runs"
	err = l.with(w.command("sh", "-c", "echo > "+flag+"; while [ -e "+flag+" ]; do sleep 0.1; done"), func() error {
		err := l.wait(func() error {
			_, err := os.Stat(flag)
			return err
		})
		for pid, mb := range pss() {
			if _, old := before[pid]; !old {
				sum += mb
			}
		}
		return errors.Join(err, os.Remove(flag))
	})
	return sum, err
}

// pss returns the memory in MB of each process except those of the measured program.
func pss() map[string]float64 {
	sizes := map[string]float64{}
	paths, _ := filepath.Glob("/proc/[0-9]*/smaps_rollup") // the pattern is valid
	for _, path := range paths {
		name, _ := os.ReadFile(filepath.Dir(path) + "/comm") // the process may have ended
		text, _ := os.ReadFile(path)
		m := regexp.MustCompile(`(?m)^Pss: +(\d+) kB`).FindSubmatch(text)
		if m == nil || string(name) == "sh\n" || string(name) == "sleep\n" {
			continue
		}
		kb, _ := strconv.ParseFloat(string(m[1]), 64) // digits
		sizes[path] = kb / 1e3
	}
	return sizes
}

// path is a way over the shaped links.
func (l *lab) path(name string, wrap []string, dev, peer string, mptcp bool) way {
	return way{name: name, wrap: wrap, dev: dev, peer: peer, cc: cubic, mptcp: mptcp}
}

func (l *lab) twoTaps(engine string) []string {
	return l.lklrun(engine, "mptcp", "--if", "tap:tap1,ip=10.9.11.2/24", "--if", "tap:tap2,ip=10.9.12.2/24,gw=10.9.12.1")
}

func download(l *lab, w way) (float64, error) {
	report, err := l.iperf(w, "-R", "-t", "2")
	return report.End.Received.BitsPerSecond / 1e6, err
}

// silence measures how long little arrives after the first path was cut.
func silence(l *lab, w way) (float64, error) {
	if !w.mptcp {
		return 0, errNone
	}
	defer func() { _ = l.sh("ip netns exec peer nft flush ruleset") }() // the next cut fails otherwise
	cut := time.AfterFunc(1500*time.Millisecond, func() {
		for _, hook := range []string{"ingress", "egress"} {
			_, _ = l.output("ip", "netns", "exec", "peer", "nft", fmt.Sprintf( // without the cut, no silence is found
				"add table netdev cut; add chain netdev cut %s { type filter hook %[1]s device %s priority 0; policy drop; }", hook, w.dev))
		}
	})
	defer cut.Stop()
	report, err := l.iperf(w, "-R", "-t", "4", "-i", "0.1")
	if err != nil {
		return 0, err
	}
	silent := 0.0
	for _, i := range report.Intervals {
		if i.Sum.Start > 1 && i.Sum.BitsPerSecond < shapedMbit*1e6/2 {
			silent += i.Sum.Seconds
		}
	}
	return silent * 1e3, nil
}

// wire is a way to a server on another stack.
func (l *lab) wire(engine string) way {
	link := "wire:bench-" + engine
	return way{
		name: engine, peer: "10.9.30.1", cc: cubic, wrap: l.lklrun(engine, "vanilla", "--if", link+",ip=10.9.30.2/24"),
		serve: append(l.lklrun("supervise", "vanilla", "--if", link+",ip=10.9.30.1/24"), "sh", "-c", "iperf3 -s & exec sockperf server --tcp -i 0.0.0.0 -p 11111"),
	}
}

// lossy is a way over a wire with loss.
func (l *lab) lossy(cc string) way {
	link := fmt.Sprintf("wire:bench-%s,rate=%dmbit,delay=20ms", cc, shapedMbit)
	return way{
		name: cc, cc: cc, peer: "10.9.31.1", wrap: l.lklrun("supervise", "bbr", "--if", link+",ip=10.9.31.2/24"),
		serve: append(l.lklrun("supervise", "bbr", "--if", link+",ip=10.9.31.1/24,loss=1%,seed=1"), "iperf3", "-s"),
	}
}

func goodput(l *lab, w way) (float64, error) {
	report, err := l.iperf(w, "-t", "5", "-O", "2")
	return report.End.Received.BitsPerSecond / 1e6, err
}

// iperfReport is what iperf3 prints.
type iperfReport struct {
	Error     string
	Intervals []struct{ Sum iperfSum }
	End       struct {
		Received iperfSum `json:"sum_received"`
		Sum      iperfSum
	}
}

type iperfSum struct {
	Start, Seconds, Packets float64
	BitsPerSecond           float64 `json:"bits_per_second"`
	Lost                    float64 `json:"lost_packets"`
}

func (l *lab) iperf(w way, flags ...string) (r iperfReport, err error) {
	port := "5201"
	if w.mptcp {
		port = "5202"
	}
	if w.cc != "" && !slices.Contains(flags, "-u") {
		flags = append(flags, "-C", w.cc)
	}
	out, err := l.output(w.command(append([]string{"iperf3", "-J", "-c", w.peer, "-p", port}, flags...)...)...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Error == "" {
		return r, err
	}
	return r, fmt.Errorf("iperf3 under %s: %s", w.name, r.Error)
}

// number runs a command, and returns the number in its output.
func (l *lab) number(pattern string, argv []string) (float64, error) {
	out, err := l.output(argv...)
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s: no %q in %q", argv, pattern, out)
	}
	return strconv.ParseFloat(m[1], 64)
}

// with runs a program in the background while f runs.
func (l *lab) with(argv []string, f func() error) error {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = limit
	if err := cmd.Start(); err != nil {
		return err
	}
	err := f()
	cancel()
	_ = cmd.Wait() // the signal ended it
	return err
}

// measure takes the turns of a table.
func (l *lab) measure(t table, turns int) (result, error) {
	r := result{table: t, values: make([][][]float64, len(t.rows)), missing: map[string]error{}}
	for i := range t.rows {
		r.values[i] = make([][]float64, len(t.ways))
	}
	for _, w := range t.ways {
		if w.serve == nil {
			continue
		}
		if _, err := l.start(w.serve); err != nil {
			return r, err
		}
		if err := l.wait(func() error {
			_, err := l.iperf(w, "-n", "1")
			return err
		}); err != nil {
			return r, err
		}
	}
	if t.turns > 0 {
		turns = min(turns, t.turns)
	}
	for turn := range turns {
		for i, row := range t.rows {
			for j, w := range t.ways {
				began := time.Now()
				v, err := row.take(l, w)
				fmt.Fprintf(os.Stderr, "%d/%d %s, %s: %.3g %s in %.1f s\n", turn+1, turns, w.name, row.name, v, row.unit, time.Since(began).Seconds())
				switch {
				case l.ctx.Err() != nil:
					return r, l.ctx.Err()
				case errors.Is(err, errNone):
				case err != nil:
					r.missing[row.name+" ("+w.name+")"] = err
				default:
					r.values[i][j] = append(r.values[i][j], v)
				}
			}
		}
	}
	return r, nil
}
