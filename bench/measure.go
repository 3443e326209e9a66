// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A bench is the wires, the servers and the programs.
//
//	namespace server                          namespace client
//	10.79.1.1 tap0 ─ library or lklrun        (on the tap: no namespace of its own)
//	10.79.2.1 s0 ──────── veth ────────────── c0 10.79.2.2   host's kernel
type bench struct {
	options
	root    string
	program string // lklbench
	servers []*exec.Cmd
}

// A placement is a prefix that puts a command somewhere.
type placement struct {
	name   string
	prefix []string
	port   string // of the server that sits in the same place
}

var placements = []placement{
	{"unpinned", nil, "5001"},
	{"one CPU", []string{"taskset", "-c", "0"}, "5002"},
}

// engines are those of the subjects that lklrun runs.
var engines = map[subject]string{supervise: "supervise", preload: "preload"}

const (
	wireLimit = 10 * time.Second // for one command that sets something up
	runLimit  = 70 * time.Second // for one measurement; lklbench has its own, 60 s
)

func newBench(ctx context.Context, root string, o options) (*bench, error) {
	b := &bench{options: o, root: root, program: filepath.Join(root, "build", "bench", "lklbench")}
	if err := os.MkdirAll(filepath.Dir(b.program), 0o755); err != nil {
		return nil, err
	}
	if _, err := output(ctx, runLimit, "gcc", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", filepath.Join(root, "third_party/lkl/include"),
		"-o", b.program, filepath.Join(root, "bench/native/lklbench.c"), "-ldl"); err != nil {
		return nil, fmt.Errorf("building lklbench: %w", err)
	}
	// A /run of our own: for the names of the namespaces and the run directories.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return nil, fmt.Errorf("mounting /run: %w", err)
	}
	for _, line := range []string{
		"ip link set lo up",
		"ip netns add server",
		"ip netns add client",
		"ip -n server link add s0 type veth peer name c0 netns client",
		"ip -n server addr add 10.79.2.1/24 dev s0",
		"ip -n server link set s0 up",
		"ip -n client addr add 10.79.2.2/24 dev c0",
		"ip -n client link set c0 up",
		"ip -n server tuntap add tap0 mode tap",
		"ip -n server addr add 10.79.1.1/24 dev tap0",
		"ip -n server link set tap0 up",
	} {
		args := strings.Fields(line)
		if _, err := output(ctx, wireLimit, args[0], args[1:]...); err != nil {
			return nil, fmt.Errorf("wiring: %w", err)
		}
	}
	for _, p := range placements {
		if err := b.serve(ctx, p); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// serve starts a placement's server and waits until it listens.
func (b *bench) serve(ctx context.Context, p placement) error {
	args := append([]string{"netns", "exec", "server"}, p.prefix...)
	args = append(args, b.program, "serve", "0.0.0.0", p.port)
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	b.servers = append(b.servers, cmd)
	ctx, cancel := context.WithTimeout(ctx, wireLimit)
	defer cancel()
	for {
		out, err := output(ctx, wireLimit, "ip", "netns", "exec", "server", "ss", "-Hnlt", "( sport = :"+p.port+" )")
		if err != nil {
			return fmt.Errorf("waiting for the server: %w", err)
		}
		if strings.TrimSpace(out) != "" {
			return nil
		}
	}
}

func (b *bench) close() {
	for _, s := range b.servers {
		_ = s.Process.Kill() // it serves for ever
		_ = s.Wait()         // and says "killed"
	}
}

// output runs a command within a limit and returns what it printed.
func output(ctx context.Context, limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// number runs a command that prints one number.
func number(ctx context.Context, args []string) (float64, error) {
	out, err := output(ctx, runLimit, args[0], args[1:]...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// elapsed runs a command and returns how many milliseconds it took.
func elapsed(ctx context.Context, args []string) (float64, error) {
	began := time.Now()
	if _, err := output(ctx, runLimit, args[0], args[1:]...); err != nil {
		return 0, err
	}
	return float64(time.Since(began).Microseconds()) / 1e3, nil
}

// on returns the command line that makes a subject do a verb of lklbench.
func (b *bench) on(s subject, p placement, verb string, args ...string) []string {
	netns, addr := "server", "10.79.1.1"
	if s == host {
		netns, addr = "client", "10.79.2.1"
	}
	line := append([]string{"ip", "netns", "exec", netns}, p.prefix...)
	switch s {
	case bare:
		line = append(line, b.program, "--lib", filepath.Join(b.root, "bin/stacks/vanilla/liblkl.so"), "--tap", "tap0", "--ip", "10.79.1.2/24")
	case supervise, preload:
		line = append(line, filepath.Join(b.root, "bin/lklrun"), "--engine", engines[s], "--stack", "vanilla", "--if", "tap:tap0,ip=10.79.1.2/24", "--", b.program)
	default:
		line = append(line, b.program)
	}
	line = append(line, verb, addr, p.port)
	return append(line, args...)
}

// measure takes every measurement in turns, round by round: whatever else the
// machine does then meets all subjects alike.
func (b *bench) measure(ctx context.Context) ([]*result, error) {
	type step struct {
		r    *result
		s    subject
		take func() (float64, error)
	}
	var steps []step
	var results []*result
	row := func(what, unit, where string, t *target) *result {
		r := &result{What: what, Unit: unit, Where: where, Values: map[subject][]float64{}, target: t}
		results = append(results, r)
		return r
	}
	add := func(r *result, s subject, take func(context.Context, []string) (float64, error), args []string) {
		steps = append(steps, step{r, s, func() (float64, error) { return take(ctx, args) }})
	}
	library := filepath.Join(b.root, "bin/stacks/vanilla/liblkl.so")

	r := row("getppid", "ns", "one thread", &target{of: bare, ratio: true, atMost: true, limit: 0.35})
	add(r, host, number, []string{b.program, "getppid", "2000000"})
	add(r, bare, number, []string{b.program, "--lib", library, "getppid", "5000000"})
	r = row("boot to ready", "ms", "unpinned", &target{of: bare, atMost: true, limit: 100})
	add(r, bare, number, []string{b.program, "--lib", library, "boot"})
	r = row("true", "ms", "unpinned", nil)
	add(r, host, elapsed, []string{"true"})
	for _, s := range []subject{supervise, preload} {
		add(r, s, elapsed, []string{filepath.Join(b.root, "bin/lklrun"), "--engine", engines[s], "--if", "user", "--", "true"})
	}

	ms := strconv.FormatInt(b.length.Milliseconds(), 10)
	for _, p := range placements {
		for _, m := range []struct {
			what, unit, verb string
			args             []string
			target           *target
		}{
			{"bulk send", "Gbit/s", "send", []string{ms}, &target{of: bare, ratio: true, limit: 1.5}},
			{"bulk receive", "Gbit/s", "recv", []string{ms}, &target{of: bare, ratio: true, limit: 0.8}},
			{"1-byte round trip", "µs", "rr", []string{"4000"}, nil},
		} {
			r := row(m.what, m.unit, p.name, m.target)
			for _, s := range subjects {
				add(r, s, number, b.on(s, p, m.verb, m.args...))
			}
		}
	}
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	for round := range b.rounds {
		if terminal {
			fmt.Fprintf(os.Stderr, "\rround %d of %d", round+1, b.rounds)
		}
		for _, s := range steps {
			v, err := s.take()
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %s: %w", s.r.What, s.r.Where, s.s, err)
			}
			s.r.Values[s.s] = append(s.r.Values[s.s], v)
		}
	}
	if terminal {
		fmt.Fprint(os.Stderr, "\r\033[K") // the line is the table's
	}
	for _, r := range results {
		r.finish()
	}
	return results, nil
}
