// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/bench/lab"
	"github.com/lklrun/lklrun/bench/report"
	"github.com/lklrun/lklrun/bench/table"
)

const (
	apps = "apps"

	appsRun  = "apps" // name of lklrun's run
	appsBusy = "1000"
)

// Unmodified servers, and clients that load them.
const (
	appsNginx    = "nginx, a connection for each request"
	appsKept     = "nginx, 50 connections"
	appsKeptMany = "nginx, 500 connections"
	appsMany     = "redis, 50 clients"
	appsSingle   = "redis, 1 client"
	appsEcho     = "1,000 busy connections"
)

var appsVariants = []string{lab.Host, lab.Supervise, lab.Preload}

func init() {
	register(Scenario{
		Order: 60, Name: apps, Title: "Servers as they are", Quick: true,
		About: "Three servers with their usual clients. nginx (one process, `return 200`) serves wrk with 32 " +
			"connections and `Connection: close`, so that each request is a new connection, and with 50 and 500 " +
			"connections that stay open. redis-server serves " +
			"`redis-benchmark -t get` with 50 clients and with one. An epoll server serves a client that keeps " +
			"one byte in flight on each of 1,000 connections. The measured side is the server. It runs on the " +
			"host's kernel over veth, or under lklrun over a tap. Its client always runs on the host's kernel.",
		Budget: Budget{Quick: 60 * time.Second, Full: 285 * time.Second},
		Build:  buildApps, Targets: appsTargets(), Figures: appsFigures,
	})
}

func appsKey(what, p, v string) table.Key {
	return table.Key{Scenario: apps, What: what, Placement: p, Variant: v}
}

// An app describes a server with its command line and port, and a client with its
// command line for a number of milliseconds. The function read extracts requests
// per second from the client's output.
type app struct {
	what   string
	port   string
	server []string
	client func(addr string, ms int) []string
	read   func(out string) (float64, error)
}

func buildApps(ctx context.Context, l *lab.Lab) ([]Measure, error) {
	w, err := l.Wire(ctx, lab.WireOptions{Name: apps})
	if err != nil {
		return nil, err
	}
	echo, err := l.Native(ctx, "connbench", "-ldl")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lklrun-bench-apps")
	if err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	nginx, err := nginxConf(dir)
	if err != nil {
		return nil, err
	}
	redis := []string{"redis-server", "--save", "", "--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", dir, "--logfile", filepath.Join(dir, "redis.log")}
	server := []string{"nginx", "-c", nginx, "-e", filepath.Join(dir, "error.log")}
	requests := first(`Requests/sec:\s+([0-9.]+)`)
	list := []app{
		{appsNginx, "80", server, wrk(32, "-H", "Connection: close"), requests},
		{appsKept, "80", server, wrk(50), requests},
		{appsKeptMany, "80", server, wrk(500), requests},
		{appsMany, "6379", redis, redisBenchmark(50, 100), first(`"GET","([0-9.]+)"`)},
		{appsSingle, "6379", redis, redisBenchmark(1, 12), first(`"GET","([0-9.]+)"`)},
		{appsEcho, "7000", []string{echo, "serve", "0.0.0.0", "7000"}, func(addr string, ms int) []string {
			return []string{echo, "load", addr, "7000", "0", appsBusy, strconv.Itoa(ms)}
		}, first(`([0-9.]+) 1/s`)},
	}
	var ms []Measure
	for _, p := range []string{lab.Unpinned, lab.OneCPU} {
		if !l.Form.Full && p != lab.Unpinned {
			continue
		}
		for _, a := range list {
			for _, v := range appsVariants {
				r := lab.Run{Variant: v, Placement: p, Wire: w, Flags: []string{"--quiet"}}
				ms = append(ms, Measure{Key: appsKey(a.what, p, v), Take: func(ctx context.Context) (table.Sample, error) {
					return loadApp(ctx, l, r, a)
				}})
			}
		}
	}
	return ms, nil
}

// nginxConf writes nginx's configuration and returns its path.
func nginxConf(dir string) (string, error) {
	text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/error.log;\n"+
		"events { worker_connections 4096; }\n"+
		"http { access_log off; keepalive_requests 1000000000; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n"+
		"server { listen 80 backlog=1024; location / { return 200 hello; } } }\n", dir)
	path := filepath.Join(dir, "nginx.conf")
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// wrk returns a function for the command line of wrk, which accepts only whole
// seconds.
func wrk(connections int, flags ...string) func(addr string, ms int) []string {
	return func(addr string, ms int) []string {
		line := []string{"wrk", "-t1", "-c" + strconv.Itoa(connections), "-d", strconv.Itoa(max(1, ms/1000)) + "s"}
		return append(append(line, flags...), "http://"+addr+"/")
	}
}

// redisBenchmark returns a function for the command line of redis-benchmark, which
// makes about perMs requests per millisecond.
func redisBenchmark(clients, perMs int) func(addr string, ms int) []string {
	return func(addr string, ms int) []string {
		return []string{"redis-benchmark", "-h", addr, "-c", strconv.Itoa(clients), "-n", strconv.Itoa(ms * perMs), "-t", "get", "--csv"}
	}
}

// first returns a function that parses the first match of a regular expression as a
// number.
func first(expr string) func(string) (float64, error) {
	re := regexp.MustCompile(expr)
	return func(out string) (float64, error) {
		m := re.FindStringSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("no %s in %q", expr, out)
		}
		return strconv.ParseFloat(m[1], 64)
	}
}

// loadApp starts a server, loads it once and stops it.
func loadApp(ctx context.Context, l *lab.Lab, r lab.Run, a app) (table.Sample, error) {
	addr := "10.80.1.2"
	var server *lab.Proc
	var err error
	if r.Variant == lab.Host {
		server, err = l.Start(ctx, l.Program(r, a.server...)...)
	} else {
		addr = "10.79.1.2"
		server, err = l.StartLklrun(ctx, r, appsRun, a.server...)
	}
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	if err := waitApp(ctx, l, r, a); err != nil {
		return nil, fmt.Errorf("%w; %v", err, server.Lines())
	}
	ms := max(1000, int(l.Form.Length.Milliseconds()))
	cpu, began := l.CPU(), lab.Now()
	out, err := l.Output(ctx, l.In(r.Wire.Server, r.Placement, true, a.client(addr, ms)...)...)
	if err != nil {
		return nil, err
	}
	took, used := lab.Now()-began, l.CPU()-cpu
	l.Window(began, began+took)
	rate, err := a.read(out)
	if err != nil {
		return nil, err
	}
	// The CPU time includes the client's start. The number of requests is slightly
	// too low.
	return table.Sample{"1/s": rate, "cpu-µs/op": used / (rate * took) * 1e6}, nil
}

// waitApp waits until the server listens.
func waitApp(ctx context.Context, l *lab.Lab, r lab.Run, a app) error {
	if r.Variant == lab.Host {
		return l.WaitListen(ctx, r.Wire.Client, a.port)
	}
	return l.Until(ctx, a.server[0], func() (bool, error) {
		out, err := l.Output(ctx, l.Bin("lklctl"), "-n", appsRun, "netstat", "-ltnH")
		return strings.Contains(out, ":"+a.port), err
	})
}

func appsTargets() []table.Target {
	var ts []table.Target
	for _, t := range []struct {
		what    string
		atLeast float64
	}{
		{appsNginx, 0.8}, {appsKept, 0.75}, {appsKeptMany, 0.7}, {appsMany, 0.85}, {appsSingle, 0.85}, {appsEcho, 0.6},
	} {
		ts = append(ts, table.Target{Criterion: "2", What: "supervise: " + t.what + ", unpinned", Unit: "1/s", AtLeast: t.atLeast,
			Of: appsKey(t.what, lab.Unpinned, lab.Supervise), Base: appsKey(t.what, lab.Unpinned, lab.Host)})
	}
	return ts
}

func appsFigures(s *table.Set) []report.Plot {
	b := report.Bars{Name: "apps", Title: "Servers as they are, unpinned, beside the host's kernel", Y: "ratio of requests a second", Groups: []string{"nginx", "nginx -c50", "nginx -c500", "redis -c 50", "redis -c 1", "1,000 busy"}}
	for _, v := range appsVariants[1:] {
		series := report.Series{Name: v}
		for _, what := range []string{appsNginx, appsKept, appsKeptMany, appsMany, appsSingle, appsEcho} {
			ratio, _ := s.Ratio(appsKey(what, lab.Unpinned, v), lab.Host, "1/s") // 0: not measured
			series.Values = append(series.Values, ratio)
		}
		b.Series = append(b.Series, series)
	}
	return []report.Plot{b}
}
